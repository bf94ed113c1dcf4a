"""When silence counts: late machines, lost machines, and what becomes of their workers (the lifecycle contract §2, §5).

No lease expires before `safe_from`: the start of this leadership plus the time to live, so that an outage of the
control plane kills nobody. A loop that was itself away (suspended, starved, its wall clock set) judges nobody for one
more time to live: see `away`. A worker whose run set its own time to live lets its machine be silent for that long:
the machine is Down on time, this worker later. Workers that only stopped beating are judged in `heartbeats`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moorage.decide.decision import Decision, Draft
from moorage.decide.running import heartbeats
from moorage.domain.changes import Fence, Release
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import ACTIVE_WORKER, ENDED_WORKER, MachineState, WorkerState

ACTOR = "controller:machines"

UP = frozenset({MachineState.READY, MachineState.NOT_READY})
"""States in which a machine's heartbeats come, or came until just now."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds: a heartbeat is late after `late_s`, the lease is over after `ttl_s`."""

    late_s: float = 20.0
    ttl_s: float = 30.0


CLOCKS_PART_S = 2.0
"""Wall and monotonic time may part by this much between two ticks before expiry is frozen."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One look of the loop at its clocks.

    Args:
        wall: seconds since the epoch.
        monotonic: seconds of the clock that never steps.
    """

    wall: float
    monotonic: float


def away(before: Tick, now: Tick, *, due: float, ttl_s: float) -> bool:
    """Whether the loop cannot trust the silence it sees: its clocks parted, or its own tick came far too late.

    Args:
        due: monotonic seconds at which this tick was to come.
    """
    parted = abs((now.wall - before.wall) - (now.monotonic - before.monotonic)) > CLOCKS_PART_S
    return parted or now.monotonic - due > ttl_s / 2


def expired(machine: Machine, times: LeaseTimes, *, safe_from: float, now: float) -> bool:
    """Whether this machine's lease is over and counts."""
    if machine.state in (MachineState.DOWN, MachineState.REMOVED, MachineState.JOINING):
        return False
    return now >= _heard(machine, times, safe_from) + times.ttl_s


def _heard(machine: Machine, times: LeaseTimes, safe_from: float) -> float:
    return max(machine.heartbeat_at or machine.created_at, safe_from - times.ttl_s)


def silence_s(worker: Worker, times: LeaseTimes) -> float:
    """How long its machine may be silent before this worker is lost. The default never lengthens the lease."""
    return max(times.ttl_s, worker.heartbeat_ttl_s) if worker.ttl_set else times.ttl_s


Place = tuple[str, int]
"""A worker's uid and the epoch for which a place is held."""


def watch(
    machine: Machine,
    workers: Iterable[Worker],
    times: LeaseTimes,
    *,
    safe_from: float,
    now: float,
    held: Iterable[Place] = (),
    runs: Mapping[str, Run] | None = None,
    fence: Fence | None = None,
) -> Decision:
    """Move a machine that fell silent, and its workers with it; and workers that stopped beating on one that is up.

    Args:
        workers: rows placed on this machine that have not ended, and those that ended and still hold their place; none
            where nothing but the lease is to be looked at.
        safe_from: no lease expires before this time, seconds since the epoch.
        held: every place that is held on this machine, earlier placements of workers and rows that are gone included.
        runs: by uid; of workers that may come back.
    """
    draft = Draft((machine, *workers), now, ACTOR)
    if machine.state in (MachineState.REMOVED, MachineState.JOINING):
        return Decision()
    heard = _heard(machine, times, safe_from)
    if machine.state is MachineState.DOWN:
        _lose(draft, machine, times, heard, held)
    elif expired(machine, times, safe_from=safe_from, now=now):
        draft.step(machine, MachineState.DOWN, "lease_expired", reason("machine.lease_expired"))
        _lose(draft, machine, times, heard, held)
    elif machine.state is MachineState.READY and now >= heard + times.late_s:
        draft.step(machine, MachineState.NOT_READY, "heartbeat_late", reason("machine.late", since=heard))
        draft.look_again(heard + times.ttl_s)
    else:
        late = heard + times.late_s
        draft.look_again(late if machine.state is MachineState.READY else heard + times.ttl_s)
    if draft.row(machine).state in UP:
        heartbeats.judge(draft, machine, runs or {}, floor=safe_from - times.ttl_s)
        _unplace_unclaimed(draft, machine)
        _note_drained(draft, machine, held)
    return draft.decision(fence)


