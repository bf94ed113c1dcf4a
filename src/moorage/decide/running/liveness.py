"""When silence counts: late machines, lost machines, and what becomes of their workers (the contract §2, §5).

No lease expires before `safe_from`: the start of this leadership plus the time to live, so that an outage of the
control plane kills nobody. A loop that was itself away (suspended, starved, its wall clock set) judges nobody for one
more time to live: see `away`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from moorage.decide.decision import Decision, Draft
from moorage.domain.changes import Fence, Release
from moorage.domain.nouns import Machine, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import ACTIVE_WORKER, ENDED_WORKER, MachineState, WorkerState

ACTOR = "controller:machines"


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


def watch(
    machine: Machine,
    workers: Iterable[Worker],
    times: LeaseTimes,
    *,
    safe_from: float,
    now: float,
    fence: Fence | None = None,
) -> Decision:
    """Move a machine that fell silent, and its workers with it.

    Args:
        workers: rows placed on this machine that have not ended, and those that ended and still hold their place.
        safe_from: no lease expires before this time, seconds since the epoch.
    """
    draft = Draft((machine, *workers), now, ACTOR)
    if machine.state in (MachineState.DOWN, MachineState.REMOVED, MachineState.JOINING):
        return Decision()
    heard = _heard(machine, times, safe_from)
    if expired(machine, times, safe_from=safe_from, now=now):
        draft.step(machine, MachineState.DOWN, "lease_expired", reason("machine.lease_expired"))
        _lose(draft, machine)
    elif machine.state is MachineState.READY and now >= heard + times.late_s:
        draft.step(machine, MachineState.NOT_READY, "heartbeat_late", reason("machine.late", since=heard))
        draft.look_again(heard + times.ttl_s)
    else:
        late = heard + times.late_s
        draft.look_again(late if machine.state is MachineState.READY else heard + times.ttl_s)
    return draft.decision(fence)


def _lose(draft: Draft, machine: Machine) -> None:
    """Active workers are Down, stopping ones Cancelled, placed but not picked up ones wait for a place again.

    A placed worker may have been picked up unseen: its old epoch is fenced, so the next attempt may go elsewhere.
    """
    for worker in draft.of(Worker):
        if worker.state in ACTIVE_WORKER:
            draft.step(
                worker,
                WorkerState.DOWN,
                "machine_lost",
                reason("machine.lost"),
                ready=False,
                handed_over=False,
                ended_at=draft.now,
            )
        elif worker.state is WorkerState.STOPPING:
            draft.step(
                worker,
                WorkerState.CANCELLED,
                "machine_lost",
                reason("stop.machine_lost"),
                ready=False,
                handed_over=False,
                ended_at=draft.now,
            )
        elif worker.state is WorkerState.PENDING:
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
            )
        elif worker.state in ENDED_WORKER and worker.handed_over:
            draft.set(worker, handed_over=False)
        else:
            continue
        draft.write(Release(worker.uid))
