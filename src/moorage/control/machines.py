"""The machines loop: leases of machines run out, workers stop beating. Decided in `decide/running/liveness`.

The loop watches its own clocks too: every step notes when it ran and when the next was due, and a process that was
suspended or starved judges no machine by the silence of that time. A heartbeat of a machine makes one step. That step
reads one row: workers are read only when the beat of one is late, when one of them is stale or was given up, when
something of theirs changed, and once a minute.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from moorage.decide.decision import Decision
from moorage.decide.running import heartbeats
from moorage.decide.running.liveness import LeaseTimes, Place, Tick, away, expired, watch
from moorage.domain.changes import Fence
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import ENDED_WORKER, MachineState, WorkerState
from moorage.ports import Clock, Store

log = structlog.get_logger("moorage.control")

NOT_ENDED = tuple(s for s in WorkerState if s not in ENDED_WORKER)

LOOK_S = 60.0
"""Workers of a machine are read this often though nothing asks for it."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one reading of a machine's workers found.

    Args:
        at: when, on the monotonic clock.
        running: whose beats are compared without reading again.
        again: whether the next heartbeat must read them again.
    """

    at: float
    running: tuple[heartbeats.Watched, ...] = ()
    again: bool = False


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
        self._looks: dict[str, Look] = {}

    async def everything(self) -> Iterable[str]:
        """Every machine that is not removed."""
        return [m.uid for m in await self._store.find(Machine) if m.state is not MachineState.REMOVED]

    async def __call__(self, uid: str) -> float | None:
        """One machine; returns when its heartbeat would be late or its lease over."""
        self._freeze_if_away(uid)
        machine = await self._store.get(Machine, uid)
        if machine is None or machine.state is MachineState.REMOVED:
            self._looks.pop(uid, None)
            return None
        now = self._clock.now()
        decision = await (self._look(machine, now) if self._must_look(machine, now) else self._glance(machine, now))
        if decision.wake_at is not None:
            self._due[uid] = self._clock.monotonic() + max(0.0, decision.wake_at - now)
        return decision.wake_at

    def look_again(self, machine: str) -> None:
        """Something of this machine's workers changed: read them at its next step."""
        self._looks.pop(machine, None)

    def attends(self, machine: str) -> bool:
        """Whether the end of any worker there is news for this loop (it is drained, or a worker is stale)."""
        look = self._looks.get(machine)
        return look is None or look.again

    def _must_look(self, machine: Machine, now: float) -> bool:
        look = self._looks.get(machine.uid)
        if look is None or look.again or self._clock.monotonic() >= look.at + LOOK_S:
            return True
        floor = self.safe_from - self._times.ttl_s
        return expired(machine, self._times, safe_from=self.safe_from, now=now) or heartbeats.any_late(
            machine, look.running, floor=floor
        )

    async def _glance(self, machine: Machine, now: float) -> Decision:
        """The lease alone."""
        lease = replace(machine, draining=None)
        decision = watch(lease, (), self._times, safe_from=self.safe_from, now=now, fence=self.fence)
        if decision.change is not None:
            await self._store.commit(decision.change)
        return decision

    async def _look(self, machine: Machine, now: float) -> Decision:
        places = await places_on(self._store, machine.uid)
        workers = await placed_on(self._store, machine.uid, places)
        decision = watch(
            machine,
            workers,
            self._times,
            safe_from=self.safe_from,
            now=now,
            held=places,
            runs=await self._runs_of(workers),
            fence=self.fence,
        )
        self._looks.pop(machine.uid, None)
        if decision.change is not None:
            await self._store.commit(decision.change)
            return decision  # the change comes back as news, and what it left is looked at then
        again = machine.draining is not None or heartbeats.needs_looking_after(workers)
        self._looks[machine.uid] = Look(self._clock.monotonic(), heartbeats.watched(workers), again)
        return decision

    async def _runs_of(self, workers: Sequence[Worker]) -> Mapping[str, Run]:
        """Runs of workers that may come back."""
        uids = sorted({w.run for w in workers if heartbeats.given_up(w)})
        return {r.uid: r for r in await self._store.find(Run, uid=uids)} if uids else {}

    def _freeze_if_away(self, uid: str) -> None:
        tick = Tick(self._clock.now(), self._clock.monotonic())
        before, self._tick = self._tick or tick, tick
        due = self._due.pop(uid, tick.monotonic)
        if away(before, tick, due=due, ttl_s=self._times.ttl_s):
            self.safe_from = max(self.safe_from, tick.wall + self._times.ttl_s)
            log.warning("the loop was away or its clock was set: no lease expires for a while", until=self.safe_from)


async def places_on(store: Store, machine: str) -> dict[Place, tuple[int, ...]]:
    """Every place that is held on this machine, with its GPUs."""
    held = await store.holdings(machine)
    return {(str(h["worker"]), int(h["epoch"])): tuple(int(g) for g in h["gpus"]) for h in held}


async def placed_on(store: Store, machine: str, places: Iterable[Place], *, lost: bool = False) -> list[Worker]:
    """Workers of this machine that have not ended, and those whose place is held here.

    Args:
        places: that are held here.
        lost: also those that were lost here and not started again since.
    """
    states = (*NOT_ENDED, WorkerState.DOWN) if lost else NOT_ENDED
    workers = await store.find(Worker, machine=machine, state=states)
    holding = sorted({worker for worker, _ in places} - {w.uid for w in workers})
    return workers + (await store.find(Worker, uid=holding) if holding else [])
