"""The endpoints that people made, as gateways are told of them: one binding a row, kept beside the deployments' routes.

A route to a deployment that is gone, failed or stopped for good is left out while another one has weight, so that its
share goes to the others; where none is left, all stay, and a request is told why. Called by the routing publisher.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moorage.control.gateways import GatewayLease, SilentGateway
from moorage.decide.endpoints import drawn
from moorage.domain.nouns import Endpoint
from moorage.ports import Store
from moorage.wire.routing import Binding, BoundRoute, EndpointRoute, RateLimits

OVER = frozenset({"failed", "stopped"})
"""Modes of a route that answers nothing until a person does something."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far what is published of one endpoint or key has come.

    Args:
        number: generation since which it is as it is; None: it is not published yet.
        version: of the row that was published; 0 of a deployment's own endpoint.
        silent: gateways that are out of reach: whatever they have, they may go on with.
    """

    number: int | None = None
    version: int = 0
    gateways: tuple[GatewayLease, ...] = ()
    silent: tuple[SilentGateway, ...] = ()


class Bindings:
    """Keeps them.

    Args:
        store: where the rows are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, Binding] = {}
        self._versions: dict[str, int] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def version(self, uid: str) -> int:
        """Version of the row that is kept; 0: none is."""
        return self._versions.get(uid, 0)

    def limits(self, uid: str) -> RateLimits | None:
        """What it allows each key; None: there is none called so."""
        kept = self._kept.get(uid)
        return None if kept is None else kept.limits

    async def load(self) -> None:
        """Read them all, in place of what is kept."""
        rows = await self._store.find(Endpoint)
        self._kept = {row.uid: binding(row) for row in rows}
        self._versions = {row.uid: row.version for row in rows}

    async def refresh(self, uid: str) -> bool:
        """Read one again; whether it is another now."""
        row = await self._store.get(Endpoint, uid)
        before = self._kept.pop(uid, None)
        self._versions.pop(uid, None)
        if row is not None:
            self._kept[uid] = binding(row)
            self._versions[uid] = row.version
        return self._kept.get(uid) != before

    def published(self, routes: Mapping[tuple[str, str], EndpointRoute]) -> tuple[Binding, ...]:
        """All of them, without the routes that are passed over.

        Args:
            routes: of the deployments, by namespace and name.
        """
        return tuple(_published(kept, routes) for kept in self._kept.values())


def binding(row: Endpoint) -> Binding:
    """An endpoint as its document says."""
    spec: Mapping[str, Any] = row.spec
    return Binding(
        uid=row.uid,
        namespace=row.namespace,
        name=row.name,
        routes=tuple(BoundRoute(deployment=r["deployment"], weight=r["weight"]) for r in spec["routes"]),
        limits=RateLimits(**dict(spec.get("limits") or {})),
    )


def _published(kept: Binding, routes: Mapping[tuple[str, str], EndpointRoute]) -> Binding:
    weights = {r.deployment: r.weight for r in kept.routes}
    over = {n for n in weights if (route := routes.get((kept.namespace, n))) is None or route.mode in OVER}
    if not over:
        return kept
    names = frozenset(drawn(weights, over))
    return kept.model_copy(update={"routes": tuple(r for r in kept.routes if r.deployment in names)})
