"""`kind: Deployment`: a model kept served.

Which fields belong to the revision part and which are live is told by `REVISION_FIELDS` and `LIVE_FIELDS`.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from moorage.domain.errors import InvalidSpec
from moorage.domain.sources import hub_source
from moorage.wire.document import Document
from moorage.wire.fields import (
    AtLeastOne,
    Count,
    Duration,
    GuardRequests,
    Name,
    Part,
    Percent,
    Priority,
    ReplicaCount,
    Share,
    Workers,
)
from moorage.wire.runtime import (
    DriveUse,
    Expose,
    Outbound,
    Placement,
    ReadyRequest,
    Resources,
    ServerRuntime,
    each_once,
)

Provider = Literal["fleet", "kubernetes", "slurm"]

RISING_STEPS = "steps are per cent of the traffic, each above the one before: [5, 25, 50]"

SYNTHETIC_MAX = 200
"""Requests of one file: as many as are sent to a revision at most by default."""


class Model(Part):
    """Which model is served. Without `id`, readiness checks health only."""

    id: str | None = None
    source: str | None = None
    aliases: list[str] = Field(default_factory=list)

    @field_validator("source")
    @classmethod
    def _source_is_known(cls, source: str | None) -> str | None:
        try:
            if source is not None:
                hub_source(source)
        except InvalidSpec as error:
            raise ValueError(str(error.remedy)) from error
        return source

    @model_validator(mode="after")
    def _aliases_need_an_id(self) -> "Model":
        if self.aliases and self.id is None:
            raise ValueError("aliases are checked beside the model's id; set id as well")
        return self


class Replicas(Part):
    """How many copies. `max` is at least 1 unless said otherwise; `initial` is what the first start must reach."""

    min: ReplicaCount = 1
    max: ReplicaCount | None = None
    initial: ReplicaCount | None = None
    workers: Workers = 1

    @model_validator(mode="after")
    def _in_order(self) -> "Replicas":
        if self.max is None:
            self.max = max(self.min, 1, self.initial or 0)
        if self.initial is None:
            self.initial = min(max(self.min, 1), self.max)
        if self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}")
        if self.initial > self.max:
            raise ValueError(f"initial {self.initial} is above max {self.max}")
        if self.initial == 0 and self.min > 0:
            raise ValueError(f"initial 0 starts asleep, which needs min 0 (min is {self.min})")
        return self


class Slo(Part):
    """Latency targets."""

    ttft_p95: Duration | None = None
    latency_p95: Duration | None = None


class Scaling(Part):
    """When to start and stop copies. `idle_timeout` applies where min is 0."""

    target_in_flight: float = Field(default=8, gt=0)
    idle_timeout: Duration = 3600.0
    up_after: Duration = 5.0
    down_after: Duration = 300.0
    slo: Slo | None = None


class Quality(Part):
    """A score posted from outside that may not drop."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    max_drop: float = Field(default=0.01, ge=0)


class SyntheticRequest(ReadyRequest):
    """A request that is sent to both revisions while they are compared: POST `path` with a JSON body."""


class Guard(Part):
    """The release guard's policy.

    `synthetic` is the path of a file in a spec; the client reads it, and what travels is its requests.
    """

    enabled: bool = True
    minimum_requests: GuardRequests = 20
    ttft_percent: Percent = 15
    latency_percent: Percent = 15
    error_rate: Share = 0.01
    throughput_percent: Percent = 20
    synthetic: str | Annotated[list[SyntheticRequest], Field(min_length=1, max_length=SYNTHETIC_MAX)] | None = None
    quality: Quality | None = None


class Rollout(Part):
    """How a new revision takes over."""

    strategy: Literal["none", "header", "canary", "mirror"] = "none"
    steps: list[int] = Field(default_factory=lambda: [5, 25, 50])
    step_interval: Duration = 60.0
    auto: bool = True
    capacity: Literal["extra", "replace"] = "extra"
    deadline: Duration = 1800.0
    rollback_window: Duration = 300.0
    guard: Guard = Field(default_factory=Guard)

    @field_validator("steps")
    @classmethod
    def _rising(cls, steps: list[int]) -> list[int]:
        if steps != sorted(set(steps)) or any(not 0 < step <= 100 for step in steps):
            raise ValueError(RISING_STEPS)
        return steps

    @model_validator(mode="after")
    def _a_canary_has_steps(self) -> "Rollout":
        if self.strategy == "canary" and not self.steps:
            raise ValueError(f"a canary needs at least one step, and steps is empty; {RISING_STEPS}")
        return self


class Gateway(Part):
    """How gateways treat requests for it; `max_in_flight` per replica, `max_queue` in all.

    `affinity`: requests of one session, or with one beginning, go to one replica while it has room.
    `retry`: which requests are sent once more when a kept connection turned out closed before a byte of the answer.
    `hold_comments`: a request that streams and waits for longer gets its head and a comment, and one each time again.
    """

    max_in_flight: AtLeastOne = 16
    max_queue: Count = 100
    queue_timeout: Duration = 60.0
    drain: Duration = 60.0
    connect_timeout: Duration = 2.0
    first_byte_timeout: Duration = 600.0
    affinity: Literal["none", "prefix", "session"] = "none"
    retry: Literal["never", "idempotent", "always"] = "idempotent"
    hold_comments: Duration | None = None

    @field_validator("hold_comments")
    @classmethod
    def _not_without_pause(cls, value: float | None) -> float | None:
        if value is not None and value < 1:
            raise ValueError("hold_comments is the time between two comments: 1s or more, such as 15s")
        return value


class Deployment(Document):
    """A model kept served by one or more replicas."""

    kind: Literal["Deployment"] = "Deployment"
    name: Name
    model: Model = Field(default_factory=Model)
    runtime: ServerRuntime
    resources: Resources = Field(default_factory=Resources)
    placement: Placement = Field(default_factory=Placement)
    provider: Provider = "fleet"
    replicas: Replicas = Field(default_factory=Replicas)
    priority: Priority = 0
    scaling: Scaling = Field(default_factory=Scaling)
    rollout: Rollout = Field(default_factory=Rollout)
    gateway: Gateway = Field(default_factory=Gateway)
    identity: bool = False
    outbound: Outbound | None = None
    sandbox: bool = False
    tool_gateway: bool = False
    expose: list[Expose] = Field(default_factory=list)
    drives: list[DriveUse] = Field(default_factory=list)

    _expose = field_validator("expose")(each_once)

    @model_validator(mode="after")
    def _model_has_a_source(self) -> "Deployment":
        if self.model.source is None and any("{model}" in argument for argument in self.runtime.command):
            raise ValueError("runtime.command uses {model}, but model.source is not set")
        return self


REVISION_FIELDS = (
    "model",
    "runtime",
    "resources",
    "placement",
    "provider",
    "identity",
    "outbound",
    "sandbox",
    "tool_gateway",
    "expose",
    "drives",
)
"""Top-level fields of the revision part; `replicas.workers` belongs to it as well."""

LIVE_FIELDS = ("labels", "annotations", "priority", "scaling", "rollout", "gateway")
"""Top-level fields of the live part; `replicas` without `workers` belongs to it as well."""
