"""All loops of one control plane, and the dispatcher that turns the change feed into marks.

The feed is the only wake-up: what this process or another one committed arrives here once, in order, and marks the
keys it concerns. Routes are refreshed first, so that a crash is withdrawn before it is replaced.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from typing import Protocol

import structlog

from moorage.control.comparing import Comparing
from moorage.control.cycle import KeyedLoop
from moorage.control.machines import MachinesStep
from moorage.control.routing import Publisher
from moorage.control.running import RESYNC_S, RunsStep
from moorage.control.scheduling import FLEET, SchedulingStep
from moorage.control.serving import ServingStep
from moorage.control.upstreams import UpstreamsStep
from moorage.control.work import WorkBoard
from moorage.decide.scheduling.cycle import ACTOR as SCHEDULING_ACTOR
from moorage.decide.serving.cycle import ACTOR as SERVING_ACTOR
from moorage.domain.changes import Fence, HistoryRow
from moorage.domain.errors import MoorageError
from moorage.domain.nouns import Deployment, Endpoint, Key, Machine, Namespace, Worker
from moorage.domain.states import ACTIVE_WORKER, ENDED_WORKER, WorkerState
from moorage.ports import Clock, Store

DEPLOYMENTS_RESYNC_S = 1800.0
"""A look at every deployment costs 2 to 3 ms of CPU, so that of 1,000 of them a resync each half hour costs under 0.2 %
of a core. Nothing relies on it: what can happen without a row in the feed has a deadline of its own."""

ROUTED_BY = frozenset({"Deployment", "Replica", "Worker"})
"""Kinds of rows that a route is made of."""

OURS = frozenset({SERVING_ACTOR, SCHEDULING_ACTOR})
MOVES_WORK = frozenset({"machine.draining", "machine.uncordoned"})
"""News of a machine that concern the deployments with a replica there."""

UPSTREAM_NEWS = frozenset({"deploy.adopted", "deploy.stopped", "deploy.deleting"})
"""News of a deployment after which a server that somebody else started is looked at, or ended."""

BEATS = frozenset({WorkerState.RUNNING, WorkerState.STALE, WorkerState.DOWN})
"""States in which a worker's heartbeat is of interest."""

ECHO_S = 0.05
"""A new worker, or its placement, is looked at by the serving loop and the runs loop after this: that look rarely asks
for more, and the placement and the start that are under way should not wait behind it."""

log = structlog.get_logger("moorage.control")


class _Fenced(Protocol):
    """A step, which writes only under the leadership that it is given."""

    fence: Fence | None


async def _nothing() -> None:
    """No check."""


