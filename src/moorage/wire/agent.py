"""Messages between the control plane and agents, under `/api/v1/agent/…`.

An agent pulls. It joins with a token (`POST /agent/join`), says what it still runs (`POST /agent/reconcile`, which
must be answered before new work), long-polls its whole desired set (`GET /agent/work?after=VERSION&wait_s=25`),
posts what it sees (`POST /agent/report`, sequence-numbered: sending again is harmless) and renews its lease
(`POST /agent/heartbeat`). Durations only, never times of day, for liveness.
"""

from typing import Any, Literal

from pydantic import Field

from moorage.wire.cache import CacheRequest
from moorage.wire.claim import ClaimRequest
from moorage.wire.giving import DriveRequest
from moorage.wire.gpus import Gpu
from moorage.wire.inventory import InventoryRequest
from moorage.wire.message import Message

PROTOCOL = 1


class Capacity(Message):
    """What a machine has in all."""

    cpu_milli: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()


class Join(Message):
    """An agent starts: first join with a token, later joins with its credential."""

    protocol: int = PROTOCOL
    name: str
    incarnation: str
    boot_id: str
    host: str = "127.0.0.1"
    capacity: Capacity
    reserve: dict[str, int] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    accepts: tuple[str, ...] = ()
    engines: tuple[str, ...] = ("process",)
    capabilities: tuple[str, ...] = ()
    version: str = ""
    data: dict[str, Any] | None = None
    """{path, total_bytes, free_bytes} of the data location"""


class Joined(Message):
    """Who the agent is now."""

    machine: str
    credential: str | None = None
    """given once, at the first join with a token"""
    heartbeat_s: float = 10.0
    lease_s: float = 30.0


class Ready(Message):
    """How the machine tells that a server is ready (spec `runtime.ready`, model id and aliases included)."""

    path: str = "/health"
    timeout_s: float = 1800.0
    stall_s: float = 300.0
    interval_s: float = 0.1
    warmup_s: float = 0.0
    model: str | None = None
    aliases: tuple[str, ...] = ()
    request: dict[str, Any] | None = None


class Live(Message):
    """Probing after ready (spec `runtime.live`).

    A probe may take an interval (1 s at least, 10 s at most) and the next begins an interval after it began: a server
    that hangs is withdrawn after `failures` intervals and one time-out.
    """

    path: str = "/health"
    interval_s: float = 5.0
    failures: int = 3
    fail_after_s: float = 300.0


class LaunchMount(Message):
    """A directory or file of the machine shown in a container."""

    source: str
    target: str
    read_only: bool = False


class LaunchFile(Message):
    """A config file written before the start."""

    path: str
    content: str


class LaunchPort(Message):
    """A port of the worker that others may reach; `external`: through a port of the machine's pool."""

    port: int
    protocol: Literal["http", "tcp", "udp"] = "http"
    external: bool = False


class LaunchDrive(Message):
    """A drive shown to the worker.

    `origin` names the machine (uid) that has the data; None: it is empty until somebody writes it.
    """

    name: str
    target: str
    place: bool = False
    read_only: bool = False
    size_bytes: int = 0
    origin: str | None = None


