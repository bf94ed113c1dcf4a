"""The rows: one dataclass a noun, written once (`written`), as the store keeps it and as decisions see it.

Fields hold only JSON values (str, int, float, bool, None, tuple, Mapping) besides the state enumeration and the
`Reason`, so that one codec serves every noun. Times are seconds since the epoch (UTC) as floats; durations end in
`_s`; sizes in `_bytes`; CPU in `_milli`. `version` is the optimistic version, raised by each write of the row.
Only the store makes new versions; everybody else asks for a `Change`.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from moorage.domain.noun import JsonMap
from moorage.domain.noun import Noun as Noun  # noqa: PLC0414  # everybody imports it from here
from moorage.domain.states import (
    DeploymentStatus,
    EndpointState,
    KeyState,
    MachineState,
    NamespaceState,
    OperationState,
    ReplicaStatus,
    RevisionState,
    RunState,
    WorkerState,
)
from moorage.domain.written import row


@row
class Deployment(Noun):
    """A model kept served. `spec` is the normalised spec document (both parts)."""

    kind: ClassVar[str] = "Deployment"
    state_field: ClassVar[str] = "status"

    status: DeploymentStatus = DeploymentStatus.CREATED
    spec: JsonMap = field(default_factory=dict)
    active_revision: str | None = None
    candidate_revision: str | None = None
    revision_count: int = 0
    operation: str | None = None
    """uid of the operation that blocks, if any"""
    initial_scale_reached: bool = False
    ever_ready: bool = False
    past_pulling: bool = False
    """a replica once got as far as starting its server"""
    first_ready_at: float | None = None
    active_at: float | None = None
    """end of the last request as gateways report it (the idle clock starts here, never before the first ready)"""
    failures_in_row: int = 0
    failed_at: float | None = None
    """when the last replica failure was counted (the back-off runs from here)"""
    last_failure: JsonMap | None = None
    """{replica, fail_reason, reason (wire form), exit_code, log, fatal, at}"""
    fatal_since_ran: bool = False
    """a replica failed fatally since one last ran"""
    attempts: JsonMap = field(default_factory=dict)
    """ordinal (as text) -> attempts used so far"""
    queued: JsonMap = field(default_factory=dict)
    """ordinal (as text) -> submission time of its first attempt since it was last stopped on purpose"""
    not_ready: tuple[int, ...] = ()
    """ordinals whose last replica was not ready in time"""
    retry_at: float | None = None
    paused_at: float | None = None
    hold: JsonMap | None = None
    """pausing handshake: {generation, since, why}"""
    waking: JsonMap | None = None
    """{since, held}: a wake in progress"""
    wakes: int = 0
    """wakes begun; one per pause"""
    wake_failures: int = 0
    """failed wakes so far; a gateway answers the requests it holds when this rises"""
    deleting: bool = False
    deleted_at: float | None = None
    ownership: str = "managed"
    rollout: JsonMap | None = None
    """a rollout under way: {candidate, baseline, strategy, since, step, weight, step_since, deadline, evidence_id}; the
    window after a promotion is one too: {candidate: the promoted, baseline: the one before, window_until, ...}"""
    previous_revision: str | None = None
    """the revision that was active before, which a rollback goes back to"""
    scaling: JsonMap | None = None
    """autoscaling: {desired, since, at, grew_at?, reason (wire form), goodput?}; None: the limits alone count"""
    upstream: JsonMap | None = None
    """of one that was adopted: {url, mode, resource?}"""


@row
class Revision(Noun):
    """One immutable version of a deployment's revision part."""

    kind: ClassVar[str] = "Revision"

    state: RevisionState = RevisionState.CANDIDATE
    deployment: str = ""
    number: int = 1
    digest: str = ""
    spec: JsonMap = field(default_factory=dict)
    decisions: tuple[JsonMap, ...] = ()
    """the release guard's, oldest first, at most `limits.DECISIONS_KEPT`; one more only when its verdict or its reasons
    change: {id, verdict, reasons, policy, evidence, baseline, at}"""
    capacity_gone: bool = False
    """it ended, and nothing of it is left on any machine"""
    evidence: JsonMap = field(default_factory=dict)
    """of the rollout under way: source -> what it saw of this revision (`decide.serving.evidence`), last value wins"""
    initial_scale_reached: bool = False
    """of this revision"""
    failures_in_row: int = 0
    failed_at: float | None = None
    retry_at: float | None = None
    fatal_since_ran: bool = False
    last_failure: JsonMap | None = None
    not_ready: tuple[int, ...] = ()
    """as the deployment's; these six count the failures of a candidate, which are not its deployment's"""
    activated_at: float | None = None
    """when it was last promoted"""
    verdict: JsonMap | None = None
    """a person's word on a candidate: {word: promote|reject, by, text, operation, at}"""
    pins: JsonMap = field(default_factory=dict)
    """what of its spec may move, as it was looked up when it was made: {"model.source": the source with its commit}"""


