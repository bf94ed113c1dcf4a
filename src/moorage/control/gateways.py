"""Which gateways there are, what they confirmed and what traffic they see: kept in memory, from their reports.

A gateway whose lease is over does not block a confirmation. After a restart of the control plane nothing counts as
confirmed until every gateway known before reported again or its lease must be over. One that says goodbye routes
nothing any more and is known no longer: a process that retires reports under an id of its own until then, so that what
still runs there counts beside what its successor tells. One that could not say goodbye is forgotten
once another process of its gateway tells, as its master knows, that it does not run.
"""

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from moorage.decide.serving.snapshot import Demand
from moorage.ports import Clock, Store
from moorage.wire.routing import EndpointActivity, GatewayReport

LEASE_S = 30.0
FORGOTTEN_S = 7 * 86_400.0
"""A gateway that was silent for a week is not spoken of any more."""

KNOWN = "gateways/known"
"""the secret that keeps the gateways there are, each with the time at which it was heard last"""
KEPT_S = 300.0
"""Those times are written so often at most: after a restart they may be this much too early."""
_LEFT_MAX = 64
"""Of how many that said goodbye an earlier report, which comes late, is not taken for life."""


@dataclass(slots=True)
class GatewaySeen:
    """The last word of one gateway."""

    id: str
    incarnation: str
    number: int
    heard_at: float
    """monotonic seconds"""
    since: float
    """when this life of it was heard first, monotonic seconds"""
    address: str | None = None
    url: str | None = None
    activity: dict[tuple[str, str], EndpointActivity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatewayLease:
    """A gateway that may still route.

    Args:
        number: newest generation that it confirmed; None: it has not reported to this control plane yet.
        left_s: seconds until its lease is over.
    """

    id: str
    number: int | None
    left_s: float


@dataclass(frozen=True, slots=True)
class SilentGateway:
    """A gateway that is known, never said goodbye, and is out of reach: where it runs it goes on with what it has.

    Args:
        silent_s: since it was heard last, `KEPT_S` too long at most; None: not since this control plane started.
        started_s: since this control plane started.
        address: where it served, if this control plane heard it.
    """

    id: str
    silent_s: float | None
    started_s: float = 0.0
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Aside:
    """A replica to which a gateway sends nothing but single tries now, or would.

    Args:
        why, bad, answered, of: as in `PutAside`.
        tried_in_s: seconds until the next try; None: not before a newer table names it.
    """

    gateway: str
    replica: str
    why: str
    tried_in_s: float | None
    bad: int = 0
    answered: str | None = None
    of: int = 0

    @property
    def in_use(self) -> bool:
        """It answers badly, but has to be used all the same."""
        return self.why == "kept_bad"

    def to_wire(self) -> dict[str, Any]:
        """The gateway and what it says."""
        return {
            "gateway": self.gateway,
            "why": self.why,
            "tried_in_s": self.tried_in_s,
            "bad": self.bad,
            "answered": self.answered,
            "of": self.of,
        }


@dataclass(frozen=True, slots=True)
class News:
    """What a report changed: endpoints (namespace, name) with other traffic, and the confirmed number before."""

    endpoints: frozenset[tuple[str, str]]
    previous: int


class Gateways:
    """The registry of gateways.

    Args:
        store: remembers which gateways exist, so that a restart waits for them.
        clock: leases run on its monotonic time; what is kept over a restart has the time of day.
        incarnation: of the routing tables of this store; reports on others confirm nothing.
    """

    def __init__(self, store: Store, clock: Clock, incarnation: str) -> None:
        self._store = store
        self._clock = clock
        self._incarnation = incarnation
        self._seen: dict[str, GatewaySeen] = {}
        self._expected: dict[str, float | None] = {}
        """ids, and when they were heard last, seconds since the epoch; None: it was not noted"""
        self._kept_at = clock.monotonic()
        self._left: deque[str] = deque(maxlen=_LEFT_MAX)
        """incarnations that said goodbye"""
        self._started = clock.monotonic()

    async def load(self) -> None:
        """Read which gateways there were before this start."""
        kept = json.loads(await self._store.secret(KNOWN) or "{}")
        self._expected = dict(kept) if isinstance(kept, dict) else dict.fromkeys(kept)  # the former form: ids alone

    async def _keep(self) -> None:
        """Write them down."""
        self._kept_at = self._clock.monotonic()
        await self._store.put_secret(KNOWN, json.dumps(self._expected, sort_keys=True))

    async def heard(self, report: GatewayReport) -> News:
        """Take a report in; its lease is renewed."""
        if report.leaving or report.incarnation in self._left:
            return await self._goodbye(report)
        before = self._seen.get(report.gateway)
        fresh = {(a.namespace, a.name): a for a in report.endpoints}
        number = report.table_number if report.table_incarnation == self._incarnation else 0
        same, now = before is not None and before.incarnation == report.incarnation, self._clock.monotonic()
        old = before.activity if before is not None and same else {}
        since = before.since if before is not None and same else now
        self._seen[report.gateway] = GatewaySeen(
            report.gateway, report.incarnation, number, now, since, report.address, report.url, fresh
        )
        new = report.gateway not in self._expected
        self._expected[report.gateway] = round(self._clock.now())
        if new or now - self._kept_at >= KEPT_S:
            await self._keep()
        await self._forget_ended(report)
        changed = {k for k in fresh.keys() | old.keys() if _traffic(fresh.get(k)) != _traffic(old.get(k))}
        return News(frozenset(changed), before.number if before is not None else 0)

    async def _forget_ended(self, report: GatewayReport) -> None:
        """Processes that ended without a goodbye are known no longer: their gateway says that they do not run.

        One whose lease is good stays until it is over: its report may have come after this one was made.
        """
        if report.gateway not in report.processes:
            return
        family = _gateway_of(report.gateway)
        stay = {g.id for g in self.live()}.union(report.processes)
        ended = {one for one in self._expected.keys() - stay if _gateway_of(one) == family}
        if ended:
            for one in ended:
                self._seen.pop(one, None)
                del self._expected[one]
            await self._keep()

    async def _goodbye(self, report: GatewayReport) -> News:
        if report.incarnation not in self._left:
            self._left.append(report.incarnation)
        before = self._seen.get(report.gateway)
        if before is None or before.incarnation != report.incarnation:
            return News(frozenset(), before.number if before is not None else 0)
        del self._seen[report.gateway]
        self._expected.pop(report.gateway, None)
        await self._keep()
        changed = {key for key, activity in before.activity.items() if _traffic(activity) != _traffic(None)}
        return News(frozenset(changed), before.number)

    def live(self) -> list[GatewaySeen]:
        """Gateways whose lease is good."""
        limit = self._clock.monotonic() - LEASE_S
        return [g for g in self._seen.values() if g.heard_at >= limit]

    def addresses(self) -> list[str]:
        """Where live gateways can be asked about single requests."""
        return [g.address for g in self.live() if g.address]

    def url(self, gateway: str) -> str | None:
        """Where clients reach a gateway, as the youngest of its processes says; None: none of them does."""
        own = [g for g in self.live() if g.url and _gateway_of(g.id) == gateway]
        return max(own, key=lambda g: g.since).url if own else None

    def confirmed(self, number: int) -> bool:
        """Whether every gateway that may still route holds a table of at least this number."""
        return self.known() and all(g.number >= number for g in self.live())

    def known(self) -> bool:
        """Whether every gateway known before this start has reported since, or its lease must be over."""
        silent = self._expected.keys() - {g.id for g in self.live()}
        return not silent or self._clock.monotonic() >= self._started + LEASE_S

    def demand(self, namespace: str, name: str) -> Demand:
        """Traffic of one endpoint over the live gateways; the published route is filled in by the publisher."""
        now = self._clock.monotonic()
        aged = [(a, now - g.heard_at) for g in self.live() if (a := g.activity.get((namespace, name))) is not None]
        seen = [a for a, _ in aged]
        by_replica: dict[str, int] = {}
        for activity in seen:
            for replica, count in activity.replicas.items():
                by_replica[replica] = by_replica.get(replica, 0) + count
        oldest: dict[str, float] = {}
        for activity, age_s in aged:
            for replica, request_s in activity.oldest_s.items():
                oldest[replica] = max(oldest.get(replica, 0.0), request_s + age_s)
        idle = [a.idle_s + age_s for a, age_s in aged if a.idle_s is not None]
        held_told = [age_s for a, age_s in aged if a.held]
        return Demand(
            held=sum(a.held for a in seen),
            in_flight=sum(a.in_flight for a in seen),
            by_replica=by_replica,
            idle_s=min(idle, default=None),
            known=self.known(),
            oldest_s=oldest,
            held_told_s=min(held_told, default=0.0),
        )

    def aside(self, namespace: str, name: str) -> list[Aside]:
        """What gateways put aside of one endpoint's replicas, by replica."""
        now = self._clock.monotonic()
        told = [
            Aside(
                g.id, each.replica, each.why, _left(each.tried_in_s, now - g.heard_at), each.bad, each.answered, each.of
            )
            for g in self.live()
            if (activity := g.activity.get((namespace, name))) is not None
            for each in activity.aside
        ]
        return sorted(told, key=lambda aside: (aside.replica, aside.gateway))

    def leases(self) -> tuple[GatewayLease, ...]:
        """Every gateway that may still route, by id; those that were known before this start until they report."""
        now, live = self._clock.monotonic(), self.live()
        told = [GatewayLease(g.id, g.number, g.heard_at + LEASE_S - now) for g in live]
        silent = set() if self.known() else self._expected.keys() - {g.id for g in live}
        told += [GatewayLease(gateway, None, self._started + LEASE_S - now) for gateway in silent]
        return tuple(sorted(told, key=lambda lease: lease.id))

    def silent(self) -> tuple[SilentGateway, ...]:
        """Those that are known and whose lease is over, by id, for as long as anybody should wonder about them."""
        now = self._clock.monotonic()
        if not self.known():
            return ()
        found = []
        for gateway in self._expected.keys() - {g.id for g in self.live()}:
            seen, kept = self._seen.get(gateway), self._expected[gateway]
            if seen is not None:
                silent_s: float | None = now - seen.heard_at
            else:
                silent_s = None if kept is None else max(now - self._started, self._clock.now() - kept)
            if (now - self._started if silent_s is None else silent_s) < FORGOTTEN_S:
                address = None if seen is None else seen.address
                found.append(SilentGateway(gateway, silent_s, now - self._started, address))
        return tuple(sorted(found, key=lambda gateway: gateway.id))

    def confirmations(self, number: int) -> dict[str, bool]:
        """Each gateway that may still route, and whether it holds a table of at least this number."""
        live = {g.id: g.number >= number for g in self.live()}
        silent = {} if self.known() else dict.fromkeys(self._expected.keys() - live.keys(), False)
        return dict(sorted((silent | live).items()))


def _gateway_of(process: str) -> str:
    """The gateway of a process: its id begins with that one's, which holds neither sign."""
    return process.partition("~")[0].partition("/")[0]


def _left(seconds: float | None, age_s: float) -> float | None:
    return None if seconds is None else max(0.0, seconds - age_s)


def _traffic(activity: EndpointActivity | None) -> tuple[int, int, tuple[tuple[str, int], ...], int]:
    if activity is None:
        return (0, 0, (), 0)
    return (activity.in_flight, activity.held, tuple(sorted(activity.replicas.items())), activity.requests)
