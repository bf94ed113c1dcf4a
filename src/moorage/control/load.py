"""How much load each deployment that scales has had lately: `Load` for its decisions, from what gateways report.

Kept in memory and bounded: per deployment a ring of slices over the longer of its two windows, for which the level of
requests in flight or held is integrated over monotonic time, and ten coarser ones of latencies. A control plane that
begins to lead has watched nothing yet, and says so (`stable_s`, `urgent_s`). Called by the routing publisher, which
hears the reports, and through it by the serving loop.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from moorage.control.gateways import LEASE_S
from moorage.decide.serving.autoscale import Policy
from moorage.decide.serving.snapshot import Load
from moorage.domain.histogram import merged, ranked, total
from moorage.domain.nouns import Deployment
from moorage.ports import Clock
from moorage.wire.routing import EndpointActivity, Evidence, GatewayReport

Values = npt.NDArray[np.float64]

SLICES_MAX = 600
"""Of one deployment: 10 KB. A stable window longer than 600 fifths of the urgent one is cut more coarsely."""

DEPLOYMENTS_MAX = 10_000
"""Windows kept; that of the deployment looked at longest ago goes first."""

LATENCY_SLICES = 10


@dataclass(slots=True)
class _Told:
    """What one gateway last said of one endpoint."""

    heard_at: float
    requests: int
    outstanding: int


class Ring:
    """Integrals of a level, and counts, over slices of time; the oldest slice makes room for the newest.

    Args:
        width_s: of a slice.
        count: slices kept, the one under way not counted.
        now: monotonic seconds.
    """

    def __init__(self, width_s: float, count: int, now: float) -> None:
        self.width_s = width_s
        self.count = count
        self.started = now
        self._areas = np.zeros(count + 1)
        self._came = np.zeros(count + 1)
        self._level = 0.0
        self._at = now
        self._index = int(now / width_s)

    def advance(self, now: float) -> None:
        """Let the level go on until now."""
        index = int(now / self.width_s)
        if index - self._index > self.count:  # all that is kept passed at this level
            self._areas[:] = self._level * self.width_s
            self._came[:] = 0.0
            self._index, self._at = index, index * self.width_s
            self._areas[index % (self.count + 1)] = 0.0
        while self._index < index:
            end = (self._index + 1) * self.width_s
            self._areas[self._index % (self.count + 1)] += self._level * max(0.0, end - self._at)
            self._index, self._at = self._index + 1, end
            slot = self._index % (self.count + 1)
            self._areas[slot] = self._came[slot] = 0.0
        self._areas[self._index % (self.count + 1)] += self._level * max(0.0, now - self._at)
        self._at = max(self._at, now)

    def put(self, now: float, level: float, came: float) -> None:
        """From now on the level is this one; and so many came since the last time."""
        self.advance(now)
        self._level = level
        self._came[self._index % (self.count + 1)] += came

    def mean(self, over_s: float, now: float) -> tuple[float, float, float]:
        """Mean level and rate over the last seconds, and how many of them were watched."""
        watched = min(over_s, now - self.started)
        if watched <= 0:
            return 0.0, 0.0, 0.0
        whole = min(max(1, round(over_s / self.width_s)), self.count)
        under_way = now - self._index * self.width_s
        rest = max(0.0, 1.0 - under_way / self.width_s)  # of the oldest slice, what the window still covers
        area, came = (values[-whole - 1 :] for values in (self._ordered(self._areas), self._ordered(self._came)))
        return (
            float(area[1:].sum() + area[0] * rest) / watched,
            float(came[1:].sum() + came[0] * rest) / watched,
            watched,
        )

    def peak(self, over_s: float, now: float) -> tuple[float, float, float]:
        """The highest mean level and rate over any such stretch of what is kept, and when the highest level ended."""
        whole = max(1, min(self.count, round(over_s / self.width_s)))
        areas = _stretches(self._ordered(self._areas)[:-1], whole)
        came = _stretches(self._ordered(self._came)[:-1], whole)
        last = len(areas) - 1 - int(areas[::-1].argmax())  # of equal ones the latest
        ended = (self._index - self.count + whole + last) * self.width_s
        if areas[last] <= 0.0:
            ended = now - self.count * self.width_s
        return float(areas[last]) / (whole * self.width_s), float(came.max()) / (whole * self.width_s), ended

    def _ordered(self, values: Values) -> Values:
        """Oldest slice first; the last one is under way."""
        oldest = (self._index + 1) % (self.count + 1)
        return np.concatenate((values[oldest:], values[:oldest]))


def _stretches(values: Values, whole: int) -> Values:
    """Sums of every run of so many slices, as differences of sums from the start; never below zero by rounding."""
    sums = np.concatenate(([0.0], values.cumsum()))
    stretches: Values = np.maximum(sums[whole:] - sums[:-whole], 0.0)
    return stretches


@dataclass(slots=True)
class _Latencies:
    """Of one stretch of time: by revision, histograms in microseconds and how many requests are behind them."""

    index: int
    ttft: dict[str, dict[int, int]] = field(default_factory=dict)
    latency: dict[str, dict[int, int]] = field(default_factory=dict)
    samples: dict[str, int] = field(default_factory=dict)


class _Window:
    """What is kept of one deployment."""

    def __init__(self, deployment: Deployment, policy: Policy, now: float) -> None:
        self.uid = deployment.uid
        self.times = (policy.up_after_s, policy.down_after_s)
        long_s, short_s = max(self.times), max(policy.up_after_s, 0.5)
        width_s = max(short_s / 5.0, long_s / SLICES_MAX)
        self.ring = Ring(width_s, max(1, math.ceil(long_s / width_s)), now)
        self.told: dict[str, _Told] = {}
        self._slices: deque[_Latencies] = deque(maxlen=LATENCY_SLICES)
        self._slice_s = max(policy.down_after_s / (LATENCY_SLICES - 1), 1.0)
        self._known: dict[tuple[str, str, str, str], Evidence] = {}

    def hear(self, gateway: str, activity: EndpointActivity, now: float) -> None:
        """A gateway's word: what came is what ended and what more is under way than before."""
        outstanding, before = activity.held + activity.in_flight, self.told.get(gateway)
        came = 0
        if before is not None:
            came = max(0, activity.requests - before.requests + outstanding - before.outstanding)
        self.told[gateway] = _Told(now, activity.requests, outstanding)
        self.settle(now, came)

    def settle(self, now: float, came: int = 0) -> None:
        """The level is the sum over the gateways whose lease is good."""
        for gateway in [g for g, told in self.told.items() if told.heard_at < now - LEASE_S]:
            del self.told[gateway]
        self.ring.put(now, float(sum(t.outstanding for t in self.told.values())), float(came))

    def see(self, source: tuple[str, str], evidence: Evidence, now: float) -> None:
        """Latencies since the same source last told; the first word is only where counting begins."""
        key = (*source, evidence.evidence_id, evidence.revision)
        before = self._known.get(key)
        self._known = {k: e for k, e in self._known.items() if k[0] != source[0] or k[1] == source[1]}
        self._known[key] = evidence
        if before is None:
            return
        part, revision = self._slice(now), evidence.revision
        part.ttft[revision] = merged([part.ttft.get(revision, {}), _since(evidence.ttft_us, before.ttft_us)])
        part.latency[revision] = merged(
            [part.latency.get(revision, {}), _since(evidence.latency_us, before.latency_us)]
        )
        part.samples[revision] = part.samples.get(revision, 0) + max(0, evidence.requests - before.requests)

    def _slice(self, now: float) -> _Latencies:
        index = int(now / self._slice_s)
        if not self._slices or self._slices[-1].index != index:
            self._slices.append(_Latencies(index))
        return self._slices[-1]

    def load(self, revision: str | None, now: float) -> Load:
        """Both windows as of now."""
        up_s, down_s = self.times
        self.settle(now)
        urgent, urgent_rate, urgent_s = self.ring.mean(up_s, now)
        stable, rate, stable_s = self.ring.mean(down_s, now)
        peak, peak_rate, ended = self.ring.peak(up_s, now)
        kept = [s for s in self._slices if s.index > now / self._slice_s - LATENCY_SLICES]
        of = revision or ""
        return Load(
            stable=stable,
            urgent=urgent,
            stable_s=stable_s,
            urgent_s=urgent_s,
            rate=rate,
            ttft_p95_s=_p95_s(s.ttft.get(of, {}) for s in kept),
            latency_p95_s=_p95_s(s.latency.get(of, {}) for s in kept),
            samples=sum(s.samples.get(of, 0) for s in kept),
            peak=max(peak, urgent),
            peak_left_s=max(0.0, ended + down_s - now),
            urgent_rate=urgent_rate,
            peak_rate=max(peak_rate, urgent_rate),
        )


