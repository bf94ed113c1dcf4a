"""A run's state, derived from its workers (the lifecycle contract §3, first match wins).

Used for runs of their own and for the runs behind replicas, of which nothing is started again: there every failure is
for good, and a stop for whichever cause is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from moorage.decide.running import members
from moorage.decide.running.policy import Policy
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import Reason, ReasonClass, reason
from moorage.domain.states import TERMINAL_RUN, RunState, StopCause, WorkerState

AT_BARRIER_OR_BEYOND = frozenset(
    {
        WorkerState.READY_TO_START,
        WorkerState.STARTING,
        WorkerState.RUNNING,
        WorkerState.STALE,
        WorkerState.COMPLETED,
    }
)
NOT_TOGETHER = frozenset({WorkerState.STOPPING, WorkerState.FAILED, WorkerState.CANCELLED, WorkerState.DOWN})
"""One needed member of a gang in such a state, and it is not starting together."""


@dataclass(frozen=True, slots=True)
class Derived:
    """The state that the workers imply, the table's trigger word and the reason."""

    state: RunState
    trigger: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Run:
    run: Run
    policy: Policy
    workers: Sequence[Worker]
    """by group and rank"""
    needed: Sequence[Worker]


def derive(run: Run, workers: Sequence[Worker]) -> Derived | None:
    """What the run's state should be; None when it stays as it is, reason included.

    Args:
        workers: all of the run's workers, any order.
    """
    if run.state in TERMINAL_RUN or not workers:
        return None
    policy = Policy.of(run)
    ordered = policy.ordered(workers)
    seen = _Run(run, policy, ordered, policy.needed(ordered))
    return _failed(seen) or _completed(seen) or _cancelled(seen) or _starting(seen) or _running(seen) or _pending(seen)


def only_goes_on(run: Run, why: Reason) -> bool:
    """A waiting run shows what its worker waits for; that its worker is on its way is no news of the run."""
    known = run.reason
    return (
        run.state is RunState.PENDING
        and why.code != "run.stopping"
        and why.klass is ReasonClass.PROGRESS
        and known is not None
        and known.klass is ReasonClass.PROGRESS
    )


def is_over(policy: Policy, run: Run, worker: Worker) -> bool:
    """*Ended* of the contract: nothing is left that would queue it again."""
    if worker.state is WorkerState.COMPLETED:
        return policy.restart_policy(worker) != "Always" or run.cancel is not None
    if worker.state is WorkerState.CANCELLED:
        requeued = members.cause_of(worker) in members.REQUEUED
        return policy.replica or not requeued or run.cancel is not None
    if worker.state is WorkerState.FAILED:
        return policy.replica or worker.final or run.cancel is not None
    return worker.state is WorkerState.DOWN and (worker.final or run.cancel is not None)


def failed_for_good(policy: Policy, run: Run, worker: Worker) -> bool:
    """Failed, lost or out of time, and not started again because of that (and not because of a cancel)."""
    if members.ran_out(worker):
        return True
    if policy.replica:
        lost = worker.state is WorkerState.DOWN and run.cancel is not None
        left = policy.gang and worker.state is WorkerState.COMPLETED and run.cancel is None
        return worker.state is WorkerState.FAILED or lost or left
    return worker.final and worker.state in (WorkerState.FAILED, WorkerState.DOWN)


# 2 Failed


def _failed(seen: _Run) -> Derived | None:
    late = next((w for w in seen.workers if not seen.policy.replica and members.ran_out(w)), None)
    if late is not None:
        d = seen.policy.time_limit_s or 0.0
        return Derived(RunState.FAILED, "failed", reason("run.time_limit", worker=late.name, d=d))
    failed = [w for w in seen.needed if failed_for_good(seen.policy, seen.run, w)]
    if not failed or ((_waits_for_all(seen.policy) or _is_stopped(seen)) and not _all_over(seen)):
        return None
    return Derived(RunState.FAILED, "failed", _failed_reason(seen, failed))


def _waits_for_all(policy: Policy) -> bool:
    return policy.array and not policy.array_fails_first


def _is_stopped(seen: _Run) -> bool:
    """The gang of a replica that is asked to end is over when every member is, however the first of them ended."""
    asked = dict(seen.run.cancel or {}).get("cause")
    return seen.policy.replica and seen.policy.gang and asked not in (None, StopCause.RUN_ENDED)


def _all_over(seen: _Run) -> bool:
    return all(is_over(seen.policy, seen.run, w) for w in seen.workers)


