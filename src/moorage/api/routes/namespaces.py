"""`/namespaces[/{ns}]` and `/quotas[/{ns}]`: which machines a namespace may use, and how much of everything."""

from fastapi import Request, Response

from moorage.api.bodies import described, read
from moorage.api.deps import Actor, Deps, Key, Namespace
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.domain.ids import check_name
from moorage.wire.namespace import NamespaceBody, QuotaBody

router = under_api("/namespaces", tag="namespaces")
quotas = under_api("/quotas", tag="namespaces")

MESSAGES = (NamespaceBody, QuotaBody)


@router.get("")
async def list_namespaces(deps: Deps) -> Response:
    """`default`, those that were made, and those in which something lives."""
    return json_response({"items": await deps.namespaces.listed(), "next": None})


@router.get("/{ns}")
async def get_namespace(ns: Namespace, deps: Deps) -> Response:
    """One of them; 404 when nobody made it and nothing lives in it."""
    return json_response(await deps.namespaces.get(_checked(ns)))


@router.put("/{ns}", openapi_extra=described(NamespaceBody, None))
async def set_namespace(ns: Namespace, request: Request, deps: Deps, actor: Actor, key: Key) -> Response:
    """Make it, or change it: labels of the machines that it may use, and a description."""
    body = await read(request, NamespaceBody)
    return json_response(await deps.namespaces.put(_checked(ns), body, actor=actor, key=key))


@router.delete("/{ns}")
async def remove_namespace(ns: Namespace, deps: Deps, actor: Actor, key: Key) -> Response:
    """Forget what was set about it; refused while something lives in it. A quota stays until it is removed."""
    return json_response(await deps.namespaces.remove(_checked(ns), actor=actor, key=key))


@quotas.get("")
async def list_quotas(deps: Deps) -> Response:
    """What every namespace may hold and does."""
    return json_response({"items": await deps.namespaces.quotas(), "next": None})


@quotas.get("/{ns}")
async def get_quota(ns: Namespace, deps: Deps) -> Response:
    """What one may hold and does; without a quota its `limits` are empty."""
    return json_response(await deps.namespaces.quota(_checked(ns)))


@quotas.put("/{ns}", openapi_extra=described(QuotaBody, None))
async def set_quota(ns: Namespace, request: Request, deps: Deps, actor: Actor, key: Key) -> Response:
    """Set all of its limits. What it holds already stays, even above them."""
    body = await read(request, QuotaBody)
    return json_response(await deps.namespaces.set_quota(_checked(ns), body.limits, actor=actor, key=key))


@quotas.delete("/{ns}")
async def remove_quota(ns: Namespace, deps: Deps, actor: Actor, key: Key) -> Response:
    """Unlimited again."""
    return json_response(await deps.namespaces.remove_quota(_checked(ns), actor=actor, key=key))


def _checked(ns: str) -> str:
    return check_name(ns, "namespace")
