"""What the objects of the people's API look like, for the published description.

Used to describe, never on the way of a request: the views in `moorage.control` build plain values, and the tests hold
every view against these models, so that neither can say what the other does not. Called by `app` when the description
is asked for.
"""

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, Field

from moorage.api.schemas_serving import Deployment, Endpoint, Explanation, GuardDecision, Replica, Revision, Rollout
from moorage.api.shapes import Head, Json, Reason, Shape, Time

T = TypeVar("T")


class Run(Head):
    """A job, or the run behind one replica."""

    kind: Literal["Run"]
    state: str
    spec: Json
    deployment: str | None
    replica: str | None
    priority: int
    workers: dict[str, int]
    queue_position: int | None
    starts_by: Time | None
    exit_code: int | None
    queued_at: Time
    started_at: Time | None
    ended_at: Time | None
    crash_looping: bool
    last_failure: Json | None
    cancel: Json | None
    restarting: Json | None
    restarted_from: str | None
    schedule: Json | None
    scheduled_by: str | None
    deleting: bool


class Worker(Head):
    """One process or container of a run."""

    kind: Literal["Worker"]
    run: str
    deployment: str | None
    group: str
    rank: int
    state: str
    machine: str | None
    machine_id: str | None
    gpus: list[int]
    epoch: int
    attempt: int
    restarts: int
    restart_at: Time | None
    queued_at: Time
    placed_at: Time | None
    started_at: Time | None
    ended_at: Time | None
    heartbeat_at: Time | None
    exit_code: int | None
    last_failure: Json | None
    stop: Json | None
    waits: Json | None
    ready: bool
    address: str | None
    ports: dict[str, str]
    process: Json | None
    placement: Json | None


class MachineGpu(Shape):
    """One accelerator and who holds it."""

    index: int
    uuid: str | None
    vendor: str | None
    model: str | None
    name: str | None
    memory: int | None
    health: str
    fault: str | None
    foreign_bytes: int
    foreign_pids: list[int]
    holder: Literal["free", "held", "reserved", "foreign", "faulty"]
    worker: str | None
    work: str | None
    namespace: str | None
    reserved_for: str | None
    reserved_why: Literal["restart", "preemption", "head"] | None
    process: Json | None
    since: Time | None
    until: Time | None


class Machine(Head):
    """A machine that joined with an agent."""

    kind: Literal["Machine"]
    state: str
    cordoned: str | None
    draining: Json | None
    incarnation: str
    boot_id: str
    host: str
    reserve: Json
    capacity: Json
    allocated: dict[str, int]
    accepts: list[str]
    rack: str | None
    site: str | None
    fabrics: list[Json]
    gpus: list[MachineGpu]
    pressure: list[str]
    lease_expires_at: Time | None
    heartbeat_at: Time | None
    engines: list[str]
    capabilities: list[str]


class CachedModel(Shape):
    """A model that a machine keeps, or that is on its way there."""

    source: str
    state: Literal["cached", "fetching", "partial", "failed"]
    names: list[str]
    commit: str | None
    size: int
    done: int
    rate: int
    files: list[Json]
    path: str | None
    fetched_at: Time | None
    used_at: Time | None
    pinned: bool
    restricted: bool
    used_by: list[str]
    error: str | None


class ModelCache(Shape):
    """The models of one machine."""

    kind: Literal["ModelCache"]
    machine: str
    path: str
    limit_bytes: int | None
    disk_bytes: int
    free_bytes: int
    models: list[CachedModel]


class OperationTarget(Shape):
    """What an operation works on."""

    kind: str
    id: str
    name: str | None


class OperationLease(Shape):
    """Who carries an operation out."""

    owner: str
    generation: int
    expires_at: Time | None


class Operation(Head):
    """Durable, keyed, resumable work."""

    kind: Literal["Operation"]
    operation: str
    target: OperationTarget
    revision: str | None
    state: str
    steps: list[Json]
    progress: float
    key: str | None
    attempt: int
    next_attempt_at: Time | None
    waiting_reason: Json | None
    retryable: bool
    cancel_requested: bool
    cancelled_by: str | None
    resolution: Json | None
    lease: OperationLease | None
    error: Json | None


class ObjectRef(Shape):
    """Which object changed."""

    kind: str
    id: str
    name: str
    namespace: str


class Change(Shape):
    """One line of history; also one event."""

    object: ObjectRef
    kind: Literal["change", "note"]
    from_: str | None = Field(alias="from")
    to: str | None
    reason: Reason
    actor: str
    at: Time
    version: int
    cursor: str


class Scaling(ObjectRef):
    """How a deployment scales: the last decision and why, and the load that this control plane sees."""

    desired: int
    min: int
    max: int
    scales: bool
    target_in_flight: float
    up_after: float
    down_after: float
    slo: Json | None
    reason: Reason
    since: Time | None
    decided_at: Time | None
    goodput: Json | None
    load: Json | None
    decisions: list[Change]


class Tombstone(Shape):
    """What is left of a deleted object."""

    kind: str
    id: str
    name: str
    namespace: str
    deleted: Literal[True]
    deleted_at: Time
    state: str
    digest: str | None
    reason: Reason
    actor: str
    ownership: str | None
    deployment: str | None


class Items(Shape, Generic[T]):
    """A page of a list; `next` goes into `after` of the following request, null on the last page."""

    items: list[T]
    next: str | None


class Changes(Shape):
    """A page of changes; `cursor` is where to go on once more has happened."""

    items: list[Change]
    next: str | None
    cursor: str | None


class Error(BaseModel):
    """The one public error object."""

    code: str
    category: str
    message: str
    retryable: bool
    remedy: str | None
    target: str | None = None
    errors: list[Json] | None = None


_NS = "/api/v1/namespaces/{ns}"
_DEPLOYMENT = f"{_NS}/deployments/{{name}}"

ANSWERS: dict[str, type[BaseModel]] = {
    f"{_NS}/deployments": Items[Deployment],
    _DEPLOYMENT: Deployment,
    f"{_DEPLOYMENT}/replicas": Items[Replica],
    f"{_DEPLOYMENT}/scaling": Scaling,
    f"{_DEPLOYMENT}/revisions": Items[Revision],
    f"{_DEPLOYMENT}/history": Changes,
    f"{_DEPLOYMENT}/rollout": Rollout,
    f"{_DEPLOYMENT}/rollout/explain": Explanation,
    f"{_DEPLOYMENT}/decisions": Items[GuardDecision],
    f"{_NS}/endpoints": Items[Endpoint],
    f"{_NS}/endpoints/{{name}}": Endpoint,
    f"{_NS}/endpoints/{{name}}/history": Changes,
    f"{_NS}/runs": Items[Run],
    f"{_NS}/runs/{{name}}": Run,
    f"{_NS}/runs/{{name}}/workers": Items[Worker],
    f"{_NS}/runs/{{name}}/history": Changes,
    f"{_NS}/workers/{{name}}": Worker,
    f"{_NS}/workers/{{name}}/history": Changes,
    f"{_NS}/replicas/{{name}}": Replica,
    f"{_NS}/replicas/{{name}}/history": Changes,
    "/api/v1/machines": Items[Machine],
    "/api/v1/machines/{name}": Machine,
    "/api/v1/machines/{name}/history": Changes,
    "/api/v1/machines/{name}/cache": ModelCache,
    "/api/v1/operations": Items[Operation],
    "/api/v1/operations/{uid}": Operation,
    "/api/v1/events": Changes,
}
"""What a GET of each path answers."""

MODELS: tuple[type[BaseModel], ...] = (*dict.fromkeys(ANSWERS.values()), Error, Tombstone)
