"""`/namespaces/{ns}/secrets`: set, listed without their values, removed. No route gives a value back."""

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from moorage.api.bodies import described, read
from moorage.api.deps import Deps, Namespace
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.domain.ids import check_name

router = under_api("/namespaces/{ns}/secrets", tag="secrets")


class SecretBody(BaseModel):
    """Values by key."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    values: dict[str, str] = Field(repr=False)


@router.get("")
async def list_secrets(ns: Namespace, deps: Deps) -> Response:
    """Names, keys and times; never values."""
    return json_response({"items": await deps.vault.list(ns), "next": None})


@router.get("/{name}")
async def get_secret(ns: Namespace, name: str, deps: Deps) -> Response:
    """One of them; never its values."""
    return json_response(await deps.vault.describe(ns, name))


@router.put("/{name}", openapi_extra=described(SecretBody, None))
async def put_secret(ns: Namespace, name: str, request: Request, deps: Deps) -> Response:
    """Set it, with exactly these keys."""
    body = await read(request, SecretBody)
    return json_response(await deps.vault.put(check_name(ns, "namespace"), check_name(name), body.values))


@router.delete("/{name}")
async def delete_secret(ns: Namespace, name: str, deps: Deps) -> Response:
    """Remove it; workers that have its values keep them until they end."""
    await deps.vault.remove(ns, name)
    return json_response({"kind": "Secret", "name": name, "namespace": ns, "deleted": True})
