"""One measure of two revisions held against the policy: within it, worse and proven, worse and not proven, or missing.

A measure regressed when it is beyond its limit with the confidence that `bounds` gives; beyond the limit without that
it is *suspected*: more requests decide it. Called by `judge`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from moorage.decide.serving.evidence import Seen
from moorage.decide.serving.guard import bounds
from moorage.decide.serving.guard.policy import Policy
from moorage.domain.histogram import total

CONFIDENCE = 0.99
"""One-sided, of each regression that counts. The sample is looked at again and again while it grows; with this level
two equal revisions are told apart in under 1 in 100 rollouts all looks together, unless times scatter as widely as
their mean (docs/decisions/0024 has the table, `tools/guard_characteristics.py` makes it)."""

QUALITY_CONFIDENCE = 0.95
"""Of a drop in quality: a score is posted once, not watched while it grows."""

QUALITY = "quality_regression"
"""The code of the one measure that no request moves."""

TAIL, MEDIAN = 0.95, 0.5
SLACK = 1e-9
"""Equal passes, also where binary fractions are not: 0.93 - 0.92 is a little more than 0.01."""


class Standing(StrEnum):
    """How a measure stands."""

    WITHIN = "within"
    SUSPECTED = "suspected"
    REGRESSED = "regressed"
    MISSING = "missing"
    """the active revision has it and the candidate does not"""
    NOT_APPLICABLE = "not_applicable"
    """the active revision does not have it"""


@dataclass(frozen=True, slots=True)
class Measure:
    """One comparison, in the unit of its metric: seconds, tokens a second, or a share.

    Args:
        metric: ttft_p95, latency_p95, output_throughput, error_rate, or the name of the quality.
        regression: the code under which it rejects.
        active, candidate: what was measured; percentiles are the middle of their histogram's bucket (at most 6 % wide).
        limit: up to (of throughput and quality: down to) which the candidate passes.
        bound: what the candidate is worse by at least, at the confidence of the measure: a ratio to the active one
            for times, at most that ratio for throughput, a difference for shares and quality. None: nothing is bound.
        samples: values behind active and candidate.
    """

    metric: str
    regression: str
    standing: Standing
    active: float | None = None
    candidate: float | None = None
    limit: float | None = None
    bound: float | None = None
    samples: tuple[int, int] = (0, 0)

    def to_wire(self) -> dict[str, Any]:
        """As it is stored and shown."""
        return {
            "metric": self.metric,
            "standing": str(self.standing),
            "active": self.active,
            "candidate": self.candidate,
            "limit": self.limit,
            "bound": self.bound,
            "samples": {"active": self.samples[0], "candidate": self.samples[1]},
        }


def requests(policy: Policy, active: Seen, candidate: Seen) -> tuple[Measure, ...]:
    """Every measure that is made of requests."""
    return (
        error_rate(policy, active, candidate),
        times("ttft_p95", active.ttft_us, candidate.ttft_us, policy.ttft_percent),
        times("latency_p95", active.latency_us, candidate.latency_us, policy.latency_percent),
        throughput(active.throughput_milli, candidate.throughput_milli, policy.throughput_percent),
    )


def error_rate(policy: Policy, active: Seen, candidate: Seen) -> Measure:
    """The share of requests that failed; those that clients gave up are not among them."""
    samples = (active.requests, candidate.requests)
    if not all(samples):
        return Measure("error_rate", "error_rate_regression", _missing(*samples), samples=samples)
    before, after = (min(1.0, side.errors / side.requests) for side in (active, candidate))
    bound = bounds.difference_at_least((before, active.requests), (after, candidate.requests), CONFIDENCE)
    return Measure(
        "error_rate",
        "error_rate_regression",
        _standing(after - before > policy.error_rate + SLACK, bound > policy.error_rate),
        _round(before),
        _round(after),
        _round(before + policy.error_rate),
        _round(bound),
        samples,
    )


def times(metric: str, active: Mapping[int, int], candidate: Mapping[int, int], percent: float) -> Measure:
    """The 95th percentile of times in microseconds; shown in seconds."""
    regression = metric.removesuffix("_p95") + "_regression"
    samples = (total(active), total(candidate))
    if not all(samples):
        return Measure(metric, regression, _missing(*samples), samples=samples)
    allowed = 1.0 + percent / 100.0
    bound = bounds.rise_at_least(active, candidate, TAIL, CONFIDENCE)
    before, after = bounds.middle(active, TAIL) / 1e6, bounds.middle(candidate, TAIL) / 1e6
    worse = bounds.rise(active, candidate, TAIL) > allowed + SLACK
    return Measure(
        metric,
        regression,
        _standing(worse, bound is not None and bound > allowed + SLACK),
        _round(before),
        _round(after),
        _round(before * allowed),
        _round(bound),
        samples,
    )


def throughput(active: Mapping[int, int], candidate: Mapping[int, int], percent: float) -> Measure:
    """The median of tokens a second, in thousandths; shown in tokens a second."""
    metric, regression = "output_throughput", "output_throughput_regression"
    samples = (total(active), total(candidate))
    if not all(samples):
        return Measure(metric, regression, _missing(*samples), samples=samples)
    allowed = 1.0 - percent / 100.0
    bound = bounds.fall_at_most(active, candidate, MEDIAN, CONFIDENCE)
    before, after = bounds.middle(active, MEDIAN) / 1e3, bounds.middle(candidate, MEDIAN) / 1e3
    worse = bounds.fall(active, candidate, MEDIAN) < allowed - SLACK
    return Measure(
        metric,
        regression,
        _standing(worse, bound is not None and bound < allowed - SLACK),
        _round(before),
        _round(after),
        _round(before * allowed),
        _round(bound),
        samples,
    )


def quality(policy: Policy, active: Seen, candidate: Seen) -> Measure | None:
    """The measure posted from outside, where the policy asks for one.

    A score within 0..1 is a mean of such, so a drop of it is bound as one of shares is. Of any other score nothing is
    known about its scatter: it counts as it was posted.
    """
    if policy.quality is None:
        return None
    before, after = active.quality.get(policy.quality), candidate.quality.get(policy.quality)
    if before is None or after is None:
        samples = (before[1] if before else 0, after[1] if after else 0)
        shown = (before[0] if before else None, after[0] if after else None)
        return Measure(policy.quality, QUALITY, Standing.MISSING, *shown, samples=samples)
    drop = before[0] - after[0]
    bound = _drop_at_least(before, after)
    return Measure(
        policy.quality,
        QUALITY,
        _standing(drop > policy.quality_max_drop + SLACK, bound > policy.quality_max_drop + SLACK),
        _round(before[0]),
        _round(after[0]),
        _round(before[0] - policy.quality_max_drop),
        _round(bound),
        (before[1], after[1]),
    )


def _drop_at_least(before: tuple[float, int], after: tuple[float, int]) -> float:
    shares = all(0.0 <= value <= 1.0 and count > 0 for value, count in (before, after))
    return bounds.difference_at_least(after, before, QUALITY_CONFIDENCE) if shares else before[0] - after[0]


def _missing(active: int, candidate: int) -> Standing:
    return Standing.MISSING if active and not candidate else Standing.NOT_APPLICABLE


def _standing(worse: bool, proven: bool) -> Standing:
    if not worse:
        return Standing.WITHIN
    return Standing.REGRESSED if proven else Standing.SUSPECTED


def _round(value: float | None) -> float | None:
    """To nine decimals: what is stored reads well, and the last bits of a library's logarithm do not show."""
    return None if value is None else round(value, 9)
