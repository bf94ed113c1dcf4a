"""Stage 6: durable operations of a deployment (apply, stop, delete) follow what the rows show.

Each has named steps; a step is done when the rows prove it, so a restarted controller finds the first unfinished one
by looking. stop/delete asks an apply to cancel and takes over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.serving.phase import OPEN_OPERATION
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.changes import Remove
from moorage.domain.nouns import Deployment, Operation, Replica, Revision, Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import ENDED_WORKER, TERMINAL_REPLICA, DeploymentStatus, OperationState, RevisionState

STEPS: Mapping[str, tuple[str, ...]] = {
    "apply": ("record", "provision", "ready", "activate"),
    "stop": ("withdraw", "drain", "stop"),
    "delete": ("withdraw", "drain", "stop", "prove_absence", "tombstone"),
}
"""Named checkpoints per operation, in order."""


def first_steps(operation: str, done: int, now: float) -> tuple[dict[str, Any], ...]:
    """The steps of a new operation, of which the first `done` are done by the very change that creates it."""
    return tuple(
        {"name": name, "state": "done" if i < done else "pending", "at": now if i < done else None}
        for i, name in enumerate(STEPS[operation])
    )


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the rows show of one operation: how many steps are done, and an end if there is one."""

    done: int
    error: Mapping[str, Any] | None = None
    cancelled_by: str | None = None
    waiting: str | None = None


def advance(draft: Draft, snapshot: ServingSnapshot) -> None:
    """Take up, move on, end."""
    for operation in snapshot.operations:
        _take_up(draft, operation)
        facts = _FACTS[operation.operation](draft, snapshot, operation)
        _record_steps(draft, operation, facts.done)
        _end(draft, operation, facts)
    open_ones = [o for o in draft.of(Operation) if o.state in OPEN_OPERATION]
    blocking = open_ones[-1].uid if open_ones else None
    if blocking is not None:
        draft.set(snapshot.deployment, operation=blocking)


def _take_up(draft: Draft, operation: Operation) -> None:
    if operation.state is OperationState.PENDING and not operation.cancel_requested:
        draft.step(operation, OperationState.LEASED, "leased", reason("op.leased"), attempt=operation.attempt + 1)
        step = next((s["name"] for s in operation.steps if s["state"] != "done"), "end")
        code = "op.started" if operation.attempt == 0 else "op.resumed"
        draft.step(operation, OperationState.RUNNING, "started", reason(code, step=step))


def _apply_facts(draft: Draft, snapshot: ServingSnapshot, operation: Operation) -> _Facts:
    deployment = draft.row(snapshot.deployment)
    revision = next((r for r in draft.of(Revision) if r.uid == operation.revision), None)
    if deployment.deleting or deployment.status is DeploymentStatus.STOPPED:
        return _Facts(0, cancelled_by="a stop or delete")
    if deployment.status is DeploymentStatus.FAILED or (revision and revision.state is RevisionState.FAILED):
        return _Facts(0, error=_last_error(deployment))
    if deployment.status is DeploymentStatus.PAUSED or (revision and revision.state is RevisionState.ACTIVE):
        return _Facts(len(STEPS["apply"]))
    replicas = [r for r in draft.of(Replica) if r.revision == operation.revision]
    ready = any(r.routed for r in replicas)
    provisioned = any(r.status != "pending" for r in replicas)
    return _Facts(1 + provisioned + (provisioned and ready))


def _last_error(deployment: Deployment) -> dict[str, Any]:
    last = dict(deployment.last_failure or {})
    why = dict(last.get("reason") or {})
    return {
        "code": last.get("fail_reason") or "deploy_failed",
        "category": "failed",
        "message": why.get("message", "the deployment failed"),
        "retryable": False,
        "remedy": why.get("advice"),
    }


def _stop_facts(draft: Draft, snapshot: ServingSnapshot, operation: Operation) -> _Facts:
    del operation
    demand = snapshot.demand
    replicas = [r for r in draft.of(Replica) if r.status not in TERMINAL_REPLICA]
    withdrawn = not any(r.routed for r in replicas) and not demand.published_targets
    stopping = all(draft.row(snapshot.runs[r.run]).cancel is not None for r in replicas if r.run in snapshot.runs)
    if not withdrawn:
        return _Facts(0, waiting="gateways to take the new routes")
    if replicas and not stopping:
        return _Facts(1, waiting=f"{demand.in_flight} requests in flight to end")
    if replicas or not _absent(draft):
        return _Facts(2, waiting="machines to confirm that every process is gone")
    return _Facts(3)


def _absent(draft: Draft) -> bool:
    """Every worker ended and its machine saw nothing of it left (or the machine is lost and the place fenced)."""
    return all(w.state in ENDED_WORKER and not w.handed_over for w in draft.of(Worker))


def _delete_facts(draft: Draft, snapshot: ServingSnapshot, operation: Operation) -> _Facts:
    facts = _stop_facts(draft, snapshot, operation)
    if facts.done < 3 or not _absent(draft):
        return facts
    for noun in (Worker, Run, Replica, Revision):
        for row in draft.of(noun):
            draft.write(Remove(row.kind, row.uid, row.version, _removal(row.kind)))
    deployment = snapshot.deployment
    draft.write(
        Remove("Deployment", deployment.uid, deployment.version, reason("deploy.deleted", by=operation.actor or None))
    )
    return _Facts(len(STEPS["delete"]))


def _removal(kind: str) -> Reason:
    return reason({"Worker": "worker", "Run": "run", "Replica": "replica", "Revision": "revision"}[kind] + ".deleted")


_FACTS = {"apply": _apply_facts, "stop": _stop_facts, "delete": _delete_facts}


def _record_steps(draft: Draft, operation: Operation, done: int) -> None:
    steps = []
    for index, step in enumerate(operation.steps):
        finished = index < done and step["state"] != "done"
        steps.append({**step, "state": "done", "at": draft.now} if finished else dict(step))
    count = sum(s["state"] == "done" for s in steps)
    progress = max(operation.progress, count / max(len(steps), 1))
    draft.set(operation, steps=tuple(steps), progress=progress)


def _end(draft: Draft, operation: Operation, facts: _Facts) -> None:
    current = draft.row(operation)
    done = facts.done >= len(STEPS[operation.operation])
    if facts.cancelled_by is not None:
        _cancel(draft, operation, facts.cancelled_by)
    elif current.cancel_requested and (not done or current.state is OperationState.PENDING):
        _cancel(draft, operation, "a person")
    elif facts.error is not None:
        why = reason("op.failed", error=str(facts.error["message"]))
        draft.step(operation, OperationState.FAILED, "failed", why, error=dict(facts.error), retryable=False)
    elif done:  # also of one that was asked to cancel: past the point of no return
        draft.step(operation, OperationState.SUCCEEDED, "succeeded", reason("op.succeeded"), waiting_reason=None)
    elif facts.waiting is not None:
        draft.set(operation, waiting_reason=reason("op.waiting", why=facts.waiting).to_wire())


def _cancel(draft: Draft, operation: Operation, by: str) -> None:
    current = draft.row(operation)
    if current.state is OperationState.PENDING:
        draft.step(operation, OperationState.CANCELLED, "cancelled", reason("op.cancelled", by=by))
        return
    if current.state is not OperationState.CANCELLING:
        draft.step(operation, OperationState.CANCELLING, "cancel_requested", reason("op.cancel_requested", by=by))
    draft.step(operation, OperationState.CANCELLED, "cancelled", reason("op.cancelled", by=by))