def _failed_reason(seen: _Run, failed: Sequence[Worker]) -> Reason:
    first, policy = failed[0], seen.policy
    why = _why(first)
    named = {"worker": first.name, "machine": first.machine_name or "no machine", "reason": why}
    if policy.gang:
        return reason("run.gang_member_failed", **named, exit_code=first.exit_code)
    if policy.complete_with is not None and first.group != policy.complete_with:
        return reason("run.group_needed", group=first.group, worker=first.name, reason=why)
    if len(failed) > 1 or _waits_for_all(policy):
        return reason("run.workers_failed", k=len(failed), n=len(seen.workers), first=f"{first.name}: {why}")
    if first.state is WorkerState.DOWN:
        return reason("run.worker_lost", **named)
    return reason("run.worker_failed", **named)


def _why(worker: Worker) -> str:
    """Its last failure tells more than that its restarts are spent."""
    if worker.reason is None:
        return str(worker.state)
    if worker.reason.code == "restart.exhausted":
        last = dict(dict(worker.last_failure or {}).get("reason") or {}).get("message")
        return f"{last}; {worker.reason.message}" if last else worker.reason.message
    return worker.reason.message


# 3 Completed


def _completed(seen: _Run) -> Derived | None:
    group = seen.policy.complete_with
    if group is not None:
        theirs = [w for w in seen.needed if w.group == group] or [w for w in seen.workers if w.group == group]
        if theirs and all(w.state is WorkerState.COMPLETED for w in theirs):
            return Derived(RunState.COMPLETED, "completed", reason("run.group_completed", group=group))
        return None
    always = any(seen.policy.restart_policy(w) == "Always" for w in seen.workers)
    if not always and all(w.state is WorkerState.COMPLETED for w in seen.needed):
        return Derived(RunState.COMPLETED, "completed", reason("run.completed"))
    return None


# 4 Cancelled


def _cancelled(seen: _Run) -> Derived | None:
    """decided: a worker whose policy would have started it again, had no cancel come, counts as cancelled."""
    if not _all_over(seen):
        return None
    if not any(w.state is WorkerState.CANCELLED for w in seen.workers) and seen.run.cancel is None:
        return None
    asked = dict(seen.run.cancel or {})
    told = {} if seen.policy.replica else {"cause": asked.get("cause"), "text": asked.get("text")}
    return Derived(RunState.CANCELLED, "cancelled", reason("run.cancelled", **told))


# 5 Starting, 6 Running


def _starting(seen: _Run) -> Derived | None:
    if not seen.policy.gang or any(w.state in NOT_TOGETHER or members.unplaced(w) for w in seen.needed):
        return None
    if _together(seen):
        return None
    ready = sum(w.state in AT_BARRIER_OR_BEYOND for w in seen.needed)
    why = reason("run.starting", ready=ready, total=len(seen.needed))
    return Derived(RunState.STARTING, "gang_placed", why)


def _together(seen: _Run) -> bool:
    """Every needed worker that has not completed runs, and at least one does."""
    left = [w for w in seen.needed if w.state is not WorkerState.COMPLETED]
    return bool(left) and all(w.state in members.RUNNING for w in left)


def _running(seen: _Run) -> Derived | None:
    running = sum(w.state in members.RUNNING for w in seen.workers)
    if not running or (seen.policy.gang and not _together(seen)):
        return None
    code = "run.serving" if seen.policy.replica or seen.policy.service else "run.running"
    return Derived(RunState.RUNNING, "workers_running", reason(code, ready=running, total=len(seen.workers)))


# 7 Pending


def _pending(seen: _Run) -> Derived:
    waiting = (
        w
        for w in seen.workers
        if w.state not in members.RUNNING and not (is_over(seen.policy, seen.run, w) or members.ran_out(w))
    )
    return Derived(RunState.PENDING, "workers_waiting", _waiting_reason(next(waiting, None), len(seen.workers)))


def _waiting_reason(worker: Worker | None, total: int) -> Reason:
    """That of the worker; of one that is being stopped, that this is what goes on."""
    if worker is None:
        return reason("run.workers_waiting", total=total)
    if worker.state is WorkerState.STOPPING and (worker.reason is None or worker.reason.code != "stop.unkillable"):
        why = worker.reason.message if worker.reason else None
        return reason("run.stopping", worker=worker.name, why=why)
    return worker.reason or reason("run.workers_waiting", total=total)
