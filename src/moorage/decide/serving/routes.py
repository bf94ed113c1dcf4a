"""What one gateway knows of endpoints and replicas, and the answers its core can give: nouns of `routing`.

Here: routes as the table gives them, their run-time state, and the decision types. Not here: any rule about who is
served (that is `routing`), sockets, clocks. Used by `routing` and by the gateway's rooms.
"""

from dataclasses import dataclass, field
from typing import Final

from moorage.decide.serving.affinity import number_of
from moorage.decide.serving.queueing import Queue, Token, Waiter
from moorage.decide.serving.shares import Split, split_of
from moorage.decide.serving.tally import Comparison, Traffic

DEFAULT_NAMESPACE = "default"

OK: Final = 0
"""How a request ended for the replica that had it: it answered."""
FAILED: Final = 1
"""No answer, a cut one, or one that says that the server is unwell."""
SERVER_ERROR: Final = 2
"""An error that may be the request's own."""
NEUTRAL: Final = 3
"""Nothing about the replica: the client left or broke its request."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The endpoint's limits; seconds and counts. `affinity` and `retry` as in the routing messages.

    Args:
        max_in_flight, max_queue: of this process.
        queue_of_all: that of the gateway, where several processes share it.
    """

    max_in_flight: int = 16
    max_queue: int = 100
    queue_of_all: int | None = None
    queue_timeout_s: float = 60.0
    connect_timeout_s: float = 2.0
    first_byte_timeout_s: float = 600.0
    affinity: str = "none"
    retry: str = "idempotent"
    hold_comments_s: float | None = None


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One routable replica of the table."""

    replica: str
    revision: str
    host: str
    port: int
    worker: str = ""
    machine: str = ""
    weight: int = 100


@dataclass(frozen=True, slots=True)
class RevisionSpec:
    """How requests come to one revision; fields as in the routing messages, `share` in per cent."""

    revision: str
    number: int
    name: str = ""
    role: str = "active"
    by: str = "share"
    share: float = 100.0


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """One endpoint of the table; `mode` as in the routing messages: serve, hold, asleep, starting, failed, stopped."""

    name: str
    mode: str
    namespace: str = DEFAULT_NAMESPACE
    model: str | None = None
    aliases: tuple[str, ...] = ()
    targets: tuple[TargetSpec, ...] = ()
    limits: Limits = field(default_factory=Limits)
    error: str | None = None
    error_code: str | None = None
    wake_failures: int = 0
    retry_after_s: float | None = None
    deployment: str = ""
    revisions: tuple[RevisionSpec, ...] = ()
    evidence_id: str | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """Orders tables of one store; another incarnation means that the store was replaced."""

    incarnation: str
    number: int

    def supersedes(self, other: "Generation | None") -> bool:
        """Whether a table of this generation replaces one of `other`."""
        return other is None or other.incarnation != self.incarnation or self.number > other.number


class RevisionState:
    """One revision of an endpoint: its replicas in the table, and what was counted of it."""

    __slots__ = ("comparison", "label", "spec", "targets", "traffic", "uid", "uniform")

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.label = uid
        """how people call it: its number once the table told it"""
        self.spec: RevisionSpec | None = None
        self.targets: list[TargetState] = []
        self.uniform = True
        self.traffic = Traffic()
        self.comparison: Comparison | None = None

    @property
    def may_be_named(self) -> bool:
        """Whether a request that names it gets there; a share of nothing means that it takes no client's request."""
        spec = self.spec
        return spec is None or spec.role == "active" or spec.by == "header" or (spec.by == "share" and spec.share > 0)

    def take(self, targets: "list[TargetState]") -> None:
        """Its replicas in the table from now on."""
        self.targets = targets
        self.uniform = len({state.spec.weight for state in targets}) <= 1