@row
class Replica(Noun):
    """One copy of a revision, kept as a run of its own."""

    kind: ClassVar[str] = "Replica"
    state_field: ClassVar[str] = "status"

    status: ReplicaStatus = ReplicaStatus.PENDING
    deployment: str = ""
    revision: str = ""
    ordinal: int = 0
    attempt: int = 1
    run: str = ""
    machine: str | None = None
    address: str | None = None
    """host:port while known"""
    routed: bool = False
    routed_why: JsonMap | None = None
    """why it is not routed (reason in wire form)"""
    ready_at: float | None = None
    fail_reason: str | None = None
    fatal: bool = False
    last_failure: JsonMap | None = None
    stopping: JsonMap | None = None
    """{code, params, since, drain_until}: withdrawn, then drained, then stopped; the code becomes its final reason"""
    ended_at: float | None = None


@row
class Run(Noun):
    """A job, or the run behind one replica."""

    kind: ClassVar[str] = "Run"

    state: RunState = RunState.PENDING
    spec: JsonMap = field(default_factory=dict)
    deployment: str | None = None
    replica: str | None = None
    priority: int = 0
    queued_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    cancel: JsonMap | None = None
    """{cause, text, at}: asked to end"""
    deleted_at: float | None = None
    deleting: bool = False
    """asked to be deleted: it is ended first, then removed"""
    deleted_by: str | None = None
    digest: str = ""
    """of its spec: the same spec submitted again is a no-op while it lives"""
    planned_at: float | None = None
    """when its workers were made; a group with `total_gpus` is planned first"""
    all_placed_at: float | None = None
    """when every needed worker first had its place (`max_queue_time` counts until then)"""
    barrier_since: float | None = None
    """since when a member of its gang waits at the barrier and another does not"""
    restarting: JsonMap | None = None
    """a restart of the whole under way: {cause, worker, text, since, restart_at}; over once every worker is queued"""
    restarted_from: str | None = None
    """uid of the finished run that it repeats"""
    scheduled_by: str | None = None
    """uid of the run whose `schedule` made it"""
    preemptions: int = 0
    """how often it was preempted since it last ran"""
    schedule: JsonMap | None = None
    """of a run with a schedule: {next_at, last_at, made}: it makes runs and has no workers of its own"""


@row
class Worker(Noun):
    """One process or container of a run. `epoch` is the placement epoch that fences every command and report."""

    kind: ClassVar[str] = "Worker"

    state: WorkerState = WorkerState.PENDING
    run: str = ""
    deployment: str | None = None
    """uid, for a replica's worker"""
    group: str = "worker"
    rank: int = 0
    machine: str | None = None
    """uid of the machine while placed"""
    machine_name: str | None = None
    """name of the machine it is, or was last, placed on"""
    handed_over: bool = False
    """the agent was given this epoch"""
    gpus: tuple[int, ...] = ()
    request: JsonMap = field(default_factory=dict)
    """what it asks for: {cpu_milli, memory_bytes, gpus: {count, vendor, models, memory_bytes}}"""
    epoch: int = 0
    attempt: int = 1
    restarts: int = 0
    restart_at: float | None = None
    queued_at: float = 0.0
    placed_at: float | None = None
    started_at: float | None = None
    ran: bool = False
    """this attempt was once seen running"""
    ended_at: float | None = None
    """when it ended, or was given up for lost"""
    exit_code: int | None = None
    last_failure: JsonMap | None = None
    """{exit_code, reason, log}"""
    reported: JsonMap | None = None
    """{epoch, seq}: the last report of its machine that was laid over this row"""
    stop: JsonMap | None = None
    """{cause, text, since, grace_s, unkillable_since?}"""
    ready: bool = False
    """server of a replica: health and the expected model, seen by its machine"""
    first_ready_at: float | None = None
    """when its machine first said so, whether or not anybody looked before it ended"""
    address: str | None = None
    process: JsonMap | None = None
    """identity seen by the machine: {pid, start_ticks, boot_id} or {container}"""
    heartbeat_at: float | None = None
    placement: JsonMap | None = None
    """per-machine reasons of the last look: {machines: [{machine, reasons[]}]}"""
    waits: JsonMap | None = None
    """reason (wire form) for which its run does not let it be placed yet (a dependency, the limit of an array)"""
    go: bool = False
    """the barrier of its gang is open for this epoch: its machine may start it"""
    barrier_at: float | None = None
    """when this attempt came to the barrier of its gang"""
    running_since: float | None = None
    """when this attempt was first seen running; running long enough forgives restarts"""
    stale_since: float | None = None
    """while Stale: since when"""
    heartbeat_ttl_s: float = 60.0
    """its heartbeat is late after this and a grace (`heartbeat_ttl` of the run)"""
    ttl_set: bool = False
    """the run set that time itself: it also lengthens how long its machine may be silent"""
    disconnect_after_s: float | None = None
    """`on_disconnect: stop`: its machine's agent stops it so long after the last answered heartbeat"""
    rendezvous: str | None = None
    """host:port at which the leader of a gang lets the others meet it"""
    ports: JsonMap = field(default_factory=dict)
    """exposed port (as text) -> host:port under which it is reached"""
    final: bool = False
    """Failed or Down for good: nothing starts it again (its run decided that)"""


