"""`/namespaces/{ns}/endpoints…`: names that clients call, and the deployments that answer for them."""

from typing import Annotated, Any

from fastapi import Body, Query, Request, Response

from moorage.api.bodies import described, read
from moorage.api.deps import Actor, Deps, Key, Namespace
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.api.queries import After, CreateOnly, Deleted, HistoryLimit, Paged, check_address
from moorage.control.reading import HISTORY_MAX
from moorage.domain.ids import check_name
from moorage.domain.nouns import Endpoint
from moorage.wire.endpoint import BindBody

router = under_api("/namespaces/{ns}/endpoints", tag="endpoints")

MESSAGES = (BindBody,)

Document = Annotated[dict[str, Any], Body(description="an Endpoint document; see the specs' JSON Schema")]
Own = Annotated[bool, Query(description="also those that deployments have of their own")]


@router.get("")
async def list_endpoints(
    ns: Namespace, deps: Deps, page: Paged, deleted: Deleted = False, own: Own = False
) -> Response:
    """Endpoints of a namespace that people made; with `own`, those of deployments as well."""
    if deleted:
        return json_response({"items": await deps.reader.tombstones(Endpoint, ns), "next": None})
    return json_response(await deps.endpoints.listed(ns, page, own=own))


@router.get("/{name}")
async def get_endpoint(ns: Namespace, name: str, deps: Deps, deleted: Deleted = False) -> Response:
    """One endpoint, or a deployment's own; with `deleted`, what is left of the one last deleted under that name."""
    if not deleted:
        return json_response(await deps.endpoints.get(ns, name))
    return json_response(await deps.reader.tombstone(Endpoint, ns, name))


@router.put("/{name}")
async def apply_endpoint(
    *,
    ns: Namespace,
    name: str,
    document: Document,
    deps: Deps,
    actor: Actor,
    key: Key,
    create_only: CreateOnly,
) -> Response:
    """Apply: {endpoint, changed, warnings}, once it is durable. Doing it again changes nothing."""
    check_address(document, ns, name)
    answer = await deps.endpoints.apply(ns, name, document, actor=actor, key=key, create_only=create_only)
    return json_response(answer)


@router.post("/{name}/bind", openapi_extra=described(BindBody, None))
async def bind_endpoint(*, ns: Namespace, name: str, request: Request, deps: Deps, actor: Actor, key: Key) -> Response:
    """Other routes, its limits and labels as they are; made where there is none: as an apply."""
    body = await read(request, BindBody)
    routes = [route.model_dump() for route in body.routes]
    where = check_name(ns, "namespace")
    return json_response(await deps.endpoints.bind(where, check_name(name), routes, actor=actor, key=key))


@router.delete("/{name}")
async def delete_endpoint(
    *, ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key, dry_run: Annotated[bool, Query()] = False
) -> Response:
    """Take it away: {endpoint, deleted}; with `dry_run`, what that would touch."""
    if dry_run:
        return json_response(await deps.endpoints.delete_dry_run(ns, name))
    return json_response(await deps.endpoints.delete(ns, name, actor=actor, key=key))


@router.post("/{name}/plan")
async def plan_endpoint(ns: Namespace, name: str, document: Document, deps: Deps) -> Response:
    """What an apply of this document would change."""
    check_address(document, ns, name)
    return json_response(await deps.endpoints.plan(ns, name, document))


@router.get("/{name}/history")
async def endpoint_history(
    ns: Namespace, name: str, deps: Deps, after: After = None, limit: HistoryLimit = HISTORY_MAX
) -> Response:
    """Everything that was set about it, oldest first; also once it is deleted."""
    return json_response(await deps.reader.history(Endpoint, ns, name, after=after, limit=limit))


@router.get("/{name}/why")
async def why_endpoint(ns: Namespace, name: str, deps: Deps) -> Response:
    """Which deployments answer for it, and their state."""
    return json_response(await deps.endpoints.why(ns, name))
