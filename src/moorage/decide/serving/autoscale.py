"""How many replicas the load asks for, as one pure choice: limits, windows, tolerance; the reason says what held it.

The load is what is in flight plus what is held, of the whole endpoint; `Load` has it over two windows. Above its size
by more than the tolerance for `up_after`: larger, to what the urgent window asks for. Smaller only where the highest
load of the whole of `down_after` fills the smaller size to no more than full less the tolerance, and only once all of
that window was watched, so that a new leader never scales down on what it did not see. Nothing here goes to zero: that
is `pausing`. What is written down of it, and when, is `resizing`.

The two windows are those of Knative's autoscaler (stable and panic); the tolerance, and that the highest need of the
window decides downwards, are those of the Kubernetes HPA (`--horizontal-pod-autoscaler-tolerance` 0.1, downscale
stabilization).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.decide.serving import goodput
from moorage.decide.serving.phase import bounds
from moorage.decide.serving.snapshot import Load
from moorage.domain.reasons import Reason, reason

TOLERANCE = 0.1
"""Share of a size by which the load may be off without a change, either way: a band of a fifth lies between the two."""

SAME_LOAD = 1e-9
"""Rounding of means is no load."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the spec asks, counts and seconds.

    Args:
        low, high: limits; `low` is at least 1, since zero is not reached by scaling.
        sleeps: its spec allows zero, so that `low` is its minimum only while it is awake.
        unit: requests in flight or held that one replica is meant for.
        interval_s: at most one decision in so long.
    """

    low: int
    high: int
    unit: float = 8.0
    up_after_s: float = 5.0
    down_after_s: float = 300.0
    slo: goodput.Slo | None = None
    sleeps: bool = False

    @property
    def scales(self) -> bool:
        """Whether there is any other size."""
        return self.high > self.low

    @property
    def interval_s(self) -> float:
        """Seconds between two decisions."""
        return max(self.up_after_s, 1.0)

    @staticmethod
    def of(spec: Mapping[str, Any]) -> "Policy":
        """From a normalised deployment."""
        low, high = bounds(spec)
        asked: Mapping[str, Any] = spec.get("scaling") or {}
        return Policy(
            low=low,
            high=high,
            unit=float(asked.get("target_in_flight", 8.0)),
            up_after_s=float(asked.get("up_after", 5.0)),
            down_after_s=float(asked.get("down_after", 300.0)),
            slo=goodput.Slo.of(asked.get("slo")),
            sleeps=int((spec.get("replicas") or {}).get("min", 1)) == 0,
        )

    def at_min(self) -> Reason:
        """It is as small as it may be."""
        return reason("scale.at_min", awake=self.low) if self.sleeps else reason("scale.at_min", min=self.low)

    def clamp(self, size: int) -> int:
        """The size, within the limits."""
        return min(max(size, self.low), self.high)


@dataclass(frozen=True, slots=True)
class Facts:
    """What else a choice depends on.

    Args:
        desired: the size as it was last decided.
        since: when it became that size.
        grew_at: when it last grew; what it grew for (a wake counts at once, a window only in the mean) may come again.
        no_room: what a replica of it waits for that has no place; None: all have one.
        per_replica: requests a second that one replica bears within the SLO, once that is qualified.
        unqualified: why that is not known yet; None: it is, or there is no SLO.
    """

    desired: int
    since: float
    grew_at: float = -math.inf
    no_room: str | None = None
    per_replica: float | None = None
    unqualified: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The size from now on, and why; `until`: when another answer may come though nothing else happens."""

    desired: int
    reason: Reason
    until: float | None = None


@dataclass(frozen=True, slots=True)
class _Signal:
    """What is compared with a size: the same three values of requests at once, or of requests a second."""

    urgent: float
    stable: float
    peak: float
    unit: float
    text: str

    def rise(self, size: int) -> int:
        """The size that the urgent window asks for, where it asks for more."""
        if self.urgent <= size * self.unit * (1.0 + TOLERANCE) + SAME_LOAD:
            return size
        return max(size, self._whole(self.urgent / self.unit))

    def need(self, load: float) -> int:
        """The smallest size that this load, and what is urgent, leave with room to spare."""
        return max(1, self._whole(max(load, self.urgent) / (self.unit * (1.0 - TOLERANCE))))

    @staticmethod
    def _whole(size: float) -> int:
        return math.ceil(size - SAME_LOAD)


