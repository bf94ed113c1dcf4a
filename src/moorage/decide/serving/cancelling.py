"""What cancelling an operation takes back, and which operation goes before which.

stop and delete > rollback > promote and reject > apply: a higher one asks the lower ones to cancel and takes over in
the very change that creates it; a lower one is refused with the higher one's id. Called by the commands and by the
engine in `operations`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.serving.phase import IN_PROMOTION, OPEN_OPERATION
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.errors import Conflict
from moorage.domain.nouns import Deployment, Operation, Revision
from moorage.domain.reasons import reason
from moorage.domain.states import DeploymentStatus, OperationState, RevisionState

RANK: Mapping[str, int] = {"apply": 0, "promote": 1, "reject": 1, "adopt": 1, "rollback": 2, "stop": 3, "delete": 3}

WRITTEN_FIRST = frozenset({"stop", "delete", "reject"})
"""Operations whose effect is written with them: past their point of no return from the start."""

_PREEMPTED = (OperationState.LEASED, OperationState.RUNNING, OperationState.WAITING, OperationState.NEEDS_ATTENTION)


def refuse_below(operations: Iterable[Operation], what: str, deployment: Deployment) -> None:
    """Refuse an order while a higher operation of the deployment is open.

    Args:
        operations: of the deployment.
        what: the operation that is asked for.

    Raises:
        Conflict: a higher one is under way.
    """
    for other in operations:
        if other.state in OPEN_OPERATION and RANK[other.operation] > RANK[what] and not other.cancel_requested:
            shown = f"{deployment.namespace}/{deployment.name}"
            raise Conflict(
                f"cannot {what} deployment {shown}: operation {other.uid} ({other.operation}) is under way and goes "
                "before it",
                code="operation_in_progress",
                remedy=f"wait for it with `moor operations watch {other.uid}`",
                target=f"Deployment {shown}",
            )


def take_over(draft: Draft, operations: Iterable[Operation], what: str, actor: str) -> None:
    """Ask every open operation that `what` goes before, or is the latest word on, to cancel."""
    for other in operations:
        current = draft.row(other)
        if current.cancel_requested or current.state not in OPEN_OPERATION or other.operation in ("stop", "delete"):
            continue
        if RANK[other.operation] <= RANK[what]:
            request_cancel(draft, other, f"a {what} by {actor}" if actor else f"a {what}")


def request_cancel(draft: Draft, operation: Operation, by: str) -> None:
    """Mark it as asked to end; the engine ends it."""
    why = reason("op.cancel_requested", by=by)
    fields: dict[str, Any] = {"cancel_requested": True, "cancelled_by": by}
    if draft.row(operation).state in _PREEMPTED:
        draft.step(operation, OperationState.CANCELLING, "cancel_requested", why, **fields)
    else:
        draft.set(operation, **fields)
        draft.note(operation, why)


def give_up_candidate(draft: Draft, snapshot: ServingSnapshot, operation: Operation, by: str) -> None:
    """A cancelled apply: its revision is cancelled, and a deployment that has no other is stopped."""
    revision = next((r for r in draft.of(Revision) if r.uid == operation.revision), None)
    if revision is None or revision.state not in IN_PROMOTION:
        return
    deployment = draft.row(snapshot.deployment)
    draft.step(revision, RevisionState.CANCELLED, "cancelled", reason("revision.cancelled", by=by))
    if deployment.candidate_revision == revision.uid:
        draft.set(deployment, candidate_revision=None, rollout=None)
    if deployment.active_revision is None and deployment.status in (DeploymentStatus.CREATED, DeploymentStatus.PAUSED):
        why = reason("deploy.stopped", by=by, text="its first apply was cancelled")
        over = {"hold": None, "waking": None, "retry_at": None}
        draft.step(deployment, DeploymentStatus.STOPPED, "stop_requested", why, **over)
