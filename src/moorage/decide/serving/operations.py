"""Stage 6: the engine of durable operations; it follows what the rows show and never runs ahead of it.

1. lease: its holder is the control plane that leads; under another generation the lease is lost and the next one
   resumes at the first unfinished step. A step is done when the rows prove it, so resuming is looking.
2. facts: what the operation has done so far (`FACTS`)
3. steps: progress, which never goes backwards
4. the end, or the state: cancelled, failed, succeeded, a person needed, a further attempt, waiting, going on

`draft` and the operation's row are all it writes. Every commit carries the control plane's fence, so a holder that lost
its lease writes nothing. Called by `cycle`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from moorage.decide.decision import Draft, same_reason
from moorage.decide.serving import adopted, ending
from moorage.decide.serving.cancelling import give_up_candidate
from moorage.decide.serving.facts import Facts, Retry
from moorage.decide.serving.phase import OPEN_OPERATION
from moorage.decide.serving.rollout import following
from moorage.decide.serving.snapshot import Holder, ServingSnapshot
from moorage.domain.ids import digest
from moorage.domain.nouns import Operation
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import OperationState

ATTEMPTS_MAX = 120
BACKOFF_S, BACKOFF_MAX_S = 1.0, 60.0
JITTER = 0.25
ENDS_IN_ATTENTION = frozenset({"delete"})
"""Operations that never fail for spent attempts: what they left undone must be seen by a person."""

_UNDER_LEASE = (OperationState.LEASED, OperationState.RUNNING)


def advance(draft: Draft, snapshot: ServingSnapshot) -> None:
    """Take up, move on, end: every open operation of the deployment."""
    for operation in snapshot.operations:
        _hold(draft, operation, snapshot.holder)
        told = FACTS if snapshot.deployment.upstream is None else ADOPTED
        facts = told[operation.operation](draft, snapshot, operation)
        _record_steps(draft, operation, facts.done)
        _settle(draft, snapshot, operation, facts)
    open_ones = [o for o in draft.of(Operation) if o.state in OPEN_OPERATION]
    if open_ones:
        draft.set(snapshot.deployment, operation=open_ones[-1].uid)


# 1. Lease


def _hold(draft: Draft, operation: Operation, holder: Holder | None) -> None:
    current = draft.row(operation)
    lost = holder is not None and current.lease_generation not in (0, holder.generation)
    if lost and current.state in _UNDER_LEASE:
        draft.step(
            operation, OperationState.PENDING, "lease_lost", reason("op.lease_lost", owner=current.lease_owner or None)
        )
    elif lost and holder is not None:
        draft.set(operation, **_lease(holder))
    if draft.row(operation).state is OperationState.PENDING and not current.cancel_requested:
        _take_up(draft, operation, holder)


def _lease(holder: Holder | None) -> dict[str, Any]:
    if holder is None:
        return {}
    return {
        "lease_owner": holder.owner,
        "lease_generation": holder.generation,
        "lease_expires_at": holder.expires_at,
    }


def _take_up(draft: Draft, operation: Operation, holder: Holder | None) -> None:
    """Lease it and go on from the first unfinished step."""
    current = draft.row(operation)
    named = {"owner": holder.owner, "generation": holder.generation} if holder else {}
    first = current.attempt == 0
    fields: dict[str, Any] = {**_lease(holder), "attempt": max(current.attempt, 1)}
    draft.step(operation, OperationState.LEASED, "leased", reason("op.leased", **named), **fields)
    step = next((s["name"] for s in operation.steps if s["state"] != "done"), "end")
    why = reason("op.started" if first else "op.resumed", step=step)
    draft.step(operation, OperationState.RUNNING, "started", why, waiting_reason=None, next_attempt_at=None)


def _running(draft: Draft, operation: Operation) -> None:
    """Back under way, where it waited."""
    current = draft.row(operation)
    if current.state is not OperationState.WAITING:
        return
    draft.step(operation, OperationState.LEASED, "leased", reason("op.leased"))
    step = next((s["name"] for s in current.steps if s["state"] != "done"), "end")
    draft.step(
        operation,
        OperationState.RUNNING,
        "started",
        reason("op.resumed", step=step),
        waiting_reason=None,
        next_attempt_at=None,
    )


# 3. Steps


def _record_steps(draft: Draft, operation: Operation, done: int) -> None:
    steps = []
    for index, step in enumerate(operation.steps):
        finished = index < done and step["state"] != "done"
        steps.append({**step, "state": "done", "at": draft.now} if finished else dict(step))
    count = sum(s["state"] == "done" for s in steps)
    progress = max(operation.progress, count / max(len(steps), 1))
    draft.set(operation, steps=tuple(steps), progress=progress)


# 4. The end, or the state


def _settle(draft: Draft, snapshot: ServingSnapshot, operation: Operation, facts: Facts) -> None:
    current = draft.row(operation)
    done = facts.done >= len(operation.steps)
    if facts.cancelled_by is not None:
        _cancel(draft, operation, facts.cancelled_by)
    elif current.cancel_requested and not done:
        by = current.cancelled_by or "a person"
        CANCELS.get(operation.operation, _nothing)(draft, snapshot, operation, by)
        _cancel(draft, operation, by)
    else:
        if current.state is OperationState.PENDING:  # asked to cancel before it was taken up, and came too far for it
            _take_up(draft, operation, snapshot.holder)
        _end_or_go_on(draft, operation, facts, done=done)


def _end_or_go_on(draft: Draft, operation: Operation, facts: Facts, *, done: bool) -> None:
    if facts.error is not None:
        _fail(draft, operation, "failed", reason("op.failed", error=str(facts.error["message"])), facts.error)
    elif done:  # also of one that was asked to cancel: past the point of no return
        _go_on(draft, operation)
        draft.step(operation, OperationState.SUCCEEDED, "succeeded", reason("op.succeeded"), waiting_reason=None)
    elif facts.attention is not None:
        _ask_a_person(draft, operation, facts.attention)
    else:
        _carry_on(draft, operation, facts)


def _carry_on(draft: Draft, operation: Operation, facts: Facts) -> None:
    """It is not over: a further attempt, waiting, or under way."""
    exhausted = draft.row(operation).attempt >= ATTEMPTS_MAX
    if facts.retry is not None and not (exhausted and draft.row(operation).state is OperationState.NEEDS_ATTENTION):
        _go_on(draft, operation, stay_waiting=True)
        _retry(draft, operation, facts.retry)
    elif facts.retry is None and facts.waiting is not None:
        _go_on(draft, operation, stay_waiting=True)
        _wait(draft, operation, reason("op.waiting", why=facts.waiting))
    elif facts.retry is None:
        _go_on(draft, operation)


def _go_on(draft: Draft, operation: Operation, *, stay_waiting: bool = False) -> None:
    """Out of waiting, or out of a person's hands where what was not certain has become certain by itself."""
    if draft.row(operation).state is OperationState.NEEDS_ATTENTION:
        draft.step(operation, OperationState.PENDING, "resolved", reason("op.certain"))
        _take_up(draft, operation, None)
    if not stay_waiting:
        _running(draft, operation)