class Launch(Message):
    """Everything a machine needs to run one worker."""

    runner: Literal["process", "podman", "docker"] = "process"
    command: tuple[str, ...] = ()
    """argv with {port} {host} {model} {name} {rank} {gpus} not yet filled in; in a container it replaces the image's
    entrypoint and command, and where it is empty those are used"""
    image: str | None = None
    pull: Literal["missing", "always", "never"] = "missing"
    mounts: tuple[LaunchMount, ...] = ()
    memory_bytes: int = 0
    """hard limit of a container; 0: none"""
    cpu_milli: int = 0
    """share of the CPUs that a container gets when they are short; 0: the engine's own"""
    env: dict[str, str] = Field(default_factory=dict)
    workdir: str | None = None
    source: str | None = None
    """model source: a path of the machine, or `hf://…`, which the machine fetches"""
    name: str = ""
    rank: int = 0
    world_size: int = 1
    gpus: tuple[int, ...] = ()
    port: bool = False
    """whether it wants a port from the machine's pool (a command with {port}, or any replica)"""
    ready: Ready | None = None
    live: Live | None = None
    stop_signal: str = "SIGTERM"
    stop_grace_s: float = 20.0
    start_timeout_s: float = 300.0
    prepare_timeout_s: float = 600.0
    """without progress while it is set up"""
    pull_stall_s: float = 300.0
    group: str = "worker"
    run_name: str = ""
    """name of the run, for people"""
    barrier: bool = False
    """set it up, say ReadyToStart, and start it only once the assignment says `go`"""
    leads: bool = False
    """the leader of a gang: a port of the pool is leased for it, at which the others meet it"""
    array: bool = False
    """a worker of an array: its rank is its index there"""
    time_limit_s: float | None = None
    """of this attempt, from Starting; the agent stops it too"""
    heartbeat_ttl_s: float = 60.0
    on_disconnect: Literal["keep", "stop"] = "keep"
    disconnect_after_s: float = 600.0
    """`stop`: after so long without an answered heartbeat, on a clock that never steps"""
    secrets: dict[str, str] = Field(default_factory=dict)
    """variable -> name of a secret; the values are asked for with `POST /agent/secrets` and never kept on disk"""
    registry_secret: str | None = None
    configs: tuple[LaunchFile, ...] = ()
    expose: tuple[LaunchPort, ...] = ()
    drives: tuple[LaunchDrive, ...] = ()
    output_drive: str | None = None
    """the drive that keeps the output directory across machines"""
    identity: bool = False


class Stop(Message):
    """Asked to stop."""

    cause: str
    text: str | None = None
    signal: str = "SIGTERM"
    grace_s: float = 20.0


class Assignment(Message):
    """One worker that this machine should run, or stop. Absent from the set means: forget it once it is gone."""

    worker: str
    run: str
    namespace: str = "default"
    deployment: str | None = None
    owner: str = ""
    """uid of the deployment or run: provider identity"""
    digest: str = ""
    """of the intent"""
    identity: str = ""
    """who it is to this machine: `moorage.decide.providers.identity`"""
    epoch: int
    attempt: int = 1
    desired: Literal["run", "stop"] = "run"
    launch: Launch
    stop: Stop | None = None
    go: bool = True
    """False: it waits at the barrier of its gang"""
    leader: str | None = None
    """host:port of the leader's rendezvous, known once the barrier is open"""
    hosts: tuple[str, ...] = ()
    """hosts of the members of its group by rank, known once the barrier is open"""


class LogRequest(Message):
    """The server wants lines of a worker's log; answered by `POST /agent/logs/{id}`."""

    id: str
    worker: str
    epoch: int | None = None
    lines: int = 200
    after: int | None = None
    """sequence number after which to read; None: the last `lines`"""
    previous: bool = False
    since_s: float | None = None
    """only lines written in the last so many seconds"""
    grep: str | None = None
    """only lines that this regular expression (RE2) is found in"""
    attempt: int | None = None
    """of that attempt, the newest placement of it that is kept; `epoch` and `previous` then say nothing"""
    follow: bool = False
    """go on: answered again each time there is more, until an answer is met with 404 or the log has ended. An answer
    says `follows`; an agent that cannot answers once"""
    total_bytes: int = 4 << 20
    """of the lines of one answer together, about"""


class ExecRequest(Message):
    """Somebody wants a command run beside a worker; the agent connects to `/agent/exec/{id}` and serves it there."""

    id: str
    worker: str
    epoch: int | None = None
    command: tuple[str, ...]
    tty: bool = False
    stdin: bool = True
    rows: int = 24
    columns: int = 80
    term: str | None = None


