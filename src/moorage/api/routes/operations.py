"""`/operations…`: durable work in progress and done."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from moorage.api.deps import Actor, Deps, Key
from moorage.api.errors import json_response
from moorage.api.queries import Paged
from moorage.domain.states import OperationState

router = APIRouter(prefix="/operations", tags=["operations"])


@router.get("")
async def list_operations(
    deps: Deps,
    page: Paged,
    target: Annotated[str | None, Query(description="uid of what it works on")] = None,
    state: OperationState | None = None,
) -> Response:
    """Operations, over ones included."""
    return json_response(await deps.reader.operations(page, target, str(state) if state else None))


@router.get("/{uid}")
async def get_operation(uid: str, deps: Deps) -> Response:
    """One operation."""
    return json_response(await deps.reader.operation(uid))


@router.post("/{uid}/cancel")
async def cancel_operation(uid: str, deps: Deps, actor: Actor, key: Key) -> Response:
    """Ask it to end; past the point of no return it still succeeds."""
    return json_response(await deps.commands.cancel_operation(uid, actor=actor, key=key), 202)
