"""What deployments, revisions, rollouts and replicas look like; as `schemas`, which publishes them."""

from typing import Literal

from pydantic import BaseModel

from moorage.api.shapes import Head, Json, Reason, Shape, Time


class EndpointRef(Shape):
    """Under which name requests reach it; `model` is what their body says."""

    name: str
    namespace: str
    model: str
    own: bool
    weight: int | None


class EndpointRoute(Shape):
    """A deployment behind an endpoint; `share` is its part of the requests now, in per cent."""

    deployment: str
    id: str | None
    weight: int
    share: float
    phase: str | None
    ready_replicas: int
    serving: bool
    passed_over: str | None


class EndpointGateway(Shape):
    """A gateway that may route, and the newest generation that it confirmed; null: it has not reported yet."""

    id: str
    generation: int | None
    lease_expires_at: Time


class Endpoint(Head):
    """A name that clients call; `own`: a deployment's. A gateway has it as it is when its generation is as high."""

    kind: Literal["Endpoint"]
    own: bool
    spec: Json | None
    url: str
    model: str
    routes: list[EndpointRoute]
    serving: bool
    limits: dict[str, int | None]
    generation: int | None
    gateways: list[EndpointGateway]


class GuardDecision(BaseModel):
    """What the release guard said of a revision, with the policy and the evidence that it was said on."""

    kind: Literal["GuardDecision"]
    revision: str
    number: int
    id: str
    verdict: Literal["ACCEPT", "WAIT", "REJECT"]
    reasons: list[Json]
    policy: Json
    evidence: Json
    at: Time


class Rollout(Shape):
    """What moves in a deployment; `message` says it in plain words, `kind_of` is null where nothing moves."""

    kind: Literal["Rollout"]
    deployment: str
    name: str
    namespace: str
    kind_of: Literal["rollout", "rollback", "window"] | None
    revision: str | None
    number: int | None
    state: str | None
    baseline: Json | None
    strategy: str
    steps: list[int]
    step: int | None
    weight: int | None
    step_until: Time | None
    auto: bool
    since: Time | None
    deadline: Time | None
    window_until: Time | None
    by: str | None
    why: str | None
    evidence: Json | None
    decision: GuardDecision | None
    replicas: Json
    confirmed: list[str]
    draining: Json | None
    message: str


class Explanation(Shape):
    """A stored release decision worked out again from its own inputs; `identical`: to the byte."""

    kind: Literal["Explanation"]
    deployment: str
    name: str
    decision: GuardDecision
    identical: bool
    digest: str
    replayed_digest: str
    replayed: GuardDecision | None


class Deployment(Head):
    """A model kept served. `phase` says what is happening, `status` what was decided."""

    kind: Literal["Deployment"]
    status: Literal["created", "paused", "failed", "stopped"]
    phase: str
    spec: Json
    desired_replicas: int
    current_replicas: int
    ready_replicas: int
    starting_replicas: int
    serving: bool
    initial_scale_reached: bool
    promotion_in_progress: bool
    active_revision: str | None
    candidate_revision: str | None
    operation: str | None
    url: str
    model: str
    last_failure: Json | None
    retry_at: Time | None
    crash_looping: bool
    paused_at: Time | None
    ownership: str
    deleting: bool
    endpoints: list[EndpointRef]
    rollout: Rollout | None


class Revision(Head):
    """One immutable version of what a deployment serves."""

    kind: Literal["Revision"]
    deployment: str
    number: int
    digest: str
    state: str
    spec: Json
    pins: Json
    decisions: list[Json]
    capacity_gone: bool


class Identity(Shape):
    """Whose a resource is: never its name."""

    deployment: str
    revision: str
    ordinal: int
    attempt: int


class Provider(Shape):
    """Where a replica lives, and what was last seen of it."""

    name: str
    identity: Identity
    resource_id: Json | None
    digest: str | None
    owner: str
    observed_at: Time | None
    inventory_complete: bool


class Replica(Head):
    """One copy of a revision."""

    kind: Literal["Replica"]
    deployment: str
    revision: str
    ordinal: int
    attempt: int
    status: str
    fail_reason: str | None
    fatal: bool
    run: str
    machines: list[str]
    address: str | None
    routed: bool
    routed_why: Json | None
    ready_at: Time | None
    in_flight: int | None
    put_aside: Json | None
    draining: Json | None
    ended_at: Time | None
    last_failure: Json | None
    worker_reason: Reason | None
    provider: Provider