class TargetState:
    """One replica and what this gateway has at it. Outlives its place in the table while requests run there."""

    __slots__ = (
        "answered",
        "aside",
        "bad",
        "barred",
        "ejected_until",
        "ejections",
        "failures",
        "in_flight",
        "number",
        "probing",
        "revision",
        "serve",
        "spec",
        "strikes",
    )

    def __init__(self, spec: TargetSpec, revision: RevisionState) -> None:
        self.spec = spec
        self.revision = revision
        self.in_flight = 0
        """copies included"""
        self.aside = False
        """gets one request at a time, once `ejected_until` is over: `failures` or `barred`"""
        self.failures = 0
        """connects that failed since the last one that worked"""
        self.strikes = 0
        """bad answers since the last good one, in halves"""
        self.bad = 0
        """bad answers since the last good one, or since it was let in again"""
        self.answered = ""
        """the last of them, as reports say it"""
        self.barred = 0
        """how often bad answers put it aside since the last good one"""
        self.ejections = 0
        """how often they did so ever"""
        self.ejected_until = 0.0
        self.probing = False
        self.serve = Serve(self)
        self.number = number_of(f"{spec.replica}/{spec.worker}".encode())
        """what affinity knows it by"""

    def open_to(self, now: float, max_in_flight: int) -> bool:
        """Whether one more request may go there. After failures only one probe at a time is let through."""
        if self.in_flight >= max_in_flight:
            return False
        return not self.aside or (not self.probing and now >= self.ejected_until)


