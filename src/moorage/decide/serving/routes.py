"""What one gateway knows of endpoints and replicas, and the answers its core can give: nouns of `routing`.

Here: routes as the table gives them, their run-time state, and the decision types. Not here: any rule about who is
served (that is `routing`), sockets, clocks. Used by `routing` and by the gateway's rooms.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

DEFAULT_NAMESPACE = "default"

Token = Hashable


@dataclass(frozen=True, slots=True)
class Limits:
    """The endpoint's limits; seconds and counts."""

    max_in_flight: int = 16
    max_queue: int = 100
    queue_timeout_s: float = 60.0
    connect_timeout_s: float = 2.0
    first_byte_timeout_s: float = 600.0


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


@dataclass(frozen=True, slots=True)
class Generation:
    """Orders tables of one store; another incarnation means that the store was replaced."""

    incarnation: str
    number: int

    def supersedes(self, other: "Generation | None") -> bool:
        """Whether a table of this generation replaces one of `other`."""
        return other is None or other.incarnation != self.incarnation or self.number > other.number


class TargetState:
    """One replica and what this gateway has at it. Outlives its place in the table while requests run there."""

    __slots__ = ("ejected_until", "failures", "in_flight", "probing", "serve", "spec")

    def __init__(self, spec: TargetSpec) -> None:
        self.spec = spec
        self.in_flight = 0
        self.failures = 0
        self.ejected_until = 0.0
        self.probing = False
        self.serve = Serve(self)

    def open_to(self, now: float, max_in_flight: int) -> bool:
        """Whether one more request may go there. After failures only one probe at a time is let through."""
        if self.in_flight >= max_in_flight:
            return False
        return not self.failures or (not self.probing and now >= self.ejected_until)


@dataclass(frozen=True, slots=True, eq=False)
class Serve:
    """Send it there. One shared instance a target, so that deciding allocates nothing."""

    target: TargetState


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait in the endpoint's queue. `first` marks the edge from no demand to demand: report at once."""

    first: bool


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer an error now. `retry_after_s` in seconds, None when a retry cannot help."""

    status: int
    code: str
    message: str
    retry_after_s: float | None = None


Decision = Serve | Hold | Refuse
Release = tuple[Token, Serve | Refuse]

HOLD_FIRST = Hold(first=True)
HOLD = Hold(first=False)


class EndpointState:
    """One endpoint: its route, its targets, its queue (token → deadline, oldest first), its counts."""

    __slots__ = ("completed", "ended_at", "in_flight", "listed", "route", "targets", "uniform", "waiting")

    def __init__(self, route: RouteSpec) -> None:
        self.route = route
        self.targets: list[TargetState] = []
        self.uniform = True
        self.waiting: dict[Token, float] = {}
        self.in_flight = 0
        self.completed = 0
        self.ended_at: float | None = None
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
        return self.route.mode in ("asleep", "starting") or (self.route.mode == "serve" and not self.targets)

    def update(self, route: RouteSpec) -> None:
        """Take a new route; targets that stay keep their counts and their ejection."""
        known = {_identity(state.spec): state for state in self.targets}
        self.route = route
        self.listed = True
        self.targets = [_kept(known.get(_identity(spec)), spec) for spec in route.targets if spec.weight > 0]
        self.uniform = len({state.spec.weight for state in self.targets}) <= 1


def _identity(spec: TargetSpec) -> tuple[str, str, int]:
    """A replica at an address: another worker of it there is another server, a new weight is not."""
    return (f"{spec.replica}/{spec.worker}", spec.host, spec.port)


def _kept(state: TargetState | None, spec: TargetSpec) -> TargetState:
    if state is None:
        return TargetState(spec)
    state.spec = spec
    return state
