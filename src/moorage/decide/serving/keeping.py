"""Deleting what stands for a server and leaving that server running: when that is refused. Called by `commands`."""

from collections.abc import Iterable

from moorage.domain.errors import Conflict
from moorage.domain.nouns import Deployment, Operation
from moorage.domain.states import OperationState

EXTERNAL = "external"
"""Ownership of what a delete left running: nobody here looks after it any more."""


def refuse_to_keep(deployment: Deployment, operations: Iterable[Operation]) -> None:
    """Nothing, where its server can be left to somebody else.

    Raises:
        Conflict: its servers are children of our agents and end with it; or an operation needs a person first.
    """
    name = f"{deployment.namespace}/{deployment.name}"
    open_question = next((o for o in operations if o.state is OperationState.NEEDS_ATTENTION), None)
    if open_question is not None:
        raise Conflict(
            f"cannot leave the resources of {name}: what is there is still in question (operation {open_question.uid})",
            code="needs_attention",
            remedy=f"look at it with `moor operations get {open_question.uid}` and resolve it first",
            target=f"Deployment {name}",
        )
    if deployment.upstream is None:
        raise Conflict(
            f"cannot leave the resources of {name}: its servers are run by Moorage's agents and end with it",
            code="keep_resources_unavailable",
            remedy="only a server that was adopted can be left running; delete without --keep-resources",
            target=f"Deployment {name}",
        )
