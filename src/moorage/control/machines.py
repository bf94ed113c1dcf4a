"""The machines loop: leases of machines run out, and their workers with them. Decided in `decide/running/liveness`.

The loop watches its own clocks too: every step notes when it ran and when the next was due, and a process that was
suspended or starved judges no machine by the silence of that time.
"""

from collections.abc import Iterable

import structlog

from moorage.decide.running.liveness import LeaseTimes, Tick, away, expired, watch
from moorage.domain.changes import Fence
from moorage.domain.nouns import Machine, Worker
from moorage.domain.states import ENDED_WORKER, WorkerState
from moorage.ports import Clock, Store

log = structlog.get_logger("moorage.control")

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
        self._tick: Tick | None = None
        self._due: dict[str, float] = {}
        """machine -> monotonic time at which its next step is due"""

    async def everything(self) -> Iterable[str]:
        """Every machine."""
        return [m.uid for m in await self._store.find(Machine)]

    async def __call__(self, uid: str) -> float | None:
        """One machine; returns when its heartbeat would be late or its lease over."""
        self._freeze_if_away(uid)
        machine = await self._store.get(Machine, uid)
        if machine is None:
            return None
        now = self._clock.now()
        workers: list[Worker] = []
        if expired(machine, self._times, safe_from=self.safe_from, now=now):
            workers = await placed_on(self._store, uid)
        decision = watch(machine, workers, self._times, safe_from=self.safe_from, now=now, fence=self.fence)
        if decision.change is not None:
            await self._store.commit(decision.change)
        if decision.wake_at is not None:
            self._due[uid] = self._clock.monotonic() + max(0.0, decision.wake_at - now)
        return decision.wake_at

    def _freeze_if_away(self, uid: str) -> None:
        tick = Tick(self._clock.now(), self._clock.monotonic())
        before, self._tick = self._tick or tick, tick
        due = self._due.pop(uid, tick.monotonic)
        if away(before, tick, due=due, ttl_s=self._times.ttl_s):
            self.safe_from = max(self.safe_from, tick.wall + self._times.ttl_s)
            log.warning("the loop was away or its clock was set: no lease expires for a while", until=self.safe_from)


async def placed_on(store: Store, machine: str) -> list[Worker]:
    """Workers of this machine that have not ended, and ended ones whose place is still held."""
    workers = await store.find(Worker, machine=machine, state=NOT_ENDED)
    known = {w.uid for w in workers}
    holding = sorted({str(h["worker"]) for h in await store.holdings(machine)} - known)
    return workers + (await store.find(Worker, uid=holding) if holding else [])
