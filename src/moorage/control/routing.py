"""The routing publisher: one route per deployment, kept from the rows, and the generation that numbers them all.

A generation is (store incarnation, number); the number starts at the leadership's lease generation in its high bits,
so that it rises across restarts without a write of its own. A long-poll is answered the moment the number rises.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from moorage.control.access import AccessRows
from moorage.control.bindings import Bindings, Spread
from moorage.control.gateways import LEASE_S, Aside, Gateways
from moorage.control.load import Loads
from moorage.control.slices import Slices
from moorage.control.usage import UsageIntake
from moorage.decide.serving.exposure import Route, RouteRevision, RouteTarget, route_of
from moorage.decide.serving.gang import fronts
from moorage.decide.serving.snapshot import Demand, Load
from moorage.domain.nouns import Deployment, Replica, Revision, Worker
from moorage.domain.states import ReplicaStatus
from moorage.ports import Clock, Store
from moorage.wire.routing import (
    EndpointRoute,
    GatewayLimits,
    GatewayReport,
    GatewayReportAnswer,
    RateLimits,
    RevisionRoute,
    RoutingTable,
    Target,
)

NOT_OVER = (ReplicaStatus.PENDING, ReplicaStatus.PULLING, ReplicaStatus.INITING, ReplicaStatus.RUNNING)
NUMBER_BITS = 24
"""Changes per leadership before the number would run into the next leadership's; 16 million."""


@dataclass(frozen=True, slots=True)
class _Served:
    """A worker of a replica: the one by which its replica is judged, and which copy of it the rows speak of."""

    front: str
    machine: str
    epoch: int


