"""Keys that clients of a namespace's endpoints show. Their text is in the answer of `create` and nowhere else."""

from collections.abc import Mapping, Sequence
from typing import Any

from moorage.client.session import Session

Json = dict[str, Any]
Items = list[Json]


class AsyncKeys:
    """`client.keys`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, *, namespace: str | None = None) -> Items:
        """Names, states, endpoints and limits of all of them; never their texts."""
        return await self._session.all(self._session.path("keys", namespace=namespace))

    async def get(self, name: str, *, namespace: str | None = None) -> Json:
        """One of them; never its text."""
        answer: Json = await self._session.get(self._session.path("keys", name, namespace=namespace))
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
        """It opens nothing any more, as soon as gateways have heard of it; it stays in the list until it is deleted.

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
