"""Clients' keys: the orders about them, and the questions. `decide/keys` says what the orders mean.

What an order did is durable when it is answered; the feed then brings it to the publisher. `generation` of a key says
since when gateways are told of it as it is, `gateways` which of them have that, `unreachable` which may go on without.

A key is `moor-key.ID.SECRET`. Its text is in the answer of the order that made it and nowhere else: not in the row, not
in what is kept for a repeated order, which is answered without it. Called by the API's routes.
"""

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from moorage.control.bindings import Spread
from moorage.control.carrying import Answer, Carrier
from moorage.control.reading import missing
from moorage.control.used import KeyUsage, Span, sums_object
from moorage.control.views import JsonObject, head, iso
from moorage.decide import keys
from moorage.decide.decision import Ids, Outcome
from moorage.decide.keys import Opened
from moorage.domain.errors import Conflict, NotFound
from moorage.domain.ids import check_name
from moorage.domain.nouns import Deployment, Endpoint, Key
from moorage.domain.states import KeyState
from moorage.domain.usage import UsageSums
from moorage.ports import Clock, Store, UsageRows
from moorage.wire.key import KeyBody, KeyChange

SECRET_BYTES = 32


class Keys:
    """What there is, and the orders about it.

    Args:
        store, clock, ids: outside.
        usage: what was used with them.
        spread: how far what is published of a uid has come, as this control plane knows; None: it does not route.
        random_text: unguessable text of so many bytes; the operating system's by default.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        *,
        usage: UsageRows,
        spread: Callable[[str], Spread] | None,
        random_text: Callable[[int], str] = secrets.token_urlsafe,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._usage = KeyUsage(usage, clock)
        self._spread = spread
        self._random = random_text
        self._carry = Carrier(store)

    async def listed(self, ns: str, used: Span | None = None) -> list[JsonObject]:
        """Every key of a namespace, by name, without texts.

        Args:
            used: with what was used with each in these days, under `usage`.
        """
        rows = await self._store.find(Key, namespace=ns)
        there = await self._there(ns, any(row.endpoints for row in rows))
        sums = None if used is None else await self._usage.by_key(ns, used)
        now = self._clock.now()
        shown = [(row, key_object(row, now, there)) for row in sorted(rows, key=lambda row: row.name)]
        if sums is None:
            return [found for _, found in shown]
        return [{**found, "usage": sums_object(sums.get(row.uid, UsageSums()))} for row, found in shown]

    async def get(self, ns: str, name: str) -> JsonObject:
        """One of them, by name or uid, and how far it has come."""
        row = await self._row(ns, name)
        shown = key_object(row, self._clock.now(), await self._there(ns, bool(row.endpoints)))
        return {**shown, **self._spread_of(row)}

    async def usage(self, ns: str, name: str, span: Span, *, bucket: str, endpoint: str | None) -> JsonObject:
        """What was used with one of them: a Usage object. Of one that was deleted it is told by its uid."""
        try:
            row: Key | None = await self._row(ns, name)
        except NotFound:
            if not await self._usage.any_of(ns, name):
                raise
            row = None
        uid = name if row is None else row.uid
        told = await self._usage.told(ns, uid, span, bucket=bucket, endpoint=endpoint)
        return {"kind": "Usage", "namespace": ns, "key": None if row is None else row.name, "key_id": uid, **told}

    async def create(self, ns: str, body: KeyBody, *, actor: str, key: str | None) -> JsonObject:
        """A new key, its text under `key`. A repeated order is answered with `key` null: the text was told once.

        Raises:
            Conflict: the name is taken.
            InvalidSpec: it names an endpoint that is not there.
        """
        check_name(body.name)
        uid = self._ids.new("Key")
        public = uid.removeprefix("key-")
        text = f"moor-key.{public}.{self._random(SECRET_BYTES)}"
        now = self._clock.now()
        row = Key(
            uid=uid,
            namespace=ns,
            name=body.name,
            digest=hashlib.sha256(text.encode()).hexdigest(),
            hint=f"moor-key.{public}",
            endpoints=tuple(body.endpoints),
            limits=body.limits.amounts(),
            expires_at=None if body.expires_in_s is None else now + body.expires_in_s,
            description=body.description,
        )

        async def decide() -> Outcome:
            if await self._store.find(Key, namespace=ns, name=body.name, limit=1):
                raise Conflict(
                    f"Key {ns}/{body.name} exists already",
                    remedy="choose another name, or delete that one first",
                    target=f"Key {ns}/{body.name}",
                )
            return keys.issue(row, await self._there(ns, bool(row.endpoints)), actor)

        answer = await self._carry(ns, key, {"create key": body.model_dump()}, decide)
        mine = answer["id"] == uid
        shown = await self.get(ns, answer["id"])
        return {**shown, "key": text if mine else None}

    async def change(self, ns: str, name: str, body: KeyChange, *, actor: str, key: str | None) -> JsonObject:
        """Other limits, endpoints or words."""
        limits = None if body.limits is None else body.limits.amounts()

        async def decide() -> Outcome:
            row = await self._row(ns, name)
            there = await self._there(ns, bool(body.endpoints))
            return keys.change(
                row, there, endpoints=body.endpoints, limits=limits, description=body.description, actor=actor
            )

        return await self._shown(ns, key, {"change key": name, "to": body.model_dump()}, decide)

    async def revoke(self, ns: str, name: str, *, text: str | None, actor: str, key: str | None) -> JsonObject:
        """It opens nothing any more, as soon as gateways have heard of it."""

        async def decide() -> Outcome:
            return keys.revoke(await self._row(ns, name), self._clock.now(), text=text, actor=actor)

        return await self._shown(ns, key, {"revoke key": name, "text": text}, decide)

    async def delete(self, ns: str, name: str, *, actor: str, key: str | None) -> JsonObject:
        """Forget it; as `revoke` for its clients."""

        async def decide() -> Outcome:
            return keys.delete(await self._row(ns, name), actor)

        answer = await self._carry(ns, key, {"delete key": name}, decide)
        return {"kind": "Key", "namespace": ns, **answer}

    async def _shown(
        self, ns: str, key: str | None, intent: Mapping[str, Any], decide: Callable[[], Awaitable[Outcome]]
    ) -> JsonObject:
        answer: Answer = await self._carry(ns, key, intent, decide)
        return await self.get(ns, answer["id"])

    async def _there(self, ns: str, asked: bool) -> Opened:
        """What keys may name; read only where one names something."""
        if not asked:
            return Opened()
        return keys.opened(
            await self._store.find(Deployment, namespace=ns), await self._store.find(Endpoint, namespace=ns)
        )

    def _spread_of(self, row: Key) -> JsonObject:
        spread = Spread() if self._spread is None else self._spread(row.uid)
        now = self._clock.now()
        return {
            "generation": spread.number if spread.version >= row.version else None,
            "gateways": [
                {"id": one.id, "generation": one.number, "lease_expires_at": iso(now + one.left_s)}
                for one in spread.gateways
            ],
            "unreachable": [
                {
                    "id": one.id,
                    "heard_at": None if one.silent_s is None else iso(now - one.silent_s),
                    "not_since": iso(now - one.started_s) if one.silent_s is None else None,
                    "address": one.address,
                }
                for one in spread.silent
            ],
        }

    async def _row(self, ns: str, name: str) -> Key:
        for where in ({"name": name}, {"uid": name}):
            found = await self._store.find(Key, namespace=ns, limit=1, **where)
            if found:
                return found[0]
        raise missing(Key, ns, name)


def key_object(row: Key, now: float, there: Opened) -> JsonObject:
    """A Key. Of its text only the part that is no secret.

    Args:
        there: what its names may mean.
    """
    over = row.expires_at is not None and now >= row.expires_at
    return {
        **head(row),
        "state": "expired" if over and row.state is KeyState.ACTIVE else str(row.state),
        "hint": row.hint,
        "endpoints": list(row.endpoints),
        "missing_endpoints": keys.gone(row, there),
        "limits": dict(row.limits),
        "expires_at": iso(row.expires_at) if row.expires_at is not None else None,
        "revoked_at": iso(row.revoked_at) if row.revoked_at is not None else None,
        "description": row.description,
    }