def _wait(draft: Draft, operation: Operation, why: Reason, **fields: Any) -> None:
    current = draft.row(operation)
    fields["waiting_reason"] = why.to_wire()
    if current.state is OperationState.RUNNING:
        draft.step(operation, OperationState.WAITING, "waiting", why, **fields)
    elif current.state is OperationState.WAITING and not same_reason(current.reason, why):
        draft.because(operation, why)
        draft.set(operation, **fields)


def _retry(draft: Draft, operation: Operation, retry: Retry) -> None:
    """Count an attempt that failed, once, and say when the next one is."""
    current = draft.row(operation)
    planned = current.next_attempt_at if current.state is OperationState.WAITING else None
    counted = planned is not None and (planned > draft.now if retry.at is None else planned == retry.at)
    if counted:
        draft.look_again(planned)
        return
    if current.attempt >= ATTEMPTS_MAX:
        _exhausted(draft, operation, retry.error)
        return
    at = draft.now + backoff_s(operation.uid, current.attempt) if retry.at is None else retry.at
    attempt = current.attempt + 1
    why = reason("op.retry", at=at, error=retry.error, attempt=attempt)
    _wait(draft, operation, why, attempt=attempt, next_attempt_at=at)
    draft.look_again(at)


def backoff_s(uid: str, failed: int) -> float:
    """Seconds to the next attempt after `failed` of them: 1 s doubling to 60 s, each drawn within a quarter.

    The draw is a digest of operation and attempt: operations that failed together do not come back together, and the
    same decision made twice is the same.
    """
    drawn = int(digest([uid, failed]).rpartition(":")[2][:8], 16) / 0xFFFFFFFF
    return min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(failed - 1, 10)) * (1 - JITTER + 2 * JITTER * drawn)


