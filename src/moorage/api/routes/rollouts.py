"""`/namespaces/{ns}/deployments/{name}/…`: what is rolled out, and a person's word on it."""

from typing import Annotated

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field

from moorage.api.deps import Actor, Deps, Key, Namespace
from moorage.api.errors import json_response
from moorage.api.mounting import under_api

router = under_api("/namespaces/{ns}/deployments/{name}", tag="rollouts")

Which = Field(default=None, min_length=1, max_length=200, description="number, name or id of a revision")


class WordBody(BaseModel):
    """A person's word on the candidate."""

    model_config = ConfigDict(extra="forbid")
    reason: str | None = Field(default=None, max_length=1000, description="in your words; shown in the history")
    revision: str | None = Which


class RollbackBody(BaseModel):
    """Which revision to go back to."""

    model_config = ConfigDict(extra="forbid")
    reason: str | None = Field(default=None, max_length=1000, description="in your words; shown in the history")
    to: str | None = Which


@router.get("/rollout")
async def get_rollout(ns: Namespace, name: str, deps: Deps) -> Response:
    """What moves: a rollout, a rollback, the window after a promotion, a revision that drains; or that nothing does."""
    return json_response(await deps.reader.rollout(ns, name))


@router.get("/rollout/explain")
async def explain_decision(
    ns: Namespace,
    name: str,
    deps: Deps,
    decision: Annotated[str | None, Query(description="its id, or a revision's number; the last one without")] = None,
) -> Response:
    """A stored release decision worked out again from its own inputs; whether it is the same to the byte."""
    return json_response(await deps.reader.explained(ns, name, decision))


@router.post("/promote")
async def promote(
    *, ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key, body: WordBody | None = None
) -> Response:
    """The candidate takes over without the guard's word: a durable operation."""
    word = body or WordBody()
    answer = await deps.commands.promote_deployment(
        ns, name, actor=actor, key=key, text=word.reason, revision=word.revision
    )
    return json_response(answer, 202)


@router.post("/reject")
async def reject(
    *, ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key, body: WordBody | None = None
) -> Response:
    """The candidate ends, the active revision goes on; with nothing rolled out, a no-op that succeeds."""
    word = body or WordBody()
    answer = await deps.commands.reject_deployment(
        ns, name, actor=actor, key=key, text=word.reason, revision=word.revision
    )
    return json_response(answer, 202)


@router.post("/rollback")
async def rollback(
    *, ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key, body: RollbackBody | None = None
) -> Response:
    """Back to a revision that served before, once its capacity is there: a durable operation."""
    word = body or RollbackBody()
    answer = await deps.commands.rollback_deployment(ns, name, actor=actor, key=key, text=word.reason, to=word.to)
    return json_response(answer, 202)
