"""`kind: Run`: a job of one or more groups of workers."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from moorage.wire.deployment import Provider
from moorage.wire.document import Document
from moorage.wire.fields import AtLeastOne, Count, Duration, Name, Part
from moorage.wire.runtime import DriveUse, Expose, JobRuntime, Outbound, Placement, Resources


class DependsOn(Part):
    """Waits for another group of the same run."""

    group: Name
    condition: Literal["running", "healthy"] = "running"


class Group(Part):
    """Workers alike. Either `count`, or `total_gpus` (on `machines`), planned evenly."""

    name: Name = "worker"
    count: AtLeastOne | None = None
    total_gpus: AtLeastOne | None = None
    machines: AtLeastOne | None = None
    runtime: JobRuntime
    resources: Resources = Field(default_factory=Resources)
    restart_policy: Literal["OnFailure", "Always", "Never"] = "OnFailure"
    depends_on: list[DependsOn] = Field(default_factory=list)
    expose: list[Expose] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_way_of_counting(self) -> "Group":
        if self.count is not None and self.total_gpus is not None:
            raise ValueError("count and total_gpus are two ways of saying how many workers; keep one")
        if self.machines is not None and self.total_gpus is None:
            raise ValueError("machines goes with total_gpus")
        if self.count is None and self.total_gpus is None:
            self.count = 1
        return self


class GangMinimum(Part):
    """A gang that may start with some of its workers."""

    min_available: AtLeastOne


def _gang_form(value: Any) -> str:
    return "minimum" if isinstance(value, dict | GangMinimum) else "whole"


Gang = Annotated[
    Annotated[bool, Tag("whole")] | Annotated[GangMinimum, Tag("minimum")],
    Discriminator(_gang_form),
]


class Restart(Part):
    """How a failed worker is started again."""

    backoff: Duration = 10.0
    backoff_max: Duration = 300.0
    budget: Count = 10
    reset_after: Duration = 600.0


class Array(Part):
    """The same worker many times, each with its own index."""

    count: AtLeastOne
    max_parallel: AtLeastOne | None = None
    fail: Literal["first", "end"] = "end"


class After(Part):
    """Waits for another run."""

    run: Name
    condition: Literal["completed", "failed", "ended", "running"] = "completed"


class Schedule(Part):
    """Makes runs NAME-TIME."""

    cron: str
    timezone: str = "UTC"
    concurrency: Literal["forbid", "allow", "replace"] = "forbid"
    keep: Count = 3


class Run(Document):
    """A job."""

    kind: Literal["Run"] = "Run"
    name: Name
    groups: list[Group] = Field(min_length=1)
    gang: Gang = False
    leader: str | None = None
    on_failure: Literal["RestartJob", "RestartTask"] | None = None
    restart: Restart = Field(default_factory=Restart)
    on_disconnect: Literal["keep", "stop"] = "keep"
    disconnect_after: Duration = 600.0
    complete_with: Name | None = None
    array: Array | None = None
    priority: int = 0
    time_limit: Duration | None = None
    heartbeat_ttl: Duration | None = None
    barrier_timeout: Duration = 900.0
    max_queue_time: Duration | None = None
    ttl_after_finished: Duration = 604800.0
    after: list[After] = Field(default_factory=list)
    preempt_grace: Duration = 30.0
    schedule: Schedule | None = None
    lifetime: Literal["job", "service"] = "job"
    provider: Provider = "fleet"
    placement: Placement = Field(default_factory=Placement)
    drives: list[DriveUse] = Field(default_factory=list)
    identity: bool = False
    outbound: Outbound | None = None
    sandbox: bool = False
    tool_gateway: bool = False
    output: Name | None = None

    @model_validator(mode="after")
    def _groups_exist(self) -> "Run":
        names = [group.name for group in self.groups]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two groups are named {', '.join(twice)}")
        if self.complete_with is not None and self.complete_with not in names:
            raise ValueError(f"complete_with names {self.complete_with}; the groups are {', '.join(names)}")
        for group in self.groups:
            for need in group.depends_on:
                if need.group not in names or need.group == group.name:
                    raise ValueError(f"group {group.name} depends on {need.group}; others are {', '.join(names)}")
        if self.on_failure is None:
            self.on_failure = "RestartTask" if self.gang is False else "RestartJob"
        if self.leader is None and self.gang is not False:
            self.leader = f"{names[0]}-0"
        return self
