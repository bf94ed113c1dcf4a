"""Stage 4 of the run's decision: a run that starts again as a whole.

Begun by the failure of a worker under `RestartJob` (of a gang's leader always), by a stop of a gang's needed member
that is followed by the queue (preemption, a drained machine), by the time-out of the barrier, and by a person. Every
worker is stopped; once all are out, and lost ones can no longer come back, all are queued in one decision.
`run.restarting` keeps what goes on meanwhile, so that any number of interruptions ends in the same place.
"""

from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.running import members
from moorage.decide.running.policy import Policy
from moorage.decide.running.restarts import Verdict, judge, restart_reason
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import StopCause, WorkerState

REQUESTED = "requested"
"""A person asked for the restart; every other cause is that of a stop."""


def restart_whole(draft: Draft, snapshot: RunSnapshot, policy: Policy) -> None:
    """Begin such a restart, stop what still runs, and queue all once all are out."""
    run = members.lives(draft, snapshot)
    workers = list(draft.of(Worker))
    if run is None or run.cancel is not None or any(members.ran_out(w) for w in workers):
        return
    if run.restarting is None:
        _begin(draft, snapshot, policy, workers)
    restarting = draft.row(run).restarting
    if restarting is None:
        return
    for worker in workers:
        if not members.unplaced(worker):
            cause = _cause_of_stop(str(restarting["cause"]))
            members.stop(draft, policy, worker, cause, _why_stopped(restarting), text=restarting.get("text"))
    if _all_out(draft, snapshot):
        _queue_all(draft, snapshot, policy, restarting)


# Beginning


def _begin(draft: Draft, snapshot: RunSnapshot, policy: Policy, workers: list[Worker]) -> None:
    needed = policy.needed(workers)
    if policy.gang:
        for worker in needed:
            if _stopped_for_the_queue(worker) or _too_long_at_barrier(draft, policy, worker):
                _begin_by_stop(draft, snapshot.run, worker)
                return
    _begin_by_failure(draft, snapshot, policy, needed)


def _stopped_for_the_queue(worker: Worker) -> bool:
    stopped = worker.state in (WorkerState.STOPPING, WorkerState.CANCELLED)
    return stopped and members.cause_of(worker) in members.REQUEUED


def _too_long_at_barrier(draft: Draft, policy: Policy, worker: Worker) -> bool:
    waits = worker.state is WorkerState.READY_TO_START and not worker.go and worker.barrier_at is not None
    return waits and draft.now >= (worker.barrier_at or 0.0) + policy.barrier_timeout_s


def _begin_by_stop(draft: Draft, run: Run, worker: Worker) -> None:
    asked = dict(worker.stop or {})
    cause = members.cause_of(worker) or StopCause.BARRIER_TIMEOUT
    text = asked.get("run") or asked.get("text")
    if cause is StopCause.MACHINE_DRAIN:
        text = worker.machine_name
    _set(draft, run, cause, worker, text=text)


def _begin_by_failure(draft: Draft, snapshot: RunSnapshot, policy: Policy, needed: list[Worker]) -> None:
    """The first failed worker whose failure restarts all; its count alone is spent. None may have failed for good."""
    found: list[tuple[Worker, Verdict]] = []
    for worker in needed:
        if worker.state not in (WorkerState.FAILED, WorkerState.DOWN) or not _restarts_all(policy, worker):
            continue
        verdict = judge(worker, snapshot, policy)
        if verdict is None or verdict.again is False:
            return
        if verdict.again:
            found.append((worker, verdict))
        else:
            draft.look_again(verdict.until)
    if found:
        worker, verdict = found[0]
        draft.set(worker, restarts=verdict.restarts)
        _set(draft, snapshot.run, StopCause.GANG_RESTART, worker, restart_at=verdict.restart_at)


def _restarts_all(policy: Policy, worker: Worker) -> bool:
    return policy.restarts_whole or (policy.gang and policy.leads(worker))


def _set(
    draft: Draft,
    run: Run,
    cause: StopCause,
    worker: Worker,
    *,
    text: str | None = None,
    restart_at: float | None = None,
) -> None:
    kept = {"worker": worker.name, "text": text, "since": draft.now, "restart_at": restart_at}
    draft.set(run, restarting={"cause": str(cause), **kept})


# Stopping


def _cause_of_stop(cause: str) -> StopCause:
    """Members that a drained machine or a person takes along stop for the gang's sake."""
    shared = (StopCause.PREEMPTION, StopCause.BARRIER_TIMEOUT)
    return next((c for c in shared if c == cause), StopCause.GANG_RESTART)


def _why_stopped(restarting: Any) -> Reason:
    cause, text = restarting["cause"], restarting.get("text")
    if cause == StopCause.PREEMPTION:
        return reason("stop.preempted", run=text or "work of higher priority")
    if cause == StopCause.BARRIER_TIMEOUT:
        return reason("stop.barrier_timeout")
    if cause == StopCause.MACHINE_DRAIN:
        return reason("stop.drain", machine=text or "a machine of its gang")
    if cause == REQUESTED:
        return reason("restart.requested", text=text)
    return reason("gang.restart", worker=restarting["worker"])


# Queueing all


def _all_out(draft: Draft, snapshot: RunSnapshot) -> bool:
    """Nothing of any worker is left anywhere, and no lost one can still come back."""
    out = True
    for worker in draft.of(Worker):
        if worker.state is WorkerState.DOWN and not worker.final:
            until = members.window_end(worker, snapshot)
            if draft.now < until:
                draft.look_again(until)
                out = False
        if not members.unplaced(worker) and not members.is_out(worker):
            out = False
    return out


def _queue_all(draft: Draft, snapshot: RunSnapshot, policy: Policy, restarting: Any) -> None:
    at: float | None = restarting.get("restart_at")
    later = at if at is not None and at > draft.now else None
    needed = {w.uid for w in policy.needed(list(draft.of(Worker)))}
    for worker in draft.of(Worker):
        if members.unplaced(worker):
            draft.set(worker, restart_at=max(later or 0.0, worker.restart_at or 0.0) or None)
        elif not _stays_out(worker, str(restarting["cause"]), worker.uid in needed):
            trigger = "requeued" if worker.state is WorkerState.CANCELLED else "gang_restart"
            members.queue_again(draft, worker, trigger, _why_queued(worker, restarting, policy, draft.now), later)
    draft.set(snapshot.run, restarting=None, barrier_since=None)
    draft.look_again(later)


def _stays_out(worker: Worker, cause: str, needed: bool) -> bool:
    """Stopped for good by a person; or, above the minimum of its gang, ended for good before."""
    if worker.state is WorkerState.CANCELLED:
        return members.cause_of(worker) not in members.REQUEUED
    return worker.final and not needed and cause != REQUESTED


def _why_queued(worker: Worker, restarting: Any, policy: Policy, now: float) -> Reason:
    cause, text = restarting["cause"], restarting.get("text")
    if cause == StopCause.GANG_RESTART:
        if worker.name == restarting["worker"]:
            at = restarting.get("restart_at")
            return restart_reason(Verdict(True, restart_at=at, restarts=worker.restarts), policy, now)
        return reason("gang.restart", worker=restarting["worker"])
    if cause == StopCause.PREEMPTION:
        return reason("preempt.requeued", run=text or "work of higher priority")
    machine = text if cause == StopCause.MACHINE_DRAIN else None
    return reason("run.requeued", cause=str(cause), machine=machine)
