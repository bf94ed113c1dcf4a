"""The serving loop: one deployment at a time, load → decide → commit.

What to do is decided in `decide/serving/cycle`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from moorage.control.routing import NOT_OVER, Publisher
from moorage.decide.decision import Ids
from moorage.decide.serving.cycle import decide
from moorage.decide.serving.phase import OPEN_OPERATION
from moorage.decide.serving.rollout.closing import ENDED
from moorage.decide.serving.rollout.record import rollout_of
from moorage.decide.serving.snapshot import Holder, ServingSnapshot
from moorage.domain.changes import Fence
from moorage.domain.nouns import Deployment, Machine, Operation, Replica, Revision, Run, Worker
from moorage.domain.states import (
    ENDED_WORKER,
    TERMINAL_RUN,
    DeploymentStatus,
    MachineState,
    RunState,
    WorkerState,
)
from moorage.ports import Clock, Lease, Store

NOT_ENDED = tuple(s for s in WorkerState if s not in ENDED_WORKER)
OPEN_RUN = tuple(s for s in RunState if s not in TERMINAL_RUN)


def _nobody() -> Lease | None:
    return None


REVISIONS_SEEN = 32
"""Newest revisions that a decision looks at: enough to prove gone what ended, however many there were in years."""


class ServingStep:
    """Loads one deployment, decides and commits.

    Args:
        store, clock, ids: outside.
        publisher: what gateways report and confirmed.
        lease: the control plane's own lease as last renewed, under which operations are held; None while it has none.
    """

    def __init__(
        self, store: Store, clock: Clock, ids: Ids, publisher: Publisher, lease: Callable[[], Lease | None] = _nobody
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._publisher = publisher
        self._lease = lease
        self.fence: Fence | None = None

    async def everything(self) -> Iterable[str]:
        """Every deployment."""
        return [d.uid for d in await self._store.find(Deployment)]

    async def __call__(self, uid: str) -> float | None:
        """One deployment; returns when to look again."""
        snapshot = await self.load(uid)
        if snapshot is None:
            return None
        decision = decide(snapshot, self._ids, self.fence)
        if decision.change is not None:
            await self._store.commit(decision.change)
        return decision.wake_at

    async def load(self, uid: str) -> ServingSnapshot | None:
        """Everything about one deployment that a decision reads."""
        deployment = await self._store.get(Deployment, uid)
        if deployment is None:
            return None
        where: dict[str, Any] = {} if deployment.deleting else {"status": NOT_OVER}
        replicas = await self._store.find(Replica, deployment=uid, **where)
        uids = [r.run for r in replicas]
        runs = {r.uid: r for r in await self._store.find(Run, uid=uids)} if uids else {}
        workers: dict[str, tuple[Worker, ...]] = {}
        for worker in await self._store.find(Worker, run=uids) if uids else ():
            workers[worker.run] = (*workers.get(worker.run, ()), worker)
        for worker in await self._left_behind(deployment, uids):
            workers[worker.run] = (*workers.get(worker.run, ()), worker)
        placed = sorted({w.machine for group in workers.values() for w in group if w.machine})
        machines = await self._store.find(Machine, uid=placed) if placed else []
        lost, held = await self._unseen(deployment, machines)
        operations = tuple(await self._store.find(Operation, target=uid, state=tuple(OPEN_OPERATION)))
        revisions = await self._revisions(deployment, operations)
        return ServingSnapshot(
            now=self._clock.now(),
            deployment=deployment,
            revisions=revisions,
            replicas=tuple(replicas),
            runs=runs,
            workers=workers,
            operations=operations,
            demand=self._publisher.demand(deployment),
            load=self._publisher.load(deployment),
            machines={m.uid: m for m in machines if m.draining is not None},
            holder=self._holder(),
            lost=lost,
            held=held,
            leftovers=await self._leftovers(revisions),
        )

    async def _left_behind(self, deployment: Deployment, runs: Iterable[str]) -> list[Worker]:
        """Members of gangs that ended, which are still being stopped: a deployment is stopped when they are gone."""
        if deployment.status is not DeploymentStatus.STOPPED or deployment.deleting:
            return []
        going = await self._store.find(Worker, deployment=deployment.uid, state=NOT_ENDED)
        return [w for w in going if w.run not in set(runs)]

    async def _revisions(self, deployment: Deployment, operations: Iterable[Operation]) -> tuple[Revision, ...]:
        """The newest ones, and whatever older ones are named by something; all of one that is being deleted."""
        if deployment.deleting:
            return tuple(await self._store.find(Revision, deployment=deployment.uid))
        newest = await self._store.find(Revision, deployment=deployment.uid, order="-uid", limit=REVISIONS_SEEN)
        known = {r.uid: r for r in newest}
        rollout = rollout_of(deployment)
        named = {deployment.active_revision, deployment.candidate_revision, deployment.previous_revision}
        named |= {o.revision for o in operations} | ({rollout.candidate, rollout.baseline} if rollout else set())
        older = sorted(uid for uid in named if uid and uid not in known)
        known |= {r.uid: r for r in (await self._store.find(Revision, uid=older) if older else ())}
        return tuple(sorted(known.values(), key=lambda r: r.number))

    async def _leftovers(self, revisions: Iterable[Revision]) -> frozenset[str]:
        """Revisions that ended and of which a worker may still be there; read only until they are proven gone."""
        ended = [r.uid for r in revisions if r.state in ENDED and not r.capacity_gone]
        if not ended:
            return frozenset()
        replicas = {r.run: r.revision for r in await self._store.find(Replica, revision=ended)}
        workers = await self._store.find(Worker, run=sorted(replicas)) if replicas else ()
        return frozenset(replicas[w.run] for w in workers if w.handed_over or w.state not in ENDED_WORKER)

    def _holder(self) -> Holder | None:
        lease = self._lease()
        return None if lease is None else Holder(lease.owner, lease.generation, lease.expires_at)

    async def _unseen(
        self, deployment: Deployment, machines: Iterable[Machine]
    ) -> tuple[dict[str, Machine], frozenset[str]]:
        """Of a deployment being deleted: machines that cannot say what they run, and whose places are still held."""
        if not deployment.deleting:
            return {}, frozenset()
        lost = {m.uid: m for m in machines if m.state is MachineState.DOWN}
        places = [hold for m in machines for hold in await self._store.holdings(m.uid)]
        return lost, frozenset(str(hold["worker"]) for hold in places)