def _lose(draft: Draft, machine: Machine, times: LeaseTimes, heard: float, held: Iterable[Place]) -> None:
    """Active workers are Down, stopping ones Cancelled, placed but not picked up ones wait for a place again.

    A placed worker may have been picked up unseen: its old epoch is fenced, so the next attempt may go elsewhere.
    """
    lasting: set[Place] = set()
    for worker in list(draft.of(Worker)):
        over = heard + silence_s(worker, times)
        if worker.machine == machine.uid and worker.state in ACTIVE_WORKER and draft.now < over:
            lasting.add((worker.uid, worker.epoch))
            draft.look_again(over)
        else:
            give_up(draft, machine, worker, "machine_lost", LOST)
    release(draft, [place for place in held if place not in lasting])


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Reason codes of workers whose machine is not there any more."""

    active: str
    stopping: str


LOST = GivenUp("machine.lost", "stop.machine_lost")
REMOVED = GivenUp("machine.removed", "stop.machine_removed")


def give_up(draft: Draft, machine: Machine, worker: Worker, trigger: str, codes: GivenUp) -> None:
    """One worker of a machine that was lost or removed. Its place is released by the caller."""
    over = {"ready": False, "handed_over": False, "ended_at": draft.now, "stale_since": None}
    if worker.machine != machine.uid:
        return
    if worker.state in ACTIVE_WORKER:
        draft.step(worker, WorkerState.DOWN, trigger, reason(codes.active, machine=machine.name), **over)
    elif worker.state is WorkerState.STOPPING:
        draft.step(worker, WorkerState.CANCELLED, trigger, reason(codes.stopping, machine=machine.name), **over)
    elif worker.state is WorkerState.PENDING:
        unplace(draft, worker, machine)
    elif worker.state in ENDED_WORKER and worker.handed_over:
        draft.set(worker, handed_over=False)


def unplace(draft: Draft, worker: Worker, machine: Machine) -> None:
    """It waits for a place again, under a new epoch; no restart is counted."""
    draft.step(
        worker,
        WorkerState.PENDING,
        "unplaced",
        reason("worker.unplaced", machine=machine.name),
        machine=None,
        handed_over=False,
        gpus=(),
        attempt=worker.attempt + 1,
        epoch=worker.epoch + 1,
        go=False,
        placed_at=None,
    )


def release(draft: Draft, places: Iterable[Place]) -> None:
    """Give up these places."""
    for worker, epoch in places:
        draft.write(Release(worker, epoch))


def _unplace_unclaimed(draft: Draft, machine: Machine) -> None:
    """On a cordoned machine nothing begins that was not handed over yet."""
    if machine.cordoned is None:
        return
    for worker in list(draft.of(Worker)):
        if worker.machine == machine.uid and worker.state is WorkerState.PENDING and not worker.handed_over:
            release(draft, [(worker.uid, worker.epoch)])
            unplace(draft, worker, machine)


def _note_drained(draft: Draft, machine: Machine, held: Iterable[Place]) -> None:
    """Once nothing is left on a machine that is drained, its history says so."""
    draining = dict(machine.draining or {})
    left = any(w.machine == machine.uid and w.state not in ENDED_WORKER for w in draft.of(Worker))
    if not draining or left or list(held) or draining.get("drained_at") is not None:
        return
    draft.set(machine, draining={**draining, "drained_at": draft.now})
    draft.because(machine, reason("machine.drained"))