class Work(Message):
    """The whole desired set of one machine, with the version that a long-poll waits to see raised."""

    version: int
    assignments: tuple[Assignment, ...] = ()
    logs: tuple[LogRequest, ...] = ()
    execs: tuple[ExecRequest, ...] = ()
    drives: tuple[DriveRequest, ...] = ()
    inventories: tuple[InventoryRequest, ...] = ()
    claims: tuple[ClaimRequest, ...] = ()
    caches: tuple[CacheRequest, ...] = ()
    removed: bool = False
    """this machine was removed: stop all and exit"""


class StepReport(Message):
    """One edge of the worker's table, observed `age_s` seconds before the report was sent."""

    to: str
    trigger: str
    code: str
    params: dict[str, Any] = Field(default_factory=dict)
    age_s: float = 0.0


class WorkerReport(Message):
    """What was seen of one worker since the last report."""

    seq: int
    worker: str
    epoch: int
    steps: tuple[StepReport, ...] = ()
    ready: bool | None = None
    """True once health, model (and request) were seen; False when withdrawn; None: no news"""
    ready_why: dict[str, Any] | None = None
    """reason in wire form when ready is False"""
    address: str | None = None
    process: dict[str, Any] | None = None
    exit_code: int | None = None
    signal: int | None = None
    log_tail: str | None = None
    """last 50 lines, at most 16 KiB, with a failure"""
    gone: bool = False
    """the process tree of this epoch is proven gone: its capacity is free"""
    rendezvous: str | None = None
    """host:port leased for the leader of a gang"""
    ports: dict[str, str] | None = None
    """exposed port -> host:port"""


class Report(Message):
    """Reports in order of seq; the server answers the highest seq it holds and ignores what it has."""

    machine: str
    incarnation: str
    reports: tuple[WorkerReport, ...]


class ReportAnswer(Message):
    """Everything up to `seq` is durable."""

    seq: int


class Heartbeat(Message):
    """Renews the machine's lease, and each running worker's heartbeat from an observation of its process."""

    machine: str
    incarnation: str
    workers: dict[str, int] = Field(default_factory=dict)
    """worker uid -> epoch, those whose process was seen alive just now"""
    ages: dict[str, float] = Field(default_factory=dict)
    """worker uid -> seconds since its program last beat through its heartbeat file, for those that do so themselves"""
    pressure: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] | None = None
    """all of them as they are now; None: as they were when this was last told, or at the join"""


class HeartbeatAnswer(Message):
    """Whether the server knows this incarnation; `rejoin` asks for join + reconcile again."""

    lease_s: float = 30.0
    rejoin: bool = False
    removed: bool = False


class Held(Message):
    """One process the agent still has from before (its own ledger, identity proven)."""

    worker: str
    epoch: int
    alive: bool
    state: str
    address: str | None = None
    process: dict[str, Any] | None = None
    exit_code: int | None = None
    ready: bool = False
    gpus: tuple[int, ...] = ()
    """of this placement: they are taken until it is gone, whatever was decided meanwhile; so are the next two"""
    cpu_milli: int = 0
    memory_bytes: int = 0


class Reconcile(Message):
    """All of them; empty means: I run nothing."""

    machine: str
    incarnation: str
    boot_id: str
    held: tuple[Held, ...] = ()


class ReconcileAnswer(Message):
    """For each held worker: keep it (same epoch goes on) or stop it. `next_seq`: where to number reports from."""

    keep: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    next_seq: int = 1


class LogLines(Message):
    """Answer to a LogRequest."""

    lines: tuple[str, ...] = ()
    first_seq: int = 0
    next_seq: int = 0
    missed: int = 0
    """lines that were asked for and are no longer kept"""
    ended: bool = False
    seqs: tuple[int, ...] = ()
    """number of each line; empty: they are those from `first_seq` on, and no pattern or time was looked at"""
    times: tuple[float, ...] = ()
    """when each came, seconds since the epoch by the machine's clock; 0.0: not known"""
    absent: bool = False
    """nothing of that attempt is kept here (any more)"""
    attempt: int | None = None
    """which attempt it is of, where that is known"""
    follows: bool = False
    """more answers to the same request will come"""
