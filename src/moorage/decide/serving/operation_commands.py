"""What a person's word does to a durable operation: cancel it, or say what is there where that cannot be seen. Pure.

Called by admission; the engine in `operations` does the rest.
"""

from moorage.decide.decision import Draft, Outcome
from moorage.decide.serving.cancelling import WRITTEN_FIRST, request_cancel
from moorage.decide.serving.phase import OPEN_OPERATION
from moorage.domain.errors import Conflict, InvalidSpec
from moorage.domain.nouns import Operation
from moorage.domain.reasons import reason
from moorage.domain.states import OperationState


def cancel(operation: Operation, now: float, *, actor: str) -> Outcome:
    """Ask an operation to end before its point of no return.

    Raises:
        Conflict: it is over, or it has written its intent first and can only go on.
    """
    answer = {"operation": operation.uid}
    if operation.cancel_requested:
        return Outcome(None, {**answer, "state": str(operation.state)})
    if operation.state not in OPEN_OPERATION:
        raise Conflict(
            f"operation {operation.uid} is over ({operation.state})",
            code="operation_over",
            remedy="see what it did with `moor operations get ID`",
        )
    if operation.operation in WRITTEN_FIRST:
        raise Conflict(
            f"operation {operation.uid} is past its point of no return: {operation.operation} is written first and "
            "then carried out",
            code="past_no_return",
            remedy="let it finish; apply the spec again afterwards",
        )
    draft = Draft((operation,), now, actor)
    request_cancel(draft, operation, actor)
    return Outcome(draft.decision().change, answer)


def resolve(operation: Operation, now: float, *, actor: str, adopt: str | None, absent: bool) -> Outcome:
    """A person's word on what is there; kept with the evidence that was shown, and the operation goes on.

    Args:
        adopt: the resource that is there and is ours.
        absent: nothing of it is there.

    Raises:
        InvalidSpec: neither, or both.
        Conflict: the operation does not need a person.
    """
    if absent == (adopt is not None):
        raise InvalidSpec(
            "say what is there: the resource to adopt, or that it is absent",
            remedy="moor operations resolve ID --adopt RESOURCE, or --absent",
        )
    answer = {"operation": operation.uid, "how": "absent" if absent else "adopt"}
    known = dict(operation.resolution or {})
    if known and (known.get("how"), known.get("resource")) == (answer["how"], adopt):
        return Outcome(None, answer)
    if operation.state is not OperationState.NEEDS_ATTENTION:
        raise Conflict(
            f"operation {operation.uid} is {operation.state} and does not need anybody's word",
            code="not_in_question",
            remedy="only an operation that is needs_attention can be resolved",
        )
    evidence = dict(operation.waiting_reason or {}).get("message")
    word = {"how": answer["how"], "resource": adopt, "by": actor, "at": now, "evidence": evidence}
    how = "nothing is there" if absent else f"{adopt} is ours"
    why = reason("op.resolved", how=how, by=actor, evidence=evidence)
    draft = Draft((operation,), now, actor)
    draft.step(
        operation, OperationState.PENDING, "resolved", why, resolution=word, attempt=min(operation.attempt, 1) or 1
    )
    return Outcome(draft.decision().change, answer)