class Publisher:
    """Keeps and publishes routes.

    Args:
        store, clock: where rows are; long-poll limits.
        gateways: who confirmed what.
        incarnation: of the store.
        on_demand: called with a deployment's uid when traffic or a confirmation changed something about it.
    """

    def __init__(self, store: Store, clock: Clock, gateways: Gateways, incarnation: str) -> None:
        self._store = store
        self._clock = clock
        self._gateways = gateways
        self._incarnation = incarnation
        self._loads = Loads(clock)
        self._bindings = Bindings(store)
        self._access = AccessRows(store)
        self._routes: dict[str, EndpointRoute] = {}
        self._changed_at: dict[str, int] = {}
        self._bound_at: dict[str, int] = {}
        """by endpoint that people made: the number since which it is bound as it is"""
        self._keyed_at: dict[str, int] = {}
        """by key, revoked ones included: the number since which gateways are told of it as it is"""
        self._served_by: dict[str, dict[str, _Served]] = {}
        """by deployment: its replicas' workers as they were read last"""
        self._homes: dict[str, str] = {}
        """worker -> deployment"""
        self._out: dict[str, str] = {}
        """withdrawn by a report that is being dealt with -> the worker of which it speaks"""
        self._reads = 0
        self._read_at: dict[str, int] = {}
        """by deployment: which reading the table has"""
        self._told: dict[str, dict[str, Revision]] = {}
        """by deployment: the revisions of its targets, of which only what never changes is used"""
        self._by_name: dict[tuple[str, str], str] = {}
        self._number = 0
        self._published = False
        self._changed = asyncio.Condition()
        self.on_demand: list[Any] = []
        self.on_report: list[Callable[[GatewayReport], None]] = []
        """called with every report of a gateway"""
        self.slices: Slices | None = None
        """of limits; None: gateways are told none"""
        self.usage: UsageIntake | None = None
        """of clients' keys; None: none is kept"""

    async def start(self, generation: int) -> None:
        """Begin a leadership: read every route, then publish them under its first number."""
        self._published = False
        self._loads.reset()
        self._routes.clear()
        self._by_name.clear()
        self._served_by.clear()
        self._homes.clear()
        self._out.clear()
        for deployment in await self._store.find(Deployment):
            self._take(deployment.uid, await self._load(deployment.uid))
        await self._bindings.load()
        await self._access.load()
        if self.slices is not None:
            await self.slices.start(generation)
        self._number = max(self._number + 1, generation << NUMBER_BITS)
        self._changed_at = dict.fromkeys(self._routes, self._number)
        self._bound_at = dict.fromkeys(self._bindings, self._number)
        self._keyed_at = dict.fromkeys(self._access, self._number)
        self._published = True
        await self._tell()

    async def refresh(self, deployment: str) -> None:
        """Recompute one deployment's route; a change raises the number at once."""
        self._reads += 1
        begun = self._reads
        route = await self._load(deployment)
        if begun < self._read_at.get(deployment, 0):
            return  # what was read after it is in the table already
        self._read_at[deployment] = begun
        before = self._routes.get(deployment)
        self._take(deployment, route)
        if before == self._routes.get(deployment) or not self._published:
            return
        self._number += 1
        self._changed_at[deployment] = self._number
        await self._tell()

    async def rebind(self, endpoint: str) -> None:
        """Read an endpoint that people made again, by its uid; a change raises the number at once."""
        if not await self._bindings.refresh(endpoint) or not self._published:
            return
        self._number += 1
        self._bound_at[endpoint] = self._number
        await self._tell()

    async def readmit(self, rule: str) -> None:
        """Read who may ask, or how much, again; a change raises the number at once.

        Args:
            rule: `KIND UID` of the row that says it.
        """
        kind, uid = rule.split(" ", 1)
        if not await self._access.refresh(kind, uid) or not self._published:
            return
        self._number += 1
        self._keyed_at.pop(uid, None)
        if self._access.version(uid):
            self._keyed_at[uid] = self._number
        await self._tell()

    def limits(self, subject: str) -> RateLimits | None:
        """Limits as they are published, of `namespace/NAME`, `key/UID` or `endpoint/UID`."""
        kind, _, name = subject.partition("/")
        return self._bindings.limits(name) if kind == "endpoint" else self._access.limits(subject)

    def spread(self, uid: str) -> Spread:
        """How far what is published of a key, a deployment's own endpoint, or one that people made, has come."""
        of_all = (self._bound_at, self._keyed_at, self._changed_at)
        number = next((at[uid] for at in of_all if uid in at), None) if self._published else None
        version = self._bindings.version(uid) or self._access.version(uid)
        return Spread(number, version, self._gateways.leases(), self._gateways.silent())

    async def withdraw(self, worker: str, machine: str, epoch: int) -> str | None:
        """Take a worker that is said to end, or not to be ready, out of the table before anything is read or written.

        It stays out, whatever is read meanwhile, until `settle` is called.

        Args:
            machine, epoch: of the copy that it is said of; of another one nothing is withdrawn.

        Returns:
            The deployment that was touched, None where nothing was routed there.
        """
        uid = self._homes.get(worker)
        served = self._served_by.get(uid, {}).get(worker) if uid is not None else None
        route = self._routes.get(uid) if uid is not None else None
        if uid is None or route is None or served is None or (served.machine, served.epoch) != (machine, epoch):
            return None
        self._out[served.front] = worker
        after = self._without_those_out(route)
        if after is route:
            del self._out[served.front]
            return None
        self._routes[uid] = after
        self._number += 1
        self._changed_at[uid] = self._number
        await self._tell()
        return uid

    async def settle(self, deployment: str, worker: str) -> None:
        """What was said of that worker is written, or was out of date: rows tell again who serves."""
        for front in [front for front, said_of in self._out.items() if said_of == worker]:
            del self._out[front]
        await self.refresh(deployment)

    def _without_those_out(self, route: EndpointRoute) -> EndpointRoute:
        left = tuple(t for t in route.targets if t.worker not in self._out)
        if len(left) == len(route.targets):
            return route
        mode = "starting" if route.mode == "serve" and not left else route.mode
        return route.model_copy(update={"targets": left, "mode": mode})

    def _take(self, uid: str, route: EndpointRoute | None) -> None:
        before = self._routes.get(uid)
        if route is not None:
            self._by_name[route.namespace, route.name] = uid
            self._routes[uid] = self._without_those_out(route) if self._out else route
        elif before is not None:
            del self._routes[uid]
            if self._by_name.get((before.namespace, before.name)) == uid:
                del self._by_name[before.namespace, before.name]

    async def _load(self, uid: str) -> EndpointRoute | None:
        """The route as the rows are now; None: there is no such deployment."""
        deployment = await self._store.get(Deployment, uid)
        if deployment is None:
            self._remember(uid, {})
            del self._served_by[uid]
            self._told.pop(uid, None)
            return None
        replicas = await self._store.find(Replica, deployment=uid, status=NOT_OVER)
        runs = [r.run for r in replicas]
        found = await self._store.find(Worker, run=runs) if runs else []
        workers = fronts(found)
        named = (
            [r for r in (deployment.active_revision, deployment.candidate_revision) if r] if deployment.rollout else []
        )
        revisions = await self._store.find(Revision, uid=named) if named else []
        route = route_of(deployment, replicas, workers, revisions)
        self._remember(uid, {w.uid: _Served(workers[w.run].uid, w.machine or "", w.epoch) for w in found})
        return message(deployment, route, await self._revisions_of(uid, route))

    async def _revisions_of(self, uid: str, route: Route) -> dict[str, Revision]:
        """The revisions of the targets; one that was read is not read again."""
        wanted = {t.replica.revision for t in route.targets}
        known = {r: row for r, row in self._told.get(uid, {}).items() if r in wanted}
        missing = sorted(r for r in wanted - known.keys() if r)
        if missing:
            known |= {row.uid: row for row in await self._store.find(Revision, uid=missing)}
        self._told[uid] = known
        return known

    def _remember(self, uid: str, served: dict[str, "_Served"]) -> None:
        for worker in self._served_by.get(uid, {}):
            self._homes.pop(worker, None)
        self._served_by[uid] = served
        self._homes.update(dict.fromkeys(served, uid))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def table(self, incarnation: str | None, after: int, wait_s: float, access: int = 0) -> RoutingTable | None:
        """The newest table, or None when nothing newer came within `wait_s` seconds.

        Args:
            access: number of the rules that the gateway has of this incarnation: the table leaves them out.
        """
        if not self._news(incarnation, after):
            try:
                async with asyncio.timeout(wait_s), self._changed:
                    await self._changed.wait_for(lambda: self._news(incarnation, after))
            except TimeoutError:
                return None
        rules = self._access.published(self._number)
        return RoutingTable(
            incarnation=self._incarnation,
            number=self._number,
            lease_s=LEASE_S,
            endpoints=tuple(self._routes.values()),
            access=None if incarnation == self._incarnation and access == rules.number else rules,
            bindings=self._bindings.published({(r.namespace, r.name): r for r in self._routes.values()}),
        )

    def _news(self, incarnation: str | None, after: int) -> bool:
        return self._published and (incarnation != self._incarnation or after < self._number)

    async def report(self, message: GatewayReport) -> GatewayReportAnswer:
        """Take a gateway's report in and tell the serving loop about every deployment that it may concern."""
        news = await self._gateways.heard(message)
        self._loads.heard(message)
        for take in self.on_report:
            take(message)
        touched = {uid for name in news.endpoints if (uid := self._by_name.get(name)) is not None}
        # One that says goodbye is waited for no longer, whatever it had confirmed.
        reached = self._number if message.leaving else message.table_number
        if (message.leaving or message.table_incarnation == self._incarnation) and reached > news.previous:
            touched |= {u for u, n in self._changed_at.items() if news.previous < n <= reached}
        for uid in touched:
            for hook in self.on_demand:
                hook(uid)
        answer = GatewayReportAnswer(lease_s=LEASE_S, number=self._number)
        if self.slices is not None:
            answer = await self.slices.answer(message, answer)
        kept = None if self.usage is None else await self.usage.take(message)
        return answer if kept is None else answer.model_copy(update={"usage_sequence": kept})

    def demand(self, deployment: Deployment) -> Demand:
        """Traffic of the deployment's endpoint, with what is published of it and whether that is confirmed."""
        demand = self._gateways.demand(deployment.namespace, deployment.name)
        route = self._routes.get(deployment.uid)
        number = self._changed_at.get(deployment.uid, self._number)
        return replace(
            demand,
            published_mode=route.mode if route else None,
            published_targets=frozenset(t.replica for t in route.targets) if route else frozenset(),
            confirmed=self._gateways.confirmed(number),
            gateways=self._gateways.confirmations(number),
        )

    def aside(self, deployment: Deployment) -> list[Aside]:
        """Its replicas to which gateways send nothing now."""
        return self._gateways.aside(deployment.namespace, deployment.name)

    def url(self, gateway: str) -> str | None:
        """Where clients reach a gateway, as it says itself."""
        return self._gateways.url(gateway)

    def load(self, deployment: Deployment) -> Load:
        """Its load over the windows of its autoscaler; nothing of one that does not scale."""
        return self._loads.of(deployment, known=self._gateways.known())


