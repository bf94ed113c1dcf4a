"""Endpoints that people make: the orders about them, and the questions. `decide/endpoints` says what they mean.

An apply is answered once it is durable; the feed then brings it to the publisher, and `generation` of the object says
since when it is in gateways' tables. Called by the API's routes; `namings` also by the
admission of deployments.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from moorage.control.bindings import Spread
from moorage.control.carrying import Answer, Carrier
from moorage.control.paging import Page
from moorage.control.reading import Reader
from moorage.control.submitted import checked_spec
from moorage.control.views import JsonObject
from moorage.control.views_endpoints import (
    EndpointScene,
    delete_object,
    endpoint_object,
    own_endpoint_object,
    plan_object,
    why_object,
)
from moorage.decide import endpoints
from moorage.decide.decision import Ids, Outcome
from moorage.decide.endpoints import EndpointIntent, KnownEndpoint, Naming, passed_over, routes_of
from moorage.decide.running.commands import is_over
from moorage.domain.errors import Conflict, NotFound
from moorage.domain.nouns import Deployment, Endpoint, Key, Run
from moorage.ports import Clock, Store


class Endpoints:
    """What there is, and the orders about it.

    Args:
        store, clock, ids: outside.
        reader: shows the deployments behind them, and where clients reach the gateway.
        spread: how far what is published of a uid has come, as this control plane knows; None: it does not route.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        *,
        reader: Reader,
        spread: Callable[[str], Spread] | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._reader = reader
        self._spread = spread
        self._carry = Carrier(store)

    # Orders

    async def apply(
        self, ns: str, name: str, document: Mapping[str, Any], *, actor: str, key: str | None, create_only: bool
    ) -> Answer:
        """Make it so: {endpoint, changed, warnings}."""
        intent = _intent(ns, name, document)

        async def decide() -> Outcome:
            known, now = await self._known(intent), self._clock.now()
            return endpoints.apply(intent, known, self._ids, now, actor=actor, create_only=create_only)

        return await self._carry(ns, key, {"apply endpoint": name, "spec": intent.spec}, decide)

    async def bind(
        self, ns: str, name: str, routes: Sequence[Mapping[str, Any]], *, actor: str, key: str | None
    ) -> Answer:
        """Other routes, the rest of it as it is; made where there is none: as `apply`."""
        plain = [dict(route) for route in routes]
        first = _intent(ns, name, {"kind": "Endpoint", "name": name, "namespace": ns, "routes": plain})

        async def decide() -> Outcome:
            known, now = await self._known(first), self._clock.now()
            document = endpoints.bound_anew(known, first.spec["routes"]) or first.spec
            return endpoints.apply(EndpointIntent(ns, name, document), known, self._ids, now, actor=actor)

        return await self._carry(ns, key, {"bind endpoint": name, "routes": first.spec["routes"]}, decide)

    async def plan(self, ns: str, name: str, document: Mapping[str, Any]) -> Answer:
        """What an apply would do: a Plan object.

        Raises:
            Conflict: the name is taken, so that an apply would be refused; the same error.
        """
        intent = _intent(ns, name, document)
        known = await self._known(intent)
        endpoints.refuse_namesake(intent, known)
        return plan_object(intent, known, await self._scene(ns, [n for n, _ in routes_of(intent.spec)]))

    async def delete(self, ns: str, name: str, *, actor: str, key: str | None) -> Answer:
        """Take it away: {endpoint, deleted}."""

        async def decide() -> Outcome:
            row = await self._made(ns, name)
            there = await self._deployments(ns, [n for n, _ in routes_of(row.spec)])
            return endpoints.delete(row, there, self._clock.now(), actor=actor)

        return await self._carry(ns, key, {"delete endpoint": name}, decide)

    async def delete_dry_run(self, ns: str, name: str) -> Answer:
        """What a delete would touch: a DryRun object."""
        row = await self._made(ns, name)
        keys = await self._store.find(Key, namespace=ns)
        there = await self._deployments(ns, [n for n, _ in routes_of(row.spec)])
        return delete_object(row, sorted(there), sorted(k.name for k in keys if row.name in k.endpoints))

    # Questions

    async def listed(self, ns: str, wanted: Page, *, own: bool = False) -> JsonObject:
        """One page of those that people made; with `own`, of those that deployments have of their own as well."""
        kinds: tuple[type[Endpoint] | type[Deployment], ...] = (Endpoint, Deployment) if own else (Endpoint,)
        rows: list[Endpoint | Deployment] = []
        for kind in kinds:
            rows += await self._store.find(kind, namespace=ns)
        rows = [r for r in rows if all(label.matches(r.labels) for label in wanted.labels)]
        rows = sorted((r for r in rows if r.uid > (wanted.after or "")), key=lambda r: r.uid)
        page, more = rows[: wanted.limit], len(rows) > wanted.limit
        page_end = page[-1].uid if more else None
        shown = await self._objects(ns, page)
        return {"items": sorted(shown, key=lambda e: (e["own"], e["name"], e["id"])), "next": page_end}

    async def get(self, ns: str, name: str) -> JsonObject:
        """One of them, or a deployment's own (`own` is true).

        Raises:
            NotFound: nothing is reached by that name.
        """
        try:
            row: Endpoint | Deployment = await self._reader.find(Endpoint, ns, name)
        except NotFound as none:
            try:
                row = await self._reader.find(Deployment, ns, name)
            except NotFound:
                raise none from None
        return (await self._objects(ns, [row]))[0]

    async def why(self, ns: str, name: str) -> JsonObject:
        """Which deployments answer for it: a Why object."""
        return why_object((await self._objects(ns, [await self._reader.find(Endpoint, ns, name)]))[0])

    # Loading

    async def _made(self, ns: str, name: str) -> Endpoint:
        """The one that people made.

        Raises:
            NotFound: there is none.
            Conflict: that is a deployment's own.
        """
        try:
            return await self._reader.find(Endpoint, ns, name)
        except NotFound:
            if await self._store.find(Deployment, namespace=ns, name=name):
                raise Conflict(
                    f"{ns}/{name} is the endpoint that the deployment {name} has of its own",
                    code="endpoint_own",
                    remedy=f"it goes with the deployment (moor delete {name})",
                    target=f"Deployment {ns}/{name}",
                ) from None
            raise

    async def _known(self, intent: EndpointIntent) -> KnownEndpoint:
        ns, name = intent.namespace, intent.name
        row = next(iter(await self._store.find(Endpoint, namespace=ns, name=name)), None)
        named = {name, *(n for n, _ in routes_of(intent.spec)), *(n for n, _ in routes_of(row.spec if row else {}))}
        there = await self._deployments(ns, named)
        if any(n not in there for n, _ in routes_of(intent.spec)):
            there = {d.name: d for d in await self._store.find(Deployment, namespace=ns)}  # for the nearest name
        runs = await self._store.find(Run, namespace=ns, name=name, deployment=None)
        return KnownEndpoint(row, there, next((r for r in runs if not is_over(r)), None))

    async def _deployments(self, ns: str, names: Iterable[str]) -> dict[str, Deployment]:
        wanted = sorted(set(names))
        return {d.name: d for d in await self._store.find(Deployment, namespace=ns, name=wanted)}

    async def _objects(self, ns: str, rows: Sequence[Endpoint | Deployment]) -> list[JsonObject]:
        named = [
            name
            for row in rows
            for name in ([row.name] if isinstance(row, Deployment) else [n for n, _ in routes_of(row.spec)])
        ]
        scene = await self._scene(ns, named)
        return [self._object(row, scene) for row in rows]

    def _object(self, row: Endpoint | Deployment, scene: EndpointScene) -> JsonObject:
        spread = self._spread(row.uid) if self._spread is not None else Spread()
        seen = EndpointScene(scene.deployments, scene.gateway_url, scene.now, scene.over, spread)
        return own_endpoint_object(row, seen) if isinstance(row, Deployment) else endpoint_object(row, seen)

    async def _scene(self, ns: str, names: Iterable[str]) -> EndpointScene:
        wanted = sorted(set(names))
        rows = await self._deployments(ns, wanted)
        shown = await self._reader.deployment_objects(list(rows.values()))
        over = {name: why for name in wanted if (why := passed_over(rows.get(name))) is not None}
        return EndpointScene({d["name"]: d for d in shown}, self._reader.gateway_url, self._clock.now(), over)


async def namings(store: Store, deployment: Deployment) -> list[Naming]:
    """The endpoints that name a deployment."""
    rows = await store.find(Endpoint, namespace=deployment.namespace)
    held = [row for row, _ in endpoints.naming(deployment.name, rows)]
    if not held:
        return []
    names = sorted({name for row in held for name, _ in routes_of(row.spec)})
    there = await store.find(Deployment, namespace=deployment.namespace, name=names)
    return endpoints.namings(deployment, held, {d.name: d for d in there})


def _intent(ns: str, name: str, document: Mapping[str, Any]) -> EndpointIntent:
    return EndpointIntent(ns, name, checked_spec("Endpoint", ns, name, document, verb="apply"))
