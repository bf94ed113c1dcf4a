"""Stage 3 of the run's decision: times that are over, and machines that are drained.

A time limit counts for each attempt from its start. A stop for the time limit is for good; one for a drained machine is
followed by the queue. What gangs do at a time-out of their barrier is in `gangs`.
"""

from moorage.decide.decision import Draft
from moorage.decide.running import members
from moorage.decide.running.policy import Policy
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.nouns import Worker
from moorage.domain.reasons import reason
from moorage.domain.states import ACTIVE_WORKER, StopCause, WorkerState

TIMED = frozenset({WorkerState.STARTING, WorkerState.RUNNING, WorkerState.STALE})
"""States in which the time limit counts."""


def keep_limits(draft: Draft, snapshot: RunSnapshot, policy: Policy) -> None:
    """Stop what ran too long, and what is on a machine that is to be empty."""
    if members.lives(draft, snapshot) is None:
        return
    for worker in draft.of(Worker):
        _time_limit(draft, policy, worker)
        _drain(draft, snapshot, policy, worker)


def _time_limit(draft: Draft, policy: Policy, worker: Worker) -> None:
    limit_s = policy.time_limit_s
    if limit_s is None or worker.state not in TIMED or worker.started_at is None:
        return
    until = worker.started_at + limit_s
    if draft.now < until:
        draft.look_again(until)
        return
    members.stop(draft, policy, worker, StopCause.TIME_LIMIT, reason("stop.time_limit", d=limit_s))


def _drain(draft: Draft, snapshot: RunSnapshot, policy: Policy, worker: Worker) -> None:
    machine = snapshot.machines.get(draft.row(worker).machine or "")
    if machine is None or machine.draining is None:
        return
    current = draft.row(worker)
    if current.state in ACTIVE_WORKER or current.state is WorkerState.PENDING:
        members.stop(draft, policy, worker, StopCause.MACHINE_DRAIN, reason("stop.drain", machine=machine.name))


def spent_in_queue(draft: Draft, snapshot: RunSnapshot, policy: Policy) -> float | None:
    """Seconds of the queue time when it is over and the run never had all its places; asks to look again before.

    decided: the queue is behind a run once a worker of it ran, even where others (of an array) still wait.
    """
    run = draft.row(snapshot.run)
    if policy.max_queue_time_s is None or run.all_placed_at is not None or run.started_at is not None:
        return None
    until = run.queued_at + policy.max_queue_time_s
    if draft.now < until:
        draft.look_again(until)
        return None
    return policy.max_queue_time_s


def note_placed(draft: Draft, snapshot: RunSnapshot, policy: Policy) -> None:
    """When every needed worker first has its place, that is written down."""
    run = draft.row(snapshot.run)
    workers = policy.needed(list(draft.of(Worker)))
    if workers and run.all_placed_at is None and not any(members.unplaced(w) for w in workers):
        draft.set(run, all_placed_at=draft.now)
