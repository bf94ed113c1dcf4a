"""Stage 8 of the run's decision: the run's own state follows its workers (`runs.derive`), and the queue time ends."""

from collections.abc import Iterable
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.running import members
from moorage.decide.running.limits import note_placed, spent_in_queue
from moorage.decide.running.policy import Policy
from moorage.decide.running.runs import Derived, derive, failed_for_good, only_goes_on
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import TERMINAL_RUN, RunState


def follow(draft: Draft, snapshot: RunSnapshot, policy: Policy) -> None:
    """Take the step, or give the reason, that the workers imply."""
    run = members.lives(draft, snapshot)
    if run is None:
        return
    note_placed(draft, snapshot, policy)
    workers = tuple(draft.of(Worker))
    found = _found(draft, snapshot, policy, workers)
    if found is None:
        return
    if found.state is not run.state:
        fields = _fields(draft.now, policy, run, found.state, workers)
        draft.step(snapshot.run, found.state, found.trigger, found.reason, **fields)
    elif not only_goes_on(run, found.reason):
        draft.because(snapshot.run, found.reason)


def _found(draft: Draft, snapshot: RunSnapshot, policy: Policy, workers: tuple[Worker, ...]) -> Derived | None:
    run = draft.row(snapshot.run)
    found = derive(run, workers) or _without_workers(run)
    if run.state is RunState.PENDING and (found is None or found.state is RunState.PENDING):
        spent_s = spent_in_queue(draft, snapshot, policy)
        if spent_s is not None:
            return Derived(RunState.FAILED, "failed", reason("run.queue_time", d=spent_s))
    return found


def _without_workers(run: Run) -> Derived | None:
    """Ended before it was planned, or a maker of runs that is to make no more."""
    if run.cancel is None:
        return None
    why = reason("run.cancelled", cause=run.cancel.get("cause"), text=run.cancel.get("text"))
    return Derived(RunState.CANCELLED, "cancelled", why)


def _fields(now: float, policy: Policy, run: Run, state: RunState, workers: tuple[Worker, ...]) -> dict[str, Any]:
    """Times and exit code that go with a step of the run."""
    fields: dict[str, Any] = {}
    if state is RunState.RUNNING and run.started_at is None:
        fields["started_at"] = now
    if state in TERMINAL_RUN:
        fields |= {"ended_at": now, "exit_code": _exit_code(policy, run, state, workers), "restarting": None}
        if run.started_at is None:  # a short program ended before anybody saw it run
            fields["started_at"] = min((w.started_at for w in workers if w.started_at is not None), default=None)
    return fields


def _exit_code(policy: Policy, run: Run, state: RunState, workers: Iterable[Worker]) -> int | None:
    """0 of a completed run; of a failed one, that of the first worker that failed; none where nothing tells."""
    if state is RunState.COMPLETED:
        return 0
    if state is RunState.CANCELLED:
        return None
    failed = [w for w in policy.ordered(workers) if failed_for_good(policy, run, w)]
    return next((w.exit_code for w in failed if w.exit_code is not None), None)