def _exhausted(draft: Draft, operation: Operation, error: str) -> None:
    current = draft.row(operation)
    if operation.operation in ENDS_IN_ATTENTION or current.state is OperationState.CANCELLING:
        _ask_a_person(draft, operation, f"{error} (after {current.attempt} attempts)")
        return
    why = reason("op.attempts_exhausted", error=error, n=current.attempt)
    public = {"code": "attempts_exhausted", "category": "failed", "message": why.message, "retryable": True}
    _fail(draft, operation, "attempts_exhausted", why, {**public, "remedy": why.advice})


def _fail(draft: Draft, operation: Operation, trigger: str, why: Reason, error: Mapping[str, Any]) -> None:
    state = draft.row(operation).state
    if state is OperationState.CANCELLING:
        draft.step(operation, OperationState.CANCELLED, "cancelled", reason("op.cancelled", by="a person"))
        return
    _go_on(draft, operation, stay_waiting=True)
    draft.step(operation, OperationState.FAILED, trigger, why, error=dict(error), retryable=False, waiting_reason=None)


def _ask_a_person(draft: Draft, operation: Operation, evidence: str) -> None:
    current = draft.row(operation)
    why = reason("op.needs_attention", evidence=evidence)
    fields: dict[str, Any] = {"waiting_reason": why.to_wire(), "next_attempt_at": None}
    if current.state is OperationState.NEEDS_ATTENTION:
        draft.because(operation, why)
        draft.set(operation, **fields)
        return
    draft.step(operation, OperationState.NEEDS_ATTENTION, "needs_attention", why, **fields)


def _cancel(draft: Draft, operation: Operation, by: str) -> None:
    state = draft.row(operation).state
    fields = {"waiting_reason": None, "next_attempt_at": None}
    if state not in (OperationState.PENDING, OperationState.CANCELLING):
        draft.step(operation, OperationState.CANCELLING, "cancel_requested", reason("op.cancel_requested", by=by))
    draft.step(operation, OperationState.CANCELLED, "cancelled", reason("op.cancelled", by=by), **fields)


# What each operation has done

FACTS: Mapping[str, Callable[[Draft, ServingSnapshot, Operation], Facts]] = {
    "apply": following.apply_facts,
    "promote": following.promote_facts,
    "reject": following.reject_facts,
    "rollback": following.rollback_facts,
    "stop": ending.stop_facts,
    "delete": ending.delete_facts,
}
"""Operation → what its rows show."""

ADOPTED: Mapping[str, Callable[[Draft, ServingSnapshot, Operation], Facts]] = {
    "adopt": adopted.adopt_facts,
    "stop": adopted.stop_facts,
    "delete": adopted.delete_facts,
}
"""The same of a deployment whose server somebody else started."""


def _nothing(draft: Draft, snapshot: ServingSnapshot, operation: Operation, by: str) -> None:
    del draft, snapshot, operation, by


CANCELS: Mapping[str, Callable[[Draft, ServingSnapshot, Operation, str], None]] = {
    "apply": give_up_candidate,
    "promote": following.take_back_word,
    "rollback": give_up_candidate,
}
"""Operation → what takes back what it has begun, where cancelling it has to."""