class Loops:
    """Runs while this process leads.

    Args:
        store, clock: outside.
        publisher, board: told of changes too.
        serving, runs, scheduling, machines, upstreams: the steps.
        comparing: the loops of revisions that are compared.
        ttl_s: a machine's time to live, for the grace after taking over.
        check: awaited once at the start of a leadership, beside the loops: says in the log what does not agree.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        publisher: Publisher,
        board: WorkBoard,
        serving: ServingStep,
        runs: RunsStep,
        scheduling: SchedulingStep,
        machines: MachinesStep,
        upstreams: UpstreamsStep | None = None,
        comparing: Comparing | None = None,
        ttl_s: float,
        check: Callable[[], Awaitable[object]] = _nothing,
    ) -> None:
        self._store = store
        self._clock = clock
        self._publisher = publisher
        self._board = board
        self._ttl_s = ttl_s
        self._check = check
        self._steps: tuple[_Fenced, ...] = (serving, runs, scheduling, machines)
        self._routing = KeyedLoop("routing", self._refresh, clock, serving.everything, resync_s=DEPLOYMENTS_RESYNC_S)
        self._access = KeyedLoop("access", publisher.readmit, clock, self._rules, resync_s=DEPLOYMENTS_RESYNC_S)
        self._binding = KeyedLoop("binding", publisher.rebind, clock, self._endpoints, resync_s=DEPLOYMENTS_RESYNC_S)
        self._serving = KeyedLoop("serving", serving, clock, serving.everything, resync_s=DEPLOYMENTS_RESYNC_S)
        self._runs = KeyedLoop("runs", runs, clock, runs.everything, resync_s=RESYNC_S)
        self._runs_step = runs
        runs.later = self._runs.mark_later
        self._scheduling_step = scheduling
        self._scheduling = KeyedLoop("scheduling", scheduling, clock, scheduling.everything)
        self._machines = KeyedLoop("machines", machines, clock, machines.everything)
        self._machines_step = machines
        publisher.on_demand.append(self._serving.mark)
        self._comparing = comparing
        if comparing is not None:
            comparing.decide = self._serving.mark
        self._upstreams: KeyedLoop | None = None
        if upstreams is not None:
            self._steps = (*self._steps, upstreams)
            self._upstreams = KeyedLoop(
                "upstreams", upstreams, clock, upstreams.everything, resync_s=DEPLOYMENTS_RESYNC_S
            )
            self._upstreams_step = upstreams
            publisher.on_demand.append(self._drains)

    async def run(self, fence: Fence) -> None:
        """Lead: publish the routes, then follow the feed and step what it marks. Runs until cancelled or fenced."""
        for step in self._steps:
            step.fence = fence
        if self._comparing is not None:
            self._comparing.fenced(fence)
        self._machines_step.safe_from = self._clock.now() + self._ttl_s
        after = await self._store.cursor()
        self._scheduling_step.keeper.doubt()
        self._scheduling_step.keeper.following = True
        await self._publisher.start(fence.generation)
        loops = [self._routing, self._access, self._binding]
        loops += [self._serving, self._runs, self._scheduling, self._machines]
        loops += [self._upstreams] if self._upstreams is not None else []
        loops += self._comparing.loops if self._comparing is not None else ()
        tasks = [asyncio.ensure_future(loop.run()) for loop in loops]
        tasks.append(asyncio.ensure_future(self._follow(after)))
        checking = asyncio.ensure_future(self._checked())
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._scheduling_step.keeper.following = False
            for task in (*tasks, checking):
                task.cancel()
            await asyncio.gather(*tasks, checking, return_exceptions=True)

    async def _rules(self) -> list[str]:
        """Rows that say who may ask, or how much."""
        keys, namespaces = await self._store.find(Key), await self._store.find(Namespace)
        return [f"{row.kind} {row.uid}" for row in (*keys, *namespaces)]

    async def _endpoints(self) -> list[str]:
        """Those that people made."""
        return [row.uid for row in await self._store.find(Endpoint)]

    def _drains(self, uid: str) -> None:
        """News of a deployment's traffic: of interest to an adopted server only while its end waits for them."""
        if self._upstreams is not None and uid in self._upstreams_step.draining:
            self._upstreams.mark(uid)

    async def _checked(self) -> None:
        """A check that fails is a line in the log: nothing waits for it."""
        try:
            await self._check()
        except MoorageError as cause:
            log.warning("the ledger of GPUs could not be checked", why=cause.message)

    async def _refresh(self, uid: str) -> None:
        await self._publisher.refresh(uid)

    def freed(self) -> None:
        """A place came free of which no row tells."""
        self._scheduling_step.keeper.doubt()
        self._scheduling.mark(FLEET)

    def look_again(self) -> None:
        """Something that waiting work may need is there now, which no row in the feed tells (a drive)."""
        self._scheduling_step.keeper.doubt()
        self._scheduling.mark(FLEET)

    def heard(self, machine: str) -> None:
        """A machine joined, reconciled or was heard again: its deadline moved."""
        self._machines.mark(machine)
        self._scheduling_step.keeper.heard(machine)

    async def _follow(self, after: str) -> None:
        async for rows in self._store.follow(after):
            self._scheduling_step.keeper.note(rows)
            if any(_moves_places(r) or r.object_kind == Namespace.kind for r in rows):
                self._scheduling.mark(FLEET)  # first: a replacement waits for its place, everything else can follow
            self._mark_roots(rows)
            self._mark_runs(self._runs_step.concerned_by(rows), self._runs_step.only_begun(rows))
            await self._mark_workers({r.object_uid for r in rows if r.object_kind == Worker.kind})
            machines = {r.object_uid for r in rows if r.object_kind == Machine.kind}
            for uid in machines:
                self._machines_step.look_again(uid)
                self._machines.mark(uid)
                self._scheduling.mark(FLEET)
                self._board.bump_soon(uid)
            if any(r.reason.code in MOVES_WORK for r in rows):
                for worker in await self._store.find(Worker, machine=sorted(machines)):
                    if worker.deployment is not None and worker.state not in ENDED_WORKER:
                        self._serving.mark(worker.deployment)
            if machines:
                self._mark_runs(await self._runs_step.concerned_by_machines(machines))

    def _mark_runs(self, uids: Iterable[str], begun: Container[str] = ()) -> None:
        """Each at its own pace, so that many workers that end together are seen together.

        Args:
            begun: those that only begin, so that the scheduler's word about them is waited for.
        """
        for uid in uids:
            pace_s = self._runs_step.pace_s(uid) or (ECHO_S if uid in begun else 0.0)
            if pace_s:
                self._runs.mark_later(uid, pace_s)
            else:
                self._runs.mark(uid)

    def _mark_roots(self, rows: Sequence[HistoryRow]) -> None:
        news = [r for r in rows if _of_deployment(r)]
        for root in {r.root for r in news if r.object_kind in ROUTED_BY}:
            self._routing.mark(root)
        for row in rows:
            if row.object_kind in (Key.kind, Namespace.kind):
                self._access.mark(f"{row.object_kind} {row.object_uid}")
            if row.object_kind == Endpoint.kind:
                self._binding.mark(row.object_uid)
        if self._comparing is not None:
            self._comparing.heard(news)
        for row in news:
            if self._upstreams is not None and row.reason.code in UPSTREAM_NEWS:
                self._upstreams.mark(row.root)
        for root in {r.root for r in news}:
            if _only_starts([r for r in news if r.root == root]):
                self._serving.mark_later(root, ECHO_S)
            else:
                self._serving.mark(root)

    async def _mark_workers(self, uids: Iterable[str]) -> None:
        """Machines whose desired set changed."""
        wanted = sorted(uids)
        if not wanted:
            return
        for worker in await self._store.find(Worker, uid=wanted):
            if worker.machine is not None:
                self._board.bump_soon(worker.machine)
                self._mark_machine(worker)

    def _mark_machine(self, worker: Worker) -> None:
        """A worker whose beats are to be watched from now on, or the end of one where ends are waited for."""
        assert worker.machine is not None
        if worker.state in BEATS or self._machines_step.attends(worker.machine):
            self._machines_step.look_again(worker.machine)
            self._machines.mark(worker.machine)


def _moves_places(row: HistoryRow) -> bool:
    """Whether a row may mean that a place is free, or wanted: not where the scheduler tells a worker why it waits."""
    if row.object_kind != Worker.kind or row.to in ACTIVE_WORKER:
        return False
    return not (row.actor == SCHEDULING_ACTOR and row.kind == "note" and row.reason.code != "worker.placed")


def _only_starts(rows: Sequence[HistoryRow]) -> bool:
    """Whether all this is the loops' own word that a worker was made or placed."""
    ours = all(r.actor in OURS for r in rows)
    return ours and any(
        r.object_kind == Worker.kind and (r.source is None or r.reason.code == "worker.placed") for r in rows
    )


def _of_deployment(row: HistoryRow) -> bool:
    """Rows whose root is a deployment: the deployment itself and everything under it."""
    return row.root.startswith("dep-") or row.object_kind == Deployment.kind
