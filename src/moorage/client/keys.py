"""Keys that clients of a namespace's endpoints show. Their text is in the answer of `create` and nowhere else."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moorage.client.session import INTERVAL_S, Session

if TYPE_CHECKING:
    from moorage.client.watching import Outcome

Json = dict[str, Any]
Items = list[Json]


class AsyncKeys:
    """`client.keys`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, *, used_from: str | None = None, namespace: str | None = None) -> Items:
        """Names, states, endpoints and limits of all of them; never their texts.

        Args:
            used_from: a day (`2026-01-31`) or time: with what was used with each since then, under `usage`.
        """
        return await self._session.all(self._session.path("keys", namespace=namespace), used_from=used_from)

    async def get(self, name: str, *, namespace: str | None = None) -> Json:
        """One of them, never its text; with `gateways`, which say the generation that each goes by."""
        answer: Json = await self._session.get(self._session.path("keys", name, namespace=namespace))
        return answer

    async def history(self, name: str, *, namespace: str | None = None) -> Items:
        """Everything that was set about it, oldest first, with why and by whom; also of a deleted one."""
        return await self._session.all(self._session.path("keys", name, "history", namespace=namespace))

    async def usage(
        self,
        name: str,
        *,
        since: str | None = None,
        until: str | None = None,
        bucket: str = "day",
        endpoint: str | None = None,
        namespace: str | None = None,
    ) -> Json:
        """Requests and tokens with one key: `{from, to, items, total}`; gateways tell them within seconds.

        Args:
            name: of the key, or its id; by that also of one that was deleted.
            since, until: days (`2026-01-31`) or times, of which the days in UTC are meant; None: 30 days, until today.
            bucket: `day`: an item for each day and endpoint; `total`: one for each endpoint.
            endpoint: only what named this one.
        """
        path = self._session.path("keys", name, "usage", namespace=namespace)
        asked: dict[str, Any] = {"from": since, "to": until, "bucket": bucket, "endpoint": endpoint}
        answer: Json = await self._session.get(path, **asked)
        return answer

    async def create(
        self,
        name: str,
        *,
        endpoints: Sequence[str] = (),
        limits: Mapping[str, int] | None = None,
        expires_in_s: float | None = None,
        description: str = "",
        namespace: str | None = None,
        key: str | None = None,
    ) -> Json:
        """Make one. Its text is under `key`, this once; null there when the order had been carried out before.

        Args:
            endpoints: names that it opens; none: all of its namespace.
            limits: `requests_per_minute`, `tokens_per_minute`, `in_flight`; what is left out is unlimited.
            expires_in_s: seconds from now; None: it does not expire.
            key: idempotency key.
        """
        body = {
            "name": name,
            "endpoints": [*endpoints],
            "limits": dict(limits or {}),
            "expires_in_s": expires_in_s,
            "description": description,
        }
        path = self._session.path("keys", namespace=namespace)
        answer: Json = await self._session.change("POST", path, body=body, key=key)
        return answer

    async def limit(
        self,
        name: str,
        *,
        endpoints: Sequence[str] | None = None,
        limits: Mapping[str, int] | None = None,
        description: str | None = None,
        namespace: str | None = None,
        key: str | None = None,
    ) -> Json:
        """Other limits, endpoints or words; None: as they are. `limits` replaces all of its limits."""
        asked: Json = {
            "endpoints": None if endpoints is None else [*endpoints],
            "limits": None if limits is None else dict(limits),
            "description": description,
        }
        path = self._session.path("keys", name, namespace=namespace)
        body = {field: value for field, value in asked.items() if value is not None}
        answer: Json = await self._session.change("PATCH", path, body=body, key=key)
        return answer

    async def revoke(
        self, name: str, *, text: str | None = None, namespace: str | None = None, key: str | None = None
    ) -> Json:
        """It opens nothing any more, as soon as gateways have heard of it (see `wait`); it stays until it is deleted.

        Args:
            text: why.
            key: idempotency key.
        """
        path = self._session.path("keys", name, "revoke", namespace=namespace)
        answer: Json = await self._session.change("POST", path, body={"text": text}, key=key)
        return answer

    async def delete(self, name: str, *, namespace: str | None = None, key: str | None = None) -> Json:
        """Forget it; its name is free again."""
        path = self._session.path("keys", name, namespace=namespace)
        answer: Json = await self._session.change("DELETE", path, key=key)
        return answer

    async def wait(
        self,
        name: str,
        *,
        timeout_s: float | None = 60.0,
        interval_s: float = INTERVAL_S,
        on_status: Callable[[Json], None] | None = None,
        namespace: str | None = None,
    ) -> "Outcome":
        """Wait until every gateway in reach goes by the key as it is now: lets a new one in, refuses a revoked one.

        A gateway that is out of reach is not waited for; the object tells it under `unreachable`. Where it runs it goes
        on with the keys that it has until it reaches the control plane again.

        Args:
            name: of the key.
            timeout_s: None waits for ever.
            interval_s: seconds between two reads.
            on_status: called with each object read.

        Raises:
            WaitFailed: it was deleted meanwhile.
            WaitTimeout: time is over; it says which gateway has not confirmed.
            NotFound: there was none to begin with.
        """
        from moorage.client.key_wait import wait_for_key
        from moorage.client.watching import Watch

        where = namespace or self._session.namespace
        look = f"see what each gateway goes by with `moor keys get {name}`"
        what = Watch("confirmed", f"Key {where}/{name}", name, timeout_s, interval_s, on_status, look)
        return await wait_for_key(self._session, where, what)
