"""Stage 5 of the run's decision: what ended by itself, was lost, or was stopped to be queued again, one by one.

The policy decides once a place is given up (and, of a lost worker, once it can no longer come back): again after a
back-off, or ended for good. Gangs that start again as a whole were handled by `gangs` before.
"""

from dataclasses import dataclass

from moorage.decide.decision import Draft
from moorage.decide.running import members
from moorage.decide.running.policy import Policy
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.nouns import Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import WorkerState

DEPENDENCY_FAILED = frozenset({"depends.failed", "depends.failed_run"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy says of a worker that ended.

    Args:
        again: it is started again; False: it has ended for good; None: nothing can be said before `until`.
        until: seconds since the epoch.
        restart_at: earliest next start.
        restarts: its count with this restart.
        why: what its row should say.
    """

    again: bool | None = None
    until: float | None = None
    restart_at: float | None = None
    restarts: int = 0
    why: Reason | None = None


def judge(worker: Worker, snapshot: RunSnapshot, policy: Policy) -> Verdict | None:
    """The policy's word on one worker; None where it has none (it lives, completed for good, or was judged)."""
    if worker.final or not _asks(worker, policy):
        return None
    if worker.state is WorkerState.DOWN:
        return _judge_lost(worker, snapshot, policy)
    return _judge_ended(worker, policy)


def _asks(worker: Worker, policy: Policy) -> bool:
    if worker.state is WorkerState.COMPLETED:
        return policy.restart_policy(worker) == "Always"
    return worker.state in (WorkerState.FAILED, WorkerState.DOWN)


def _judge_lost(worker: Worker, snapshot: RunSnapshot, policy: Policy) -> Verdict:
    until = members.window_end(worker, snapshot)
    ended_at = worker.ended_at or worker.updated_at
    if policy.restart_policy(worker) != "Never" and until > ended_at:
        until = max(until, ended_at + _cut_off_s(worker, policy))
    if snapshot.now < until:
        return Verdict(until=until)
    return _judge_ended(worker, policy)


def _cut_off_s(worker: Worker, policy: Policy) -> float:
    """Seconds until an agent that is cut off has certainly ended it (`on_disconnect: stop`).

    decided: it stays Down until then, so that the copy may still come back, or a late report may prove its end.
    """
    if worker.disconnect_after_s is None:
        return 0.0
    return worker.disconnect_after_s + (policy.group_of(worker).stop_grace_s or DEFAULT_GRACE_S)


DEFAULT_GRACE_S = 20.0
"""Grace of a stop where the spec names none."""


def _judge_ended(worker: Worker, policy: Policy) -> Verdict:
    if _for_good(worker, policy):
        return Verdict(again=False)
    spent = restarts_of(worker, policy)
    ended_at = worker.ended_at or worker.updated_at
    if worker.state is WorkerState.COMPLETED:
        # decided: exit 0 under Always is no failure: it waits the first back-off and spends no budget.
        return Verdict(True, restart_at=ended_at + policy.backoff(1), restarts=spent)
    if spent >= policy.budget:
        return Verdict(again=False, why=reason("restart.exhausted", n=spent, limit=policy.budget))
    return Verdict(True, restart_at=ended_at + policy.backoff(spent + 1), restarts=spent + 1)


def _for_good(worker: Worker, policy: Policy) -> bool:
    """Never is final; so are a time limit and a dependency that failed, whatever the policy."""
    code = worker.reason.code if worker.reason is not None else ""
    return policy.restart_policy(worker) == "Never" or members.ran_out(worker) or code in DEPENDENCY_FAILED


def restarts_of(worker: Worker, policy: Policy) -> int:
    """Restarts that count: none after an attempt that ran long enough."""
    if worker.running_since is None or worker.ended_at is None:
        return worker.restarts
    return 0 if worker.ended_at - worker.running_since >= policy.reset_after_s else worker.restarts


def forgive(draft: Draft, snapshot: RunSnapshot, policy: Policy) -> None:
    """A worker that has run long enough has its count set to 0."""
    if members.lives(draft, snapshot) is None:
        return
    for worker in draft.of(Worker):
        if not worker.restarts or worker.state not in members.RUNNING or worker.running_since is None:
            continue
        until = worker.running_since + policy.reset_after_s
        if draft.now >= until:
            draft.set(worker, restarts=0)
        else:
            draft.look_again(until)


def restart_each(draft: Draft, snapshot: RunSnapshot, policy: Policy) -> None:
    """Queue again what its policy or the cause of its stop queues again; mark what ended for good.

    decided: while the whole starts again nobody is judged: a peer that its gang takes along is no failure of its own.
    """
    run = members.lives(draft, snapshot)
    if run is None or run.restarting is not None:
        return
    for worker in draft.of(Worker):
        if worker.state is WorkerState.CANCELLED:
            if run.cancel is None:
                _after_stop(draft, snapshot, worker)
            continue
        verdict = judge(worker, snapshot, policy)
        if verdict is None:
            continue
        if verdict.again is None:
            draft.look_again(verdict.until)
        elif not verdict.again:
            _end_for_good(draft, worker, verdict)
        elif run.cancel is None and members.is_out(worker):
            _queue_by_policy(draft, worker, verdict, policy)


def _after_stop(draft: Draft, snapshot: RunSnapshot, worker: Worker) -> None:
    """Preempted, drained and the like: queued again once gone, with no budget spent, unless a cancel comes between."""
    if members.cause_of(worker) not in members.REQUEUED or not members.is_out(worker):
        return
    members.queue_again(draft, worker, "requeued", members.requeue_reason(worker), None)
    draft.depends_on(draft.row(snapshot.run))


def _end_for_good(draft: Draft, worker: Worker, verdict: Verdict) -> None:
    draft.set(worker, final=True)
    if verdict.why is not None:
        draft.because(worker, verdict.why)


def _queue_by_policy(draft: Draft, worker: Worker, verdict: Verdict, policy: Policy) -> None:
    """Failed, Down or Completed → Pending, by the worker's own policy."""
    at = verdict.restart_at
    members.queue_again(
        draft,
        worker,
        "restart",
        restart_reason(verdict, policy, draft.now),
        at,
        restarts=verdict.restarts,
    )
    if at is not None and at > draft.now:
        draft.look_again(at)


def restart_reason(verdict: Verdict, policy: Policy, now: float) -> Reason:
    """What a worker says that its policy starts again: when, while it waits."""
    n, limit, at = verdict.restarts, policy.budget, verdict.restart_at
    if at is not None and at > now:
        return reason("restart.backoff", at=at, n=n, limit=limit)
    return reason("restart.policy", n=n, limit=limit)
