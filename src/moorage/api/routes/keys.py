"""`/namespaces/{ns}/keys`: what clients of endpoints show. Only the answer to a create has a key's text."""

from fastapi import APIRouter, Request, Response

from moorage.api.bodies import described, read
from moorage.api.deps import Actor, Deps, Key, Namespace
from moorage.api.errors import json_response
from moorage.domain.ids import check_name
from moorage.wire.key import KeyBody, KeyChange, RevokeBody

router = APIRouter(prefix="/namespaces/{ns}/keys", tags=["keys"])

MESSAGES = (KeyBody, KeyChange, RevokeBody)


@router.get("")
async def list_keys(ns: Namespace, deps: Deps) -> Response:
    """Every key of a namespace; never their texts."""
    return json_response({"items": await deps.client_keys.listed(ns), "next": None})


@router.post("", openapi_extra=described(KeyBody, None))
async def create_key(ns: Namespace, request: Request, deps: Deps, actor: Actor, key: Key) -> Response:
    """Make one; its text is under `key`, this once: the same order again is answered with null there."""
    body = await read(request, KeyBody)
    made = await deps.client_keys.create(check_name(ns, "namespace"), body, actor=actor, key=key)
    return json_response(made, 201, {"Cache-Control": "no-store"})


@router.get("/{name}")
async def get_key(ns: Namespace, name: str, deps: Deps) -> Response:
    """One of them; never its text."""
    return json_response(await deps.client_keys.get(ns, name))


@router.patch("/{name}", openapi_extra=described(KeyChange, None))
async def change_key(*, ns: Namespace, name: str, request: Request, deps: Deps, actor: Actor, key: Key) -> Response:
    """Other limits, endpoints or words; what is left out stays."""
    body = await read(request, KeyChange)
    return json_response(await deps.client_keys.change(ns, name, body, actor=actor, key=key))


@router.post("/{name}/revoke")
async def revoke_key(
    *, ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key, body: RevokeBody | None = None
) -> Response:
    """It opens nothing any more, as soon as gateways have heard of it. It stays in the list until it is deleted."""
    text = body.text if body else None
    return json_response(await deps.client_keys.revoke(ns, name, text=text, actor=actor, key=key))


@router.delete("/{name}")
async def delete_key(ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key) -> Response:
    """Forget it; its name is free again."""
    return json_response(await deps.client_keys.delete(ns, name, actor=actor, key=key))
