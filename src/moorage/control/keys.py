"""Clients' keys: the orders about them, and the questions. `decide/keys` says what the orders mean.

A key is `moor-key.ID.SECRET`. Its text is in the answer of the order that made it and nowhere else: not in the row, not
in what is kept for a repeated order, which is answered without it. Called by the API's routes.
"""

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from moorage.control.carrying import Answer, Carrier
from moorage.control.reading import missing
from moorage.control.views import JsonObject, head, iso
from moorage.decide import keys
from moorage.decide.decision import Ids, Outcome
from moorage.domain.errors import Conflict
from moorage.domain.ids import check_name
from moorage.domain.nouns import Key
from moorage.domain.states import KeyState
from moorage.ports import Clock, Store
from moorage.wire.key import KeyBody, KeyChange

SECRET_BYTES = 32


class Keys:
    """What there is, and the orders about it.

    Args:
        store, clock, ids: outside.
        random_text: unguessable text of so many bytes; the operating system's by default.
    """

    def __init__(
        self, store: Store, clock: Clock, ids: Ids, random_text: Callable[[int], str] = secrets.token_urlsafe
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._random = random_text
        self._carry = Carrier(store)

    async def listed(self, ns: str) -> list[JsonObject]:
        """Every key of a namespace, by name, without texts."""
        rows = await self._store.find(Key, namespace=ns)
        return [key_object(row, self._clock.now()) for row in sorted(rows, key=lambda row: row.name)]

    async def get(self, ns: str, name: str) -> JsonObject:
        """One of them, by name or uid."""
        return key_object(await self._row(ns, name), self._clock.now())

    async def create(self, ns: str, body: KeyBody, *, actor: str, key: str | None) -> JsonObject:
        """A new key, its text under `key`. A repeated order is answered with `key` null: the text was told once.

        Raises:
            Conflict: the name is taken.
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
            return keys.issue(row, actor)

        answer = await self._carry(ns, key, {"create key": body.model_dump()}, decide)
        mine = answer["id"] == uid
        shown = await self.get(ns, answer["id"])
        return {**shown, "key": text if mine else None}

    async def change(self, ns: str, name: str, body: KeyChange, *, actor: str, key: str | None) -> JsonObject:
        """Other limits, endpoints or words."""
        limits = None if body.limits is None else body.limits.amounts()

        async def decide() -> Outcome:
            row = await self._row(ns, name)
            return keys.change(row, endpoints=body.endpoints, limits=limits, description=body.description, actor=actor)

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

    async def _row(self, ns: str, name: str) -> Key:
        for where in ({"name": name}, {"uid": name}):
            found = await self._store.find(Key, namespace=ns, limit=1, **where)
            if found:
                return found[0]
        raise missing(Key, ns, name)


def key_object(row: Key, now: float) -> JsonObject:
    """A Key. Of its text only the part that is no secret."""
    over = row.expires_at is not None and now >= row.expires_at
    return {
        **head(row),
        "state": "expired" if over and row.state is KeyState.ACTIVE else str(row.state),
        "hint": row.hint,
        "endpoints": list(row.endpoints),
        "limits": dict(row.limits),
        "expires_at": iso(row.expires_at) if row.expires_at is not None else None,
        "revoked_at": iso(row.revoked_at) if row.revoked_at is not None else None,
        "description": row.description,
    }