@dataclass(frozen=True, slots=True, eq=False)
class Serve:
    """Send it there. One shared instance a target, so that deciding allocates nothing.

    Args:
        copy: where a copy of it goes too, whose answer nobody gets.
    """

    target: TargetState
    copy: TargetState | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait in the endpoint's queue.

    Args:
        first: marks the edge from no demand to demand: report at once.
        displaced: one that waited and is refused, because this one takes its place in a full queue.
    """

    first: bool
    displaced: "tuple[Token, Refuse] | None" = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer an error now. `retry_after_s` in seconds, None when a retry cannot help."""

    status: int
    code: str
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A request that was sent on and has to be decided on again.

    Args:
        deadline: end of its patience: `now` of its arrival + queue_timeout_s.
        revision: the one that it names, if it does.
        tenant, affinity, bound: as at its arrival.
    """

    token: Token
    deadline: float
    revision: str | None = None
    tenant: str = ""
    affinity: bytes | None = None
    bound: str = ""


Decision = Serve | Hold | Refuse
Release = tuple[Token, Serve | Refuse]

HOLD_FIRST = Hold(first=True)
HOLD = Hold(first=False)


class EndpointState:
    """One endpoint: its route, its targets, its queue, its counts."""

    __slots__ = (
        "at_once",
        "called",
        "cold_at",
        "completed",
        "copies",
        "ended_at",
        "evidence_id",
        "in_flight",
        "leaving",
        "listed",
        "named",
        "plain",
        "promised_at",
        "queue",
        "revisions",
        "route",
        "service_s",
        "split",
        "targets",
        "uniform",
        "waiting",
        "wake_s",
    )

    def __init__(self, route: RouteSpec) -> None:
        self.route = route
        self.at_once = False
        """whether it serves, and all targets are alike: none of its requests needs more than a free target"""
        self.plain = False
        """its settings ask for no repeating of a POST"""
        self.called: frozenset[str] | None = None
        """the names that a replica goes by; None: any"""
        self.targets: list[TargetState] = []
        self.uniform = True
        self.leaving: list[TargetState] = []
        """out of the table, with requests that may still run"""
        self.revisions: dict[str, RevisionState] = {}
        """by uid: of the targets and of the table, and those before them while requests run there"""
        self.split: Split | None = None
        """while not all targets are alike"""
        self.queue = Queue()
        self.waiting: dict[Token, Waiter] = self.queue.waiting
        """everybody in the queue; read only here, as `named` is"""
        self.named: dict[Token, str] = self.queue.named
        self.in_flight = 0
        self.copies = 0
        """in flight, of requests that another revision answers"""
        self.completed = 0
        self.ended_at: float | None = None
        self.service_s: float | None = None
        """mean time that a request takes at a replica"""
        self.promised_at = 0.0
        """the first turn that nobody who was refused was told to come back at"""
        self.cold_at: float | None = None
        """when the first came that waits for the endpoint to wake"""
        self.wake_s: float | None = None
        """how long the first one waited when it woke last"""
        self.evidence_id: str | None = None
        self.listed = True

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.route.namespace, self.route.name)

    @property
    def public_id(self) -> str:
        """What clients write as `model`."""
        route = self.route
        return route.name if route.namespace == DEFAULT_NAMESPACE else f"{route.namespace}/{route.name}"

    @property
    def cold(self) -> bool:
        """Only the control plane can make it serve."""
        if self.route.mode != "serve":
            return self.route.mode in ("asleep", "starting")
        return not (self.targets if self.split is None else self.split.targets)

    def nameable(self) -> list[RevisionState]:
        """The revisions that a request may name."""
        told = [state for state in self.revisions.values() if state.spec is not None]
        listed = told or [state for state in self.revisions.values() if state.targets]
        return [state for state in listed if state.may_be_named]

    def revision_named(self, word: str) -> RevisionState | None:
        """The revision that a request means: by uid, number or name."""
        nameable = self.nameable()
        for state in nameable:
            if word in (state.uid, state.label):
                return state
        return next((state for state in nameable if state.spec is not None and word == state.spec.name), None)

    def update(self, route: RouteSpec, now: float) -> None:
        """Take a new route; targets that stay, or come back, keep their counts and their ejection."""
        known = {_identity(state.spec): state for state in (*self.leaving, *self.targets)}
        self.route = route
        self.plain = route.limits.retry != "always"
        self.called = None if route.model is None else frozenset((route.model, *route.aliases))
        self.listed = True
        self._take_revisions(route)
        targets = [self._kept(known, spec) for spec in route.targets if spec.weight > 0]
        self.uniform = len({state.spec.weight for state in targets}) <= 1
        self._leave(targets)
        for revision in self.revisions.values():
            revision.take([state for state in targets if state.revision is revision])
        self.split = split_of(self.revisions.values(), self.split)
        self.at_once = route.mode == "serve" and self.split is None
        self._compare(route.evidence_id, now)

    def forget(self) -> None:
        """It left the table: nothing new may go anywhere."""
        self.listed = False
        self._leave([])
        for revision in self.revisions.values():
            revision.take([])
        self.split, self.at_once = None, False

    def _leave(self, targets: list[TargetState]) -> None:
        stay = set(targets)
        self.leaving = [s for s in (*self.leaving, *self.targets) if s not in stay and s.in_flight]
        self.targets = targets

    def _take_revisions(self, route: RouteSpec) -> None:
        specs = {spec.revision: spec for spec in route.revisions}
        named = {*specs, *(spec.revision for spec in route.targets)}
        running = {state.spec.revision for state in (*self.leaving, *self.targets) if state.in_flight}
        kept = {uid: state for uid, state in self.revisions.items() if uid in named or uid in running}
        self.revisions = {uid: kept.get(uid) or RevisionState(uid) for uid in (*kept, *sorted(named - set(kept)))}
        for uid, state in self.revisions.items():
            state.spec = spec = specs.get(uid)
            if spec is not None:
                state.label = str(spec.number)

    def _kept(self, known: dict[tuple[str, str, int], TargetState], spec: TargetSpec) -> TargetState:
        state = known.get(_identity(spec))
        revision = self.revisions[spec.revision]
        if state is None:
            return TargetState(spec, revision)
        state.spec, state.revision = spec, revision
        return state

    def _compare(self, evidence_id: str | None, now: float) -> None:
        """Count for this comparison; another one begins at zero."""
        for revision in self.revisions.values():
            if evidence_id != self.evidence_id:
                revision.comparison = None
            if evidence_id is not None and revision.comparison is None:
                revision.comparison = Comparison(now)
        self.evidence_id = evidence_id


def _identity(spec: TargetSpec) -> tuple[str, str, int]:
    """A replica at an address: another worker of it there is another server, a new weight is not."""
    return (f"{spec.replica}/{spec.worker}", spec.host, spec.port)
