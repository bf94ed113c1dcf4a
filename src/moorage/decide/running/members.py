"""What can be said of a run's workers, and the two moves every stage makes: ask one to stop, queue one again.

Nothing here chooses; the stages of `cycle` do.
"""

from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.running.policy import Policy
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.changes import Release
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import ACTIVE_WORKER, ENDED_WORKER, TERMINAL_RUN, MachineState, StopCause, WorkerState

RUNNING = frozenset({WorkerState.RUNNING, WorkerState.STALE})

REQUEUED = frozenset({StopCause.PREEMPTION, StopCause.GANG_RESTART, StopCause.BARRIER_TIMEOUT, StopCause.MACHINE_DRAIN})
"""Causes of a stop after which the worker is queued again."""

BY_PERSON = frozenset({StopCause.USER, StopCause.DEFAULT})
"""Causes of a stop for good that is no failure."""

RETURN_WINDOW_S = 60.0
"""How long a lost worker may come back before its policy acts."""

GONE = "gone"
"""Key of `Worker.reported`: the epoch of which its machine proved, after it was lost, that nothing is left."""

FRESH: dict[str, Any] = {
    "machine": None,
    "handed_over": False,
    "gpus": (),
    "process": None,
    "address": None,
    "ready": False,
    "first_ready_at": None,
    "ran": False,
    "started_at": None,
    "ended_at": None,
    "exit_code": None,
    "stop": None,
    "go": False,
    "barrier_at": None,
    "running_since": None,
    "stale_since": None,
    "rendezvous": None,
    "ports": {},
    "placement": None,
    "final": False,
}
"""Fields of a worker that begins another attempt. Restarts, its last failure and its time of submission stay."""


def lives(draft: Draft, snapshot: RunSnapshot) -> Run | None:
    """The run, while its own workers are anybody's concern: not ended, and not only a maker of runs."""
    run = draft.row(snapshot.run)
    return None if run.state in TERMINAL_RUN else run


def cause_of(worker: Worker) -> StopCause | None:
    """Why it was asked to stop, if it was."""
    cause = dict(worker.stop or {}).get("cause")
    return StopCause(cause) if cause else None


def unplaced(worker: Worker) -> bool:
    """Waits for a place, with nothing of it on any machine."""
    return worker.state is WorkerState.PENDING and worker.machine is None and not worker.handed_over


def is_out(worker: Worker) -> bool:
    """Ended, and nothing is waited for before its next attempt: its place was given up, or it is lost.

    A lost one may still run. Its place stays taken under its epoch until it is proven gone; the next has another.
    """
    return worker.state in ENDED_WORKER and (worker.state is WorkerState.DOWN or not worker.handed_over)


def proven_gone(worker: Worker) -> bool:
    """Lost, and its machine has proven meanwhile that nothing of this placement is left there."""
    return dict(worker.reported or {}).get(GONE) == worker.epoch


def ran_out(worker: Worker) -> bool:
    """Ended by its time limit, which is for good."""
    if worker.state is WorkerState.CANCELLED:
        return cause_of(worker) is StopCause.TIME_LIMIT
    return worker.state is WorkerState.FAILED and worker.reason is not None and worker.reason.code == "stop.time_limit"


def window_end(worker: Worker, snapshot: RunSnapshot) -> float:
    """Until when a lost worker may come back; one of a removed machine may not, nor one that is proven gone.

    decided: a machine that is removed while a worker of it is lost already ends the window as well.
    """
    ended_at = worker.ended_at if worker.ended_at is not None else worker.updated_at
    machine = snapshot.machines.get(worker.machine or "")
    removed = worker.reason is not None and worker.reason.code == "machine.removed"
    if proven_gone(worker) or removed or (machine is not None and machine.state is MachineState.REMOVED):
        return ended_at
    return ended_at + RETURN_WINDOW_S


def stop(draft: Draft, policy: Policy, worker: Worker, cause: StopCause, why: Reason, **more: Any) -> None:
    """Ask a worker that has not ended to stop: Cancelled at once where no machine has it. One that stops goes on."""
    current = draft.row(worker)
    asked: dict[str, Any] = {"cause": str(cause), "text": None, "since": draft.now}
    grace_s = policy.group_of(current).stop_grace_s
    if grace_s is not None:
        asked["grace_s"] = grace_s
    asked |= {k: v for k, v in more.items() if v is not None}
    if current.state is WorkerState.PENDING and not current.handed_over:
        if current.machine is not None:
            draft.write(Release(current.uid, current.epoch))
        draft.step(worker, WorkerState.CANCELLED, "cancelled", why, stop=asked, ended_at=draft.now, waits=None)
    elif current.state is WorkerState.PENDING or current.state in ACTIVE_WORKER:
        draft.step(worker, WorkerState.STOPPING, "stop_requested", why, stop=asked, ready=False)


def take_stop_over(draft: Draft, worker: Worker, cause: StopCause, why: Reason, text: str | None) -> None:
    """A stop under way, or done, for another cause becomes this one's."""
    current = draft.row(worker)
    draft.set(worker, stop={**dict(current.stop or {"since": draft.now}), "cause": str(cause), "text": text})
    draft.note(worker, why)


def queue_again(draft: Draft, worker: Worker, trigger: str, why: Reason, restart_at: float | None, **more: Any) -> None:
    """→ Pending: the next attempt, fenced from the last by its epoch."""
    current = draft.row(worker)
    later = restart_at if restart_at is not None and restart_at > draft.now else None
    draft.step(
        worker,
        WorkerState.PENDING,
        trigger,
        why,
        attempt=current.attempt + 1,
        epoch=current.epoch + 1,
        restart_at=later,
        **{**FRESH, **more},
    )


def requeue_reason(worker: Worker) -> Reason:
    """Why a stopped worker is queued again."""
    cause, asked = cause_of(worker), dict(worker.stop or {})
    if cause is StopCause.PREEMPTION:
        return reason("preempt.requeued", run=asked.get("run") or asked.get("text") or "work of higher priority")
    machine = worker.machine_name if cause is StopCause.MACHINE_DRAIN else None
    return reason("run.requeued", cause=str(cause), machine=machine)
