"""The serving loop: one deployment at a time, load → decide → commit.

What to do is decided in `decide/serving/cycle`.
"""

from collections.abc import Iterable
from typing import Any

from moorage.control.routing import NOT_OVER, Publisher
from moorage.decide.decision import Ids
from moorage.decide.serving.cycle import decide
from moorage.decide.serving.phase import OPEN_OPERATION
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.changes import Fence
from moorage.domain.nouns import Deployment, Machine, Operation, Replica, Revision, Run, Worker
from moorage.domain.states import TERMINAL_RUN, RunState
from moorage.ports import Clock, Store

OPEN_RUN = tuple(s for s in RunState if s not in TERMINAL_RUN)


class ServingStep:
    """Loads one deployment, decides and commits.

    Args:
        store, clock, ids: outside.
        publisher: what gateways report and confirmed.
    """

    def __init__(self, store: Store, clock: Clock, ids: Ids, publisher: Publisher) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._publisher = publisher
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
        placed = sorted({w.machine for group in workers.values() for w in group if w.machine})
        machines = await self._store.find(Machine, uid=placed) if placed else []
        return ServingSnapshot(
            now=self._clock.now(),
            deployment=deployment,
            revisions=tuple(await self._store.find(Revision, deployment=uid)),
            replicas=tuple(replicas),
            runs=runs,
            workers=workers,
            operations=tuple(await self._store.find(Operation, target=uid, state=tuple(OPEN_OPERATION))),
            demand=self._publisher.demand(deployment),
            machines={m.uid: m for m in machines if m.draining is not None},
        )
