"""Drives of a namespace: data that lies on one machine, by name, size and site."""

from typing import Any

from moorage.client.documents import Spec, plain_document
from moorage.client.session import Session

Json = dict[str, Any]
Items = list[Json]


class AsyncDrives:
    """`client.drives`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, *, namespace: str | None = None) -> Items:
        """All of them."""
        return await self._session.all(self._session.path("drives", namespace=namespace))

    async def get(self, name: str, *, namespace: str | None = None) -> Json:
        """One of them, with where its data lies."""
        answer: Json = await self._session.get(self._session.path("drives", name, namespace=namespace))
        return answer

    async def apply(self, spec: Spec) -> Json:
        """Make it, or change its size; the same again changes nothing."""
        body = plain_document(spec, "Drive", self._session.namespace)
        path = self._session.path("drives", body["name"], namespace=body["namespace"])
        answer: Json = await self._session.change("PUT", path, body=body)
        return answer

    async def remove(self, name: str, *, namespace: str | None = None) -> Json:
        """Forget it. Its data stays on its machine; the answer says where."""
        path = self._session.path("drives", name, namespace=namespace)
        answer: Json = await self._session.change("DELETE", path)
        return answer
