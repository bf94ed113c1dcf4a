"""Secrets of a namespace: set and removed, listed without their values. Nothing reads a value back."""

from collections.abc import Mapping
from typing import Any

from moorage.client.session import Session

Json = dict[str, Any]
Items = list[Json]


class AsyncSecrets:
    """`client.secrets`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, *, namespace: str | None = None) -> Items:
        """Names, keys and times of all of them."""
        return await self._session.all(self._session.path("secrets", namespace=namespace))

    async def get(self, name: str, *, namespace: str | None = None) -> Json:
        """Keys and times of one."""
        answer: Json = await self._session.get(self._session.path("secrets", name, namespace=namespace))
        return answer

    async def set(self, name: str, values: Mapping[str, str], *, namespace: str | None = None) -> Json:
        """Set it, with exactly these keys. Workers that wait for it go on by themselves."""
        path = self._session.path("secrets", name, namespace=namespace)
        answer: Json = await self._session.change("PUT", path, body={"values": dict(values)})
        return answer

    async def remove(self, name: str, *, namespace: str | None = None) -> Json:
        """Remove it. Workers that have its values keep them until they end."""
        path = self._session.path("secrets", name, namespace=namespace)
        answer: Json = await self._session.change("DELETE", path)
        return answer