def _since(now: Mapping[int, int], before: Mapping[int, int]) -> dict[int, int]:
    return {index: more for index, count in now.items() if (more := count - before.get(index, 0)) > 0}


def _p95_s(parts: Iterable[Mapping[int, int]]) -> float | None:
    counts = merged(parts)
    if not counts:
        return None
    low, high = ranked(counts, math.ceil(0.95 * total(counts)))
    return (low + high) / 2e6


class Loads:
    """The windows of all deployments that scale.

    Args:
        clock: its monotonic time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: OrderedDict[tuple[str, str], _Window] = OrderedDict()
        self._incarnations: dict[str, str] = {}

    def reset(self) -> None:
        """A leadership begins: nothing was watched."""
        self._windows.clear()

    def heard(self, report: GatewayReport) -> None:
        """Take a gateway's report in."""
        now = self._clock.monotonic()
        if self._incarnations.get(report.gateway) != report.incarnation:
            self._incarnations[report.gateway] = report.incarnation
            for window in self._windows.values():
                window.told.pop(report.gateway, None)
        for activity in report.endpoints:
            found = self._windows.get((activity.namespace, activity.name))
            if found is not None:
                found.hear(report.gateway, activity, now)
        if report.evidence:
            by_uid = {w.uid: w for w in self._windows.values()}
            for evidence in report.evidence:
                if evidence.deployment in by_uid:
                    by_uid[evidence.deployment].see((report.gateway, report.incarnation), evidence, now)

    def of(self, deployment: Deployment, *, known: bool) -> Load:
        """The load of one deployment; one that does not scale has none.

        Args:
            deployment: the row.
            known: every gateway that may have traffic has reported; before that nothing counts as watched.
        """
        policy, now = Policy.of(deployment.spec), self._clock.monotonic()
        key = (deployment.namespace, deployment.name)
        if not policy.scales:
            self._windows.pop(key, None)
            return Load()
        window = self._windows.get(key)
        times = (policy.up_after_s, policy.down_after_s)
        if window is None or window.uid != deployment.uid or window.times != times:
            told = window.told if window is not None and window.uid == deployment.uid else {}
            window = self._windows[key] = _Window(deployment, policy, now)
            window.told = told
        self._windows.move_to_end(key)
        while len(self._windows) > DEPLOYMENTS_MAX:
            self._windows.popitem(last=False)
        if not known:
            window.ring.started = now
        return window.load(deployment.active_revision, now)
