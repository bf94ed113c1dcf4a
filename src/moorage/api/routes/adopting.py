"""`POST /namespaces/{ns}/deployments/{name}/adopt`: a server that somebody else started becomes a deployment."""

from typing import Literal

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from moorage.api.deps import Actor, Deps, Key, Namespace
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.wire.deployment import Gateway, Model

router = under_api("/namespaces/{ns}/deployments", tag="deployments")


class AdoptBody(BaseModel):
    """What to adopt, and how far it is to be ours.

    `observe` looks at it, `traffic` also sends requests there, `lifecycle` may also end it and needs `resource`.
    """

    model_config = ConfigDict(extra="forbid")
    url: str = Field(max_length=2000)
    mode: Literal["observe", "traffic", "lifecycle"]
    resource: str | None = Field(default=None, max_length=500)
    """MACHINE/pid:N or MACHINE/container:ID"""
    model: Model = Field(default_factory=Model)
    gateway: Gateway = Field(default_factory=Gateway)
    labels: dict[str, str] = Field(default_factory=dict)


@router.post("/{name}/adopt", status_code=202)
async def adopt(*, ns: Namespace, name: str, body: AdoptBody, deps: Deps, actor: Actor, key: Key) -> Response:
    """Adopt: {deployment, operation, changed}. The same again changes nothing."""
    spec = {
        "kind": "Deployment",
        "name": name,
        "namespace": ns,
        "labels": body.labels,
        "model": body.model.model_dump(exclude_none=True),
        "gateway": body.gateway.model_dump(),
        "replicas": {"min": 1, "max": 1},
    }
    answer = await deps.adoption(
        ns, name, url=body.url, mode=body.mode, resource=body.resource, spec=spec, actor=actor, key=key
    )
    return json_response(answer, 202)
