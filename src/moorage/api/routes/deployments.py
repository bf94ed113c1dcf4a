"""`/namespaces/{ns}/deployments…`: what is served, and the orders about it."""

from typing import Annotated, Any

from fastapi import Body, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from moorage.api.deps import Actor, Deps, Key, Namespace
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.api.queries import After, CreateOnly, Deleted, HistoryLimit, Paged, check_address
from moorage.control.reading import HISTORY_MAX
from moorage.domain.errors import InvalidSpec
from moorage.domain.nouns import Deployment
from moorage.wire.fields import ReplicaCount

router = under_api("/namespaces/{ns}/deployments", tag="deployments")

Document = Annotated[dict[str, Any], Body(description="a Deployment document; see the specs' JSON Schema")]


class StopBody(BaseModel):
    """Why it is stopped, in the words of whoever stops it."""

    model_config = ConfigDict(extra="forbid")
    text: str | None = Field(default=None, max_length=1000)


class ScaleBody(BaseModel):
    """New limits; what is left out stays."""

    model_config = ConfigDict(extra="forbid")
    min: ReplicaCount | None = None
    max: ReplicaCount | None = None


@router.get("")
async def list_deployments(ns: Namespace, deps: Deps, page: Paged, deleted: Deleted = False) -> Response:
    """Deployments of a namespace."""
    if deleted:
        return json_response({"items": await deps.reader.tombstones(Deployment, ns), "next": None})
    return json_response(await deps.reader.deployments(ns, page))


@router.get("/{name}")
async def get_deployment(ns: Namespace, name: str, deps: Deps, deleted: Deleted = False) -> Response:
    """One deployment; with `deleted`, what is left of the one last deleted under that name or uid."""
    if not deleted:
        return json_response(await deps.reader.deployment(ns, name))
    return json_response(await deps.reader.tombstone(Deployment, ns, name))


@router.put("/{name}")
async def apply_deployment(
    *,
    ns: Namespace,
    name: str,
    document: Document,
    deps: Deps,
    actor: Actor,
    key: Key,
    create_only: CreateOnly,
) -> Response:
    """Apply: {deployment, revision, operation, changed}. Doing it again changes nothing."""
    check_address(document, ns, name)
    answer = await deps.commands.apply_deployment(ns, name, document, actor=actor, key=key, create_only=create_only)
    return json_response(answer)


@router.delete("/{name}")
async def delete_deployment(
    *,
    ns: Namespace,
    name: str,
    deps: Deps,
    actor: Actor,
    key: Key,
    dry_run: Annotated[bool, Query()] = False,
    keep_resources: Annotated[str | None, Query(description="its name once more: leave its server running")] = None,
) -> Response:
    """Delete: a durable operation; with `dry_run`, what it would touch."""
    if dry_run:
        return json_response(await deps.commands.delete_dry_run(ns, name))
    if keep_resources is not None and keep_resources != name:
        raise InvalidSpec(
            f"keep_resources says {keep_resources!r} and not {name!r}",
            remedy="give the deployment's name once more, to say that its server is to be left running",
            errors=[{"path": "keep_resources", "message": "is not the deployment's name"}],
        )
    keep = {"keep": True} if keep_resources is not None else {}
    return json_response(await deps.commands.delete_deployment(ns, name, actor=actor, key=key, **keep), 202)


@router.post("/{name}/plan")
async def plan_deployment(ns: Namespace, name: str, document: Document, deps: Deps) -> Response:
    """What an apply of this document would change."""
    check_address(document, ns, name)
    return json_response(await deps.commands.plan_deployment(ns, name, document))


@router.post("/{name}/stop")
async def stop_deployment(
    *, ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key, body: StopBody | None = None
) -> Response:
    """Stop it for good: a durable operation."""
    text = body.text if body else None
    return json_response(await deps.commands.stop_deployment(ns, name, actor=actor, key=key, text=text), 202)


@router.post("/{name}/pause")
async def pause_deployment(ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key) -> Response:
    """Scale it to zero until the next request."""
    return json_response(await deps.commands.pause_deployment(ns, name, actor=actor, key=key), 202)


@router.post("/{name}/wake")
async def wake_deployment(ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key) -> Response:
    """Bring a paused one back without a request."""
    return json_response(await deps.commands.wake_deployment(ns, name, actor=actor, key=key), 202)


@router.post("/{name}/scale")
async def scale_deployment(
    *, ns: Namespace, name: str, body: ScaleBody, deps: Deps, actor: Actor, key: Key
) -> Response:
    """Change the replica limits until the next apply."""
    if body.min is None and body.max is None:
        raise InvalidSpec(
            "neither min nor max is given",
            remedy="give one of them or both",
            errors=[{"path": "min", "message": "is required where max is absent"}],
        )
    answer = await deps.commands.scale_deployment(ns, name, min=body.min, max=body.max, actor=actor, key=key)
    return json_response(answer)


@router.get("/{name}/scaling")
async def deployment_scaling(ns: Namespace, name: str, deps: Deps) -> Response:
    """Its size, its limits, what the autoscaler decided last and why, and the load it sees."""
    return json_response(await deps.scaling.show(ns, name))


@router.get("/{name}/replicas")
async def list_replicas(ns: Namespace, name: str, deps: Deps) -> Response:
    """Every replica, oldest first."""
    return json_response({"items": await deps.reader.replicas(ns, name), "next": None})


@router.get("/{name}/revisions")
async def list_revisions(ns: Namespace, name: str, deps: Deps) -> Response:
    """Every revision, oldest first."""
    return json_response({"items": await deps.reader.revisions(ns, name), "next": None})


@router.get("/{name}/decisions")
async def list_decisions(ns: Namespace, name: str, deps: Deps) -> Response:
    """Every release decision, by revision."""
    return json_response({"items": await deps.reader.decisions(ns, name), "next": None})


@router.get("/{name}/history")
async def deployment_history(
    ns: Namespace, name: str, deps: Deps, after: After = None, limit: HistoryLimit = HISTORY_MAX
) -> Response:
    """Everything that happened to it and under it, oldest first; also once it is deleted."""
    return json_response(await deps.reader.history(Deployment, ns, name, after=after, limit=limit))


@router.get("/{name}/why")
async def why_deployment(ns: Namespace, name: str, deps: Deps) -> Response:
    """Why it is, or is not, running."""
    return json_response(await deps.explain.why(ns, name))
