"""Stage 9 of the run's decision: a run that ended keeps nothing running, and one day is removed.

Removal waits until nothing of any worker is left anywhere, and is a decision of its own, so that how the run ended is
in its history first.
"""

from moorage.decide.decision import Draft
from moorage.decide.running import members
from moorage.decide.running.policy import Policy
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.changes import Remove
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import TERMINAL_RUN, RunState, StopCause


def clear_up(draft: Draft, snapshot: RunSnapshot, policy: Policy) -> None:
    """Stop what outlived the run; remove it when it is due."""
    run = draft.row(snapshot.run)
    if run.state not in TERMINAL_RUN:
        return
    workers = list(draft.of(Worker))
    why = _why_stopped(policy, run, workers)
    for worker in workers:
        members.stop(draft, policy, worker, StopCause.RUN_ENDED, why)
    if snapshot.run.state in TERMINAL_RUN:
        _remove(draft, snapshot, policy)


def _why_stopped(policy: Policy, run: Run, workers: list[Worker]) -> Reason:
    if run.state is RunState.COMPLETED:
        return reason("stop.run_completed")
    if run.state is RunState.CANCELLED:
        return reason("stop.run_cancelled")
    code = run.reason.code if run.reason is not None else ""
    if code == "run.time_limit":
        return reason("stop.member_time_limit" if policy.gang else "stop.worker_time_limit")
    if policy.gang and any(w.final and w.reason is not None and w.reason.code == "restart.exhausted" for w in workers):
        return reason("stop.member_exhausted")
    if policy.array_fails_first and code != "run.queue_time":
        return reason("stop.worker_failed")
    return reason("stop.run_failed")


def _remove(draft: Draft, snapshot: RunSnapshot, policy: Policy) -> None:
    run = snapshot.run
    why = reason("run.deleted", by=run.deleted_by) if run.deleting else _expired(draft, policy, run)
    if why is None or any(w.handed_over or not members.is_out(w) for w in snapshot.workers):
        return
    for worker in snapshot.workers:
        draft.write(Remove("Worker", worker.uid, worker.version, reason("worker.deleted")))
    draft.write(Remove("Run", run.uid, run.version, why))


def _expired(draft: Draft, policy: Policy, run: Run) -> Reason | None:
    ttl_s = policy.ttl_after_finished_s
    if ttl_s is None or run.ended_at is None:
        return None
    if draft.now < run.ended_at + ttl_s:
        draft.look_again(run.ended_at + ttl_s)
        return None
    return reason("run.expired", d=ttl_s)
