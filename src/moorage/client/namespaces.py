"""Namespaces and their quotas: which machines the work of each may use, and how much of everything."""

from collections.abc import Mapping
from typing import Any

from moorage.client.session import Session, fleet_path

Json = dict[str, Any]
Items = list[Json]


class AsyncNamespaces:
    """`client.namespaces`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self) -> Items:
        """`default`, those that were made, and those in which something lives."""
        return await self._session.all(fleet_path("namespaces"))

    async def get(self, name: str) -> Json:
        """One of them."""
        answer: Json = await self._session.get(fleet_path("namespaces", name))
        return answer

    async def set(
        self,
        name: str,
        *,
        machines: Mapping[str, str] | None = None,
        description: str = "",
        keys: str | None = None,
        key: str | None = None,
    ) -> Json:
        """Make it, or change it; all of it is set, but for `keys`.

        Args:
            machines: labels that a machine must have for its work; None or empty: it may use every machine.
            keys: `required` when its endpoints ask every client for a key, or `optional`; None: as it was.
            key: idempotency key.
        """
        body: Json = {"machines": dict(machines or {}), "description": description}
        if keys is not None:
            body["keys"] = keys
        answer: Json = await self._session.change("PUT", fleet_path("namespaces", name), body=body, key=key)
        return answer

    async def remove(self, name: str, *, key: str | None = None) -> Json:
        """Forget what was set about it; refused while something lives in it."""
        answer: Json = await self._session.change("DELETE", fleet_path("namespaces", name), key=key)
        return answer


class AsyncQuotas:
    """`client.quotas`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self) -> Items:
        """What every namespace may hold and does."""
        return await self._session.all(fleet_path("quotas"))

    async def get(self, namespace: str) -> Json:
        """What one may hold (`limits`) and does (`used`)."""
        answer: Json = await self._session.get(fleet_path("quotas", namespace))
        return answer

    async def set(self, namespace: str, limits: Mapping[str, Any], *, key: str | None = None) -> Json:
        """Set all of its limits; what it holds already stays, even above them.

        Args:
            limits: `gpus`, `gpu_models` (model → count), `cpu`, `memory`, `runs`, `deployments`, `replicas`.
        """
        body = {"limits": dict(limits)}
        answer: Json = await self._session.change("PUT", fleet_path("quotas", namespace), body=body, key=key)
        return answer

    async def remove(self, namespace: str, *, key: str | None = None) -> Json:
        """Unlimited again."""
        answer: Json = await self._session.change("DELETE", fleet_path("quotas", namespace), key=key)
        return answer
