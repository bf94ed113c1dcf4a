"""The machines loop: leases of machines run out, and their workers with them. Decided in `decide/running/liveness`."""

from collections.abc import Iterable

from moorage.decide.running.liveness import LeaseTimes, watch
from moorage.domain.changes import Fence
from moorage.domain.nouns import Machine, Worker
from moorage.domain.states import ENDED_WORKER, WorkerState
from moorage.ports import Clock, Store

NOT_ENDED = tuple(s for s in WorkerState if s not in ENDED_WORKER)


class MachinesStep:
    """Watches one machine.

    Args:
        store, clock: outside.
        times: when a heartbeat is late and when the lease is over.
    """

    def __init__(self, store: Store, clock: Clock, times: LeaseTimes) -> None:
        self._store = store
        self._clock = clock
        self._times = times
        self.fence: Fence | None = None
        self.safe_from = 0.0
        """no lease expires before this time: start of the leadership plus the time to live"""

    async def everything(self) -> Iterable[str]:
        """Every machine."""
        return [m.uid for m in await self._store.find(Machine)]

    async def __call__(self, uid: str) -> float | None:
        """One machine; returns when its heartbeat would be late or its lease over."""
        machine = await self._store.get(Machine, uid)
        if machine is None:
            return None
        workers = await self._store.find(Worker, machine=uid, state=NOT_ENDED)
        decision = watch(
            machine, workers, self._times, safe_from=self.safe_from, now=self._clock.now(), fence=self.fence
        )
        if decision.change is not None:
            await self._store.commit(decision.change)
        return decision.wake_at
