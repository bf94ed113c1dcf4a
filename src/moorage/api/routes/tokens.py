"""`/tokens/join`."""

from fastapi import Response
from pydantic import BaseModel, ConfigDict

from moorage.api.deps import Deps
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.control.credentials import JOIN_TTL_S_DEFAULT
from moorage.control.views import iso

router = under_api(tag="tokens")


class JoinTokenBody(BaseModel):
    """How long agents may join with it, seconds."""

    model_config = ConfigDict(extra="forbid")
    ttl_s: float = JOIN_TTL_S_DEFAULT


@router.post("/tokens/join")
async def make_join_token(deps: Deps, body: JoinTokenBody | None = None) -> Response:
    """A token with which agents may join; shown this once."""
    made = await deps.credentials.issue_join((body or JoinTokenBody()).ttl_s)
    shown = {"kind": "Token", "id": made.id, "role": "join", "token": made.token, "expires_at": iso(made.expires_at)}
    return json_response(shown, 201, {"Cache-Control": "no-store"})
