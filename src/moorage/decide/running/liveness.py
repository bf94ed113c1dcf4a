"""When silence counts: late machines, lost machines, and what becomes of their workers (the contract §2, §5).

No lease expires before `safe_from`: the start of this leadership plus the time to live, so that an outage of the
control plane kills nobody.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from moorage.decide.decision import Decision, Draft
from moorage.domain.changes import Fence, Release
from moorage.domain.nouns import Machine, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import ACTIVE_WORKER, MachineState, WorkerState

ACTOR = "controller:machines"


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds: a heartbeat is late after `late_s`, the lease is over after `ttl_s`."""

    late_s: float = 20.0
    ttl_s: float = 30.0


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
        workers: rows placed on this machine that have not ended.
        safe_from: no lease expires before this time, seconds since the epoch.
    """
    draft = Draft((machine, *workers), now, ACTOR)
    if machine.state in (MachineState.DOWN, MachineState.REMOVED, MachineState.JOINING):
        return Decision()
    heard = max(machine.heartbeat_at or machine.created_at, safe_from - times.ttl_s)
    if now >= heard + times.ttl_s:
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
            draft.step(worker, WorkerState.DOWN, "machine_lost", reason("machine.lost"), ready=False)
        elif worker.state is WorkerState.STOPPING:
            draft.step(
                worker,
                WorkerState.CANCELLED,
                "machine_lost",
                reason("stop.machine_lost"),
                ready=False,
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
        else:
            continue
        draft.write(Release(worker.uid))