def choose(policy: Policy, load: Load, facts: Facts, now: float) -> Choice:
    """The size that this load asks for, held where the rules say so."""
    case = _Case(policy, load, facts, _signal(policy, load, facts), now)
    signal, size = case.signal, policy.clamp(facts.desired)
    if size != facts.desired:
        return Choice(size, case.at_limit(size))
    up = signal.rise(size)
    if up > size:
        return _upwards(case, up)
    down = signal.need(signal.peak)
    if facts.no_room is not None and down >= size:
        return Choice(size, reason("scale.no_capacity", why=facts.no_room))
    if signal.need(signal.stable) < size and size > policy.low:
        return _downwards(case, down)
    return Choice(size, case.at_rest(size))


@dataclass(frozen=True, slots=True)
class _Case:
    policy: Policy
    load: Load
    facts: Facts
    signal: _Signal
    now: float

    def at_limit(self, size: int) -> Reason:
        """At the maximum, which counts where the two are one, or the minimum."""
        return reason("scale.at_max", max=size) if size >= self.policy.high else self.policy.at_min()

    def at_rest(self, size: int) -> Reason:
        """What is said of a size that fits."""
        if self.facts.unqualified is not None:
            return reason("scale.unqualified", why=self.facts.unqualified)
        return self.policy.at_min() if size <= self.policy.low else reason("scale.steady", to=size)

    def held(self, code: str, to: int, until: float) -> Choice:
        """Another size is asked for, and not taken before."""
        return Choice(self.facts.desired, reason(code, to=to, until=until), until)

    def why(self, most: str, over_s: float) -> str:
        """What was measured, for the one who asks why."""
        slo = f"; its SLO does not act yet: {self.facts.unqualified}" if self.facts.unqualified else ""
        return f"{most} {self.signal.text}, over {over_s:g} s{slo}"


def wake_size(policy: Policy, waiting: int) -> int:
    """Replicas for so many requests that wait for a deployment at zero."""
    return policy.clamp(math.ceil(waiting / policy.unit))


def _signal(policy: Policy, load: Load, facts: Facts) -> _Signal:
    if facts.per_replica is not None:
        text = f"requests a second, of which a replica bears {facts.per_replica:.3g} within its SLO"
        return _Signal(load.urgent_rate, load.rate, load.peak_rate, facts.per_replica, text)
    text = f"requests in flight or held, {policy.unit:g} for a replica"
    return _Signal(load.urgent, load.stable, load.peak, policy.unit, text)


def _upwards(case: _Case, up: int) -> Choice:
    policy, size, to = case.policy, case.facts.desired, case.policy.clamp(up)
    if case.facts.no_room is not None:
        return Choice(size, reason("scale.no_capacity", why=case.facts.no_room))
    if to <= size:
        return Choice(size, case.at_limit(size))
    unwatched_s = policy.up_after_s - case.load.urgent_s
    if unwatched_s > 0:
        return case.held("scale.held_stability", to, case.now + unwatched_s)
    until = case.facts.since + policy.interval_s
    if case.now < until:
        return case.held("scale.held_cooldown", to, until)
    why = case.why(f"{case.signal.urgent:.3g}", policy.up_after_s)
    return Choice(to, reason("scale.up", **{"from": size, "to": to, "why": why}))


def _downwards(case: _Case, down: int) -> Choice:
    policy, size, to = case.policy, case.facts.desired, case.policy.clamp(down)
    unwatched_s = policy.down_after_s - case.load.stable_s
    if unwatched_s > 0 or to >= size:
        hint = policy.clamp(case.signal.need(case.signal.stable))
        return case.held("scale.held_stability", hint, case.now + max(unwatched_s, case.load.peak_left_s, 1.0))
    until = max(case.facts.since + policy.interval_s, case.facts.grew_at + policy.down_after_s)
    if case.now < until:
        return case.held("scale.held_cooldown", to, until)
    why = case.why(f"at most {case.signal.peak:.3g}", policy.down_after_s)
    return Choice(to, reason("scale.down", **{"from": size, "to": to, "why": why}))
