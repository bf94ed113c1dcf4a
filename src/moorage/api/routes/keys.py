"""`/namespaces/{ns}/keys`: what clients of endpoints show. Only the answer to a create has a key's text."""

from typing import Annotated, Literal

from fastapi import Query, Request, Response

from moorage.api.bodies import described, read
from moorage.api.deps import Actor, Deps, Key, Namespace
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.api.queries import After, HistoryLimit
from moorage.control.reading import HISTORY_MAX
from moorage.control.used import span_of
from moorage.domain.ids import check_name
from moorage.domain.nouns import Key as ClientKey
from moorage.wire.key import KeyBody, KeyChange, RevokeBody

router = under_api("/namespaces/{ns}/keys", tag="keys")

MESSAGES = (KeyBody, KeyChange, RevokeBody)


Since = Annotated[str | None, Query(alias="from", description="first day, or a time on it; else 30 days back")]
Until = Annotated[str | None, Query(alias="to", description="last day, or a time on it; else today")]
Used = Annotated[str | None, Query(description="also what was used with each from this day on, under `usage`")]


@router.get("")
async def list_keys(ns: Namespace, deps: Deps, used_from: Used = None) -> Response:
    """Every key of a namespace; never their texts."""
    used = None if used_from is None else span_of(used_from, None, deps.clock.now())
    return json_response({"items": await deps.client_keys.listed(ns, used), "next": None})


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


@router.get("/{name}/history")
async def key_history(
    ns: Namespace, name: str, deps: Deps, after: After = None, limit: HistoryLimit = HISTORY_MAX
) -> Response:
    """Everything that was set about it, oldest first, and by whom; also once it is deleted."""
    return json_response(await deps.reader.history(ClientKey, ns, name, after=after, limit=limit))


@router.get("/{name}/usage")
async def key_usage(
    *,
    ns: Namespace,
    name: str,
    deps: Deps,
    since: Since = None,
    until: Until = None,
    bucket: Literal["day", "total"] = "day",
    endpoint: Annotated[str | None, Query(description="only what named this one")] = None,
) -> Response:
    """Requests and tokens with one key, by day (UTC) and endpoint; also of a deleted one, by its id."""
    span = span_of(since, until, deps.clock.now())
    return json_response(await deps.client_keys.usage(ns, name, span, bucket=bucket, endpoint=endpoint))


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