@row
class Machine(Noun):
    """A machine that joined with an agent."""

    kind: ClassVar[str] = "Machine"

    state: MachineState = MachineState.JOINING
    incarnation: str = ""
    """drawn by the agent at each of its starts"""
    boot_id: str = ""
    rebooted: bool = False
    """its boot id changed at its last join"""
    host: str = "127.0.0.1"
    """address under which this machine's servers are reached by gateways"""
    capacity: JsonMap = field(default_factory=dict)
    """{cpu_milli, memory_bytes, gpus: [{index, vendor, model, memory_bytes, health}]}"""
    reserve: JsonMap = field(default_factory=dict)
    engines: tuple[str, ...] = ("process",)
    capabilities: tuple[str, ...] = ()
    accepts: tuple[str, ...] = ()
    pressure: tuple[str, ...] = ()
    cordoned: str | None = None
    draining: JsonMap | None = None
    lease_expires_at: float | None = None
    heartbeat_at: float | None = None
    reported_seq: int = 0
    """highest report sequence number applied for this incarnation"""
    beats: JsonMap = field(default_factory=dict)
    """worker uid -> [epoch, time of its last heartbeat], for the workers named in the last heartbeats of its agent"""
    data: JsonMap | None = None
    """where it keeps drives: {path, total_bytes, free_bytes}; None: no data location"""
    drives: JsonMap = field(default_factory=dict)
    """namespace/name of each drive that has a copy here -> {state, bytes}"""


@row
class Operation(Noun):
    """Durable work: apply, stop, delete (later promote, reject, rollback, adopt)."""

    kind: ClassVar[str] = "Operation"

    state: OperationState = OperationState.PENDING
    operation: str = "apply"
    target_kind: str = "Deployment"
    target: str = ""
    """uid"""
    actor: str = ""
    """who asked for it"""
    revision: str | None = None
    steps: tuple[JsonMap, ...] = ()
    """[{name, state: pending|running|done, at}] in order"""
    progress: float = 0.0
    key: str | None = None
    attempt: int = 0
    next_attempt_at: float | None = None
    waiting_reason: JsonMap | None = None
    retryable: bool = True
    cancel_requested: bool = False
    cancelled_by: str | None = None
    """who asked it to end"""
    resolution: JsonMap | None = None
    """a person's word on what is there: {how: adopt|absent, resource, by, evidence, at}"""
    error: JsonMap | None = None
    lease_owner: str | None = None
    lease_generation: int = 0
    lease_expires_at: float | None = None


@row
class Namespace(Noun):
    """What people set about a namespace. Without a row it may use every machine and has no quota.

    Its uid is `ids.namespace_uid` of its name, so that there is one row for each name.
    """

    kind: ClassVar[str] = "Namespace"

    state: NamespaceState = NamespaceState.ACTIVE
    made: bool = False
    """a person made it; else it is there while something lives in it"""
    description: str = ""
    machines: JsonMap = field(default_factory=dict)
    """labels that a machine must have for work of this namespace; none: every machine"""
    limits: JsonMap = field(default_factory=dict)
    """its quota: resource (as `domain.quotas` names them) -> at most so much"""
    keys: str = "optional"
    """whether its endpoints ask clients for a key: optional | required"""


@row
class Key(Noun):
    """What a client of a namespace's endpoints shows. Its text was shown once, to whoever made it, and is kept nowhere.

    Its name is unique among the keys of its namespace until it is deleted.
    """

    kind: ClassVar[str] = "Key"

    state: KeyState = KeyState.ACTIVE
    digest: str = ""
    """SHA-256 of the whole text, hexadecimal; 256 random bits are in it, so that no salt is needed"""
    hint: str = ""
    """how the text begins, to recognise it by"""
    endpoints: tuple[str, ...] = ()
    """names in its namespace that it opens; none: all, also those to come"""
    limits: JsonMap = field(default_factory=dict)
    """requests_per_minute, tokens_per_minute, in_flight -> at most so much"""
    expires_at: float | None = None
    revoked_at: float | None = None
    description: str = ""


@row
class Endpoint(Noun):
    """A name for clients, and the deployments that answer for it. `spec` is the normalised spec document."""

    kind: ClassVar[str] = "Endpoint"

    state: EndpointState = EndpointState.ACTIVE
    spec: JsonMap = field(default_factory=dict)


KINDS: Mapping[str, type[Noun]] = {
    k.kind: k for k in (Deployment, Revision, Replica, Run, Worker, Machine, Operation, Namespace, Key, Endpoint)
}
"""Every stored noun by its kind word."""
