"""`/operations…`: durable work in progress and done."""

from typing import Annotated

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field

from moorage.api.deps import Actor, Deps, Key
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.api.queries import Paged
from moorage.domain.states import OperationState

router = under_api("/operations", tag="operations")


class ResolveBody(BaseModel):
    """What is there: exactly one of the two."""

    model_config = ConfigDict(extra="forbid")
    adopt: str | None = Field(default=None, min_length=1, max_length=400, description="MACHINE/pid:N or container:ID")
    absent: bool = False


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


@router.post("/{uid}/resolve")
async def resolve_operation(uid: str, body: ResolveBody, deps: Deps, actor: Actor, key: Key) -> Response:
    """Say what is there, where that cannot be told for certain; the evidence is kept, and the operation goes on."""
    answer = await deps.commands.resolve_operation(uid, adopt=body.adopt, absent=body.absent, actor=actor, key=key)
    return json_response(answer, 202)
