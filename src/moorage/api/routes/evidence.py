"""`POST /namespaces/{ns}/deployments/{name}/evidence`: a quality score of a revision, measured outside."""

from typing import Annotated

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from moorage.api.deps import Actor, Deps, Key, Namespace
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.control.scores import post_score
from moorage.decide.serving.scores import Score
from moorage.domain.limits import COUNT_MAX

router = under_api("/namespaces/{ns}/deployments/{name}", tag="rollouts")

VALUE_MAX = 1e15


class EvidenceBody(BaseModel):
    """A score."""

    model_config = ConfigDict(extra="forbid")
    revision: Annotated[int, Field(ge=1)] | Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="number, name or id of the revision"
    )
    metric: str = Field(min_length=1, max_length=63, description="as `rollout.guard.quality.name`")
    value: float = Field(ge=-VALUE_MAX, le=VALUE_MAX, description="more is better", allow_inf_nan=False)
    samples: int = Field(ge=1, le=COUNT_MAX, description="cases that it is the mean of")


@router.post("/evidence")
async def post_evidence(
    *, ns: Namespace, name: str, body: EvidenceBody, deps: Deps, actor: Actor, key: Key
) -> Response:
    """Keep a quality score with a revision; the release guard compares it where the spec asks for its metric."""
    score = Score(str(body.revision), body.metric, body.value, body.samples)
    return json_response(await post_score(deps.store, deps.clock, ns, name, score, actor=actor, key=key))
