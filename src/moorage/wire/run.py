"""`kind: Run`: a job of one or more groups of workers."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from moorage.domain import ids, limits
from moorage.wire.deployment import Provider
from moorage.wire.document import Document
from moorage.wire.fields import AtLeastOne, Count, Duration, GpuTotal, Name, Part, Priority, SomeTime, Workers
from moorage.wire.runtime import DriveUse, Expose, JobRuntime, Outbound, Placement, Resources, each_once

STAMP_LENGTH = len("-202611290300")
"""What a schedule adds to its name for each run that it makes."""


HEARTBEAT_TTL_MIN_S = 1.0
"""Signs of life are looked at about once a second."""


class DependsOn(Part):
    """Waits for another group of the same run."""

    group: Name
    condition: Literal["running", "healthy"] = "running"


class Group(Part):
    """Workers alike. Either `count`, or `total_gpus` (on `machines`), planned evenly."""

    name: Name = "worker"
    count: Workers | None = None
    total_gpus: GpuTotal | None = None
    machines: Workers | None = None
    runtime: JobRuntime
    resources: Resources = Field(default_factory=Resources)
    restart_policy: Literal["OnFailure", "Always", "Never"] = "OnFailure"
    depends_on: list[DependsOn] = Field(default_factory=list)
    expose: list[Expose] = Field(default_factory=list)

    _expose = field_validator("expose")(each_once)

    @model_validator(mode="after")
    def _one_way_of_counting(self) -> "Group":
        if self.count is not None and self.total_gpus is not None:
            raise ValueError("count and total_gpus are two ways of saying how many workers; keep one")
        if self.machines is not None and self.total_gpus is None:
            raise ValueError("machines goes with total_gpus")
        if self.count is None and self.total_gpus is None:
            self.count = 1
        if self.total_gpus is not None and self.resources.gpus.count > 1:
            raise ValueError("total_gpus plans how many GPUs each worker gets; leave resources.gpus.count out")
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

    count: Workers
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

    @field_validator("cron")
    @classmethod
    def _five_fields(cls, value: str) -> str:
        if len(value.split()) != 5:
            raise ValueError("a cron expression has five fields: minute, hour, day of month, month, day of week")
        try:
            CronSim(value, datetime(2026, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            raise ValueError(f"{value!r} is no cron expression: {error}") from error
        return value

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"{value!r} is no time zone known here; write one as Europe/Berlin") from error
        return value


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
    disconnect_after: SomeTime = 600.0
    complete_with: Name | None = None
    array: Array | None = None
    priority: Priority = 0
    time_limit: SomeTime | None = None
    heartbeat_ttl: SomeTime | None = None
    barrier_timeout: SomeTime = 900.0
    max_queue_time: SomeTime | None = None
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

    @field_validator("heartbeat_ttl")
    @classmethod
    def _a_sign_can_come_in_time(cls, seconds: float | None) -> float | None:
        if seconds is not None and seconds < HEARTBEAT_TTL_MIN_S:
            raise ValueError(
                f"a worker that is silent for {seconds:g} s may only be busy; the least is {HEARTBEAT_TTL_MIN_S:g}s"
            )
        return seconds

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
            if group.depends_on and self.gang is not False:
                raise ValueError(f"a gang starts together, so group {group.name} cannot wait for another one of it")
        self._no_circle()
        if self.output is not None:
            kept = next((use for use in self.drives if use.name == self.output), None)
            if kept is None or kept.place or kept.read_only:
                raise ValueError(
                    f"output names {self.output}: it must be one of drives, without read_only and without place "
                    "(what is written to a copy is not carried back)"
                )
        if self.on_failure is None:
            self.on_failure = "RestartTask" if self.gang is False else "RestartJob"
        if self.leader is None and self.gang is not False:
            self.leader = f"{names[0]}-0"
        return self

    def _no_circle(self) -> None:
        """Groups that wait for each other would wait for ever."""
        left = {group.name: {need.group for need in group.depends_on} for group in self.groups}
        while free := [name for name, needs in left.items() if not needs & left.keys()]:
            for name in free:
                del left[name]
        if left:
            raise ValueError(f"groups {', '.join(left)} wait for each other")

    @model_validator(mode="after")
    def _counts_agree(self) -> "Run":
        self._not_too_many()
        counts = [group.count for group in self.groups]
        whole = None if None in counts else sum(count or 0 for count in counts)
        if isinstance(self.gang, GangMinimum) and whole is not None and self.gang.min_available > whole:
            raise ValueError(f"gang.min_available is {self.gang.min_available}, and there are {whole} workers")
        if self.array is not None:
            self._check_array(self.groups[0])
        if self.leader is not None:
            self._check_leader(self.leader)
        return self

    def _not_too_many(self) -> None:
        """One run's workers are decided on together, so there is a limit to them."""
        planned = sum(group.count or group.machines or 1 for group in self.groups)
        asked = self.array.count if self.array is not None else planned
        if asked > limits.WORKERS_MAX:
            raise ValueError(
                f"its groups have {asked} workers together; a run has at most {limits.WORKERS_MAX}: {limits.SPLIT_SPEC}"
            )

    def _check_array(self, group: Group) -> None:
        if len(self.groups) > 1 or self.gang is not False:
            raise ValueError("an array is one group of workers that need nothing of each other, so no gang")
        if group.total_gpus is not None or group.count != 1:
            raise ValueError("array.count says how many workers there are; leave count and total_gpus of the group out")

    def _check_leader(self, leader: str) -> None:
        name, _, rank = leader.rpartition("-")
        group = next((g for g in self.groups if g.name == name), None)
        known = group is not None and rank.isdecimal()
        if group is None or not known or (group.count is not None and int(rank) >= group.count):
            raise ValueError(f"leader is {leader!r}; it is written GROUP-RANK, as in {self.groups[0].name}-0")

    @model_validator(mode="after")
    def _names_fit(self) -> "Run":
        if any(need.run == self.name for need in self.after):
            raise ValueError(f"run {self.name} would wait for itself")
        if self.schedule is not None and len(self.name) + STAMP_LENGTH > ids.NAME_MAX:
            most = ids.NAME_MAX - STAMP_LENGTH
            raise ValueError(f"the name of a run with a schedule has at most {most} characters: its runs are NAME-TIME")
        return self