def message(deployment: Deployment, route: Route, revisions: Mapping[str, Revision]) -> EndpointRoute:
    """A route as gateways are told it.

    Args:
        revisions: of the targets, by uid: where nothing is being compared, gateways still know them by number.
    """
    spec: Mapping[str, Any] = deployment.spec
    model: Mapping[str, Any] = spec.get("model") or {}
    gateway: Mapping[str, Any] = spec.get("gateway") or {}
    defaults = GatewayLimits()
    return EndpointRoute(
        namespace=deployment.namespace,
        name=deployment.name,
        deployment=deployment.uid,
        mode=route.mode,
        model=model.get("id"),
        aliases=tuple(model.get("aliases") or ()),
        targets=tuple(_target(t) for t in route.targets),
        limits=GatewayLimits(
            max_in_flight=gateway.get("max_in_flight", defaults.max_in_flight),
            max_queue=gateway.get("max_queue", defaults.max_queue),
            queue_timeout_s=gateway.get("queue_timeout", defaults.queue_timeout_s),
            drain_s=gateway.get("drain", defaults.drain_s),
            connect_timeout_s=gateway.get("connect_timeout", defaults.connect_timeout_s),
            first_byte_timeout_s=gateway.get("first_byte_timeout", defaults.first_byte_timeout_s),
            affinity=gateway.get("affinity", defaults.affinity),
            retry=gateway.get("retry", defaults.retry),
            hold_comments_s=gateway.get("hold_comments", defaults.hold_comments_s),
        ),
        error=route.error,
        error_code=route.error_code,
        wake_failures=deployment.wake_failures,
        revisions=tuple(_revision(r) for r in route.revisions or map(RouteRevision, revisions.values())),
        evidence_id=route.evidence_id,
    )


def _revision(route: RouteRevision) -> RevisionRoute:
    row = route.revision
    return RevisionRoute(
        revision=row.uid, number=row.number, name=row.name, role=route.role, by=route.by, share=route.share
    )


def _target(target: RouteTarget) -> Target:
    host, _, port = str(target.worker.address).rpartition(":")
    return Target(
        replica=target.replica.uid,
        worker=target.worker.uid,
        machine=target.worker.machine or "",
        revision=target.replica.revision,
        host=host,
        port=int(port),
    )
