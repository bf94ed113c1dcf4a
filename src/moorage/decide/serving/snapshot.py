"""What the serving decision sees of one deployment: its rows, what gateways report, and `now`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.domain.nouns import Deployment, Machine, Noun, Operation, Replica, Revision, Run, Worker


@dataclass(frozen=True, slots=True)
class Demand:
    """Traffic of the deployment's endpoint, summed over the gateways whose lease is good.

    Args:
        held: requests waiting in gateways.
        in_flight: requests being answered.
        by_replica: of those, per replica uid, withdrawn replicas included.
        idle_s: seconds since the end of the last request anywhere; None when there was none.
        published_mode, published_targets: what the newest routing table says of the endpoint (None: not in it).
        known: every gateway that may have traffic reported since this control plane started.
        confirmed: every leased gateway holds a table at least as new as the last change of this endpoint.
    """

    held: int = 0
    in_flight: int = 0
    by_replica: Mapping[str, int] = field(default_factory=dict)
    idle_s: float | None = None
    published_mode: str | None = None
    published_targets: frozenset[str] = frozenset()
    confirmed: bool = False
    known: bool = True
    oldest_s: Mapping[str, float] = field(default_factory=dict)
    """seconds since the oldest request in flight began, per replica uid, of replicas that were withdrawn"""
    gateways: Mapping[str, bool] = field(default_factory=dict)
    """leased gateway id -> whether it confirmed the last change of this endpoint"""
    held_told_s: float = 0.0
    """seconds since the newest word of a gateway that holds something"""

    def drained(self, replica: str) -> bool:
        """Whether nothing can reach a replica any more, and nothing of it is in flight."""
        return self.confirmed and replica not in self.published_targets and self.by_replica.get(replica, 0) == 0


@dataclass(frozen=True, slots=True)
class Load:
    """In-flight plus held requests of the endpoint, averaged over the autoscaler's two windows.

    Args:
        stable, urgent: means over the windows of `scaling.down_after` and `scaling.up_after`.
        stable_s, urgent_s: seconds of each window that were really watched (a new leader has watched none).
        rate: requests that came a second, over the stable window.
        ttft_p95_s, latency_p95_s: over the stable window; None: nothing to tell.
        samples: requests behind the two.
        peak: the highest mean over any stretch of `scaling.up_after` within the stable window.
        peak_left_s: seconds until that stretch has left the window.
        urgent_rate, peak_rate: as `urgent` and `peak`, of `rate`.
    """

    stable: float = 0.0
    urgent: float = 0.0
    stable_s: float = 0.0
    urgent_s: float = 0.0
    rate: float = 0.0
    ttft_p95_s: float | None = None
    latency_p95_s: float | None = None
    samples: int = 0
    peak: float = 0.0
    peak_left_s: float = 0.0
    urgent_rate: float = 0.0
    peak_rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds operations now: the control plane that leads, under its own lease.

    Args:
        owner: identity of the control plane.
        generation: of its lease; every commit is fenced by it.
        expires_at: as of its last renewal, seconds since the epoch.
    """

    owner: str
    generation: int
    expires_at: float


@dataclass(frozen=True, slots=True)
class ServingSnapshot:
    """Input of one serving decision.

    Args:
        replicas: those that are not terminal.
        workers: per run uid.
        operations: those that are open, oldest first.
    """

    now: float
    deployment: Deployment
    revisions: tuple[Revision, ...]
    replicas: tuple[Replica, ...]
    runs: Mapping[str, Run]
    workers: Mapping[str, tuple[Worker, ...]]
    operations: tuple[Operation, ...]
    demand: Demand = Demand()
    load: Load = Load()
    machines: Mapping[str, Machine] = field(default_factory=dict)
    """by uid, those that are drained and have a worker of it"""
    holder: Holder | None = None
    """None: nobody leads (a plan, a test of rules alone)"""
    lost: Mapping[str, Machine] = field(default_factory=dict)
    """of a deployment being deleted: by uid, machines that are Down, with a worker of it"""
    held: frozenset[str] = frozenset()
    """of a deployment being deleted: workers for which a place is still held"""

    leftovers: frozenset[str] = frozenset()
    """revisions that ended and of which a worker may still be on a machine"""

    def rows(self) -> tuple[Noun, ...]:
        """Every row of the snapshot."""
        workers = (w for group in self.workers.values() for w in group)
        return (self.deployment, *self.revisions, *self.replicas, *self.runs.values(), *workers, *self.operations)
