"""What a sample can prove: the bounds by which a difference between two revisions counts or does not.

Nothing is assumed about how times are distributed. Two bounds are used:

Ratio of percentiles. Let X(r) be the order statistic of the active revision's n values that estimates the percentile,
and K the number of the candidate's m values above c · X(r). If the candidate is no worse than c times the active one, K
has at most the law of exceedances, P(K = k) = C(m-k+r-1, r-1) · C(k+n-r, n-r) / C(m+n, n), whatever the distribution
(Gumbel and von Schelling, Ann. Math. Statist. 21, 1950, 247-262; Epstein, Ann. Math. Statist. 25, 1954, 762-768; as a
test the precedence test of Nelson, Technometrics 5, 1963, 491-499; at the median Gart's control median test). With k
the smallest count whose chance is at most 1 - confidence, the candidate's k-th value from the bad end divided by X(r)
is therefore a lower confidence bound of the ratio, exact at every sample size, in both samples' luck. Values are known
by histogram buckets only: of each bucket the end counts that is better for the candidate, so the bound stays one.

Difference of shares. Newcombe's hybrid score interval (method 10: Statistics in Medicine 17, 1998, 873-890), made of
Wilson's intervals (J. Am. Statist. Assoc. 22, 1927, 209-212); it needs no failure on either side to be valid.

Called by `measures`; nothing of release policy is here.
"""

import math
from collections.abc import Mapping
from statistics import NormalDist

from moorage.domain.histogram import ranked, total

SAMPLE_MAX = 2000
"""A larger sample counts as one of this size with the same percentiles: less is claimed than could be, at a bound cost.
At this size the bound of a ratio is within a few per cent of its estimate."""

NEGLIGIBLE = 1e-18
"""Terms of a tail below this change no decision."""


def nearest_rank(share: float, count: int) -> int:
    """Rank (1: the smallest) of the value that estimates this percentile of `count` values."""
    return min(max(math.ceil(share * count - 1e-9), 1), count)


def middle(counts: Mapping[int, int], share: float) -> float:
    """The percentile as it is shown: the middle of its bucket."""
    low, high = ranked(counts, nearest_rank(share, total(counts)))
    return (low + high - 1) / 2


def rise(active: Mapping[int, int], candidate: Mapping[int, int], share: float) -> float:
    """Ratio candidate / active of a percentile, read in favour of the candidate within the buckets."""
    worst = ranked(active, nearest_rank(share, total(active)))[1] - 1
    best = ranked(candidate, nearest_rank(share, total(candidate)))[0]
    return _ratio(best, worst)


def fall(active: Mapping[int, int], candidate: Mapping[int, int], share: float) -> float:
    """The same where lower is worse."""
    worst = ranked(active, nearest_rank(share, total(active)))[0]
    best = ranked(candidate, nearest_rank(share, total(candidate)))[1] - 1
    return _ratio(best, worst)


def rise_at_least(
    active: Mapping[int, int], candidate: Mapping[int, int], share: float, confidence: float
) -> float | None:
    """Lower confidence bound of the ratio candidate / active of a percentile; None: these samples bound nothing.

    Args:
        active, candidate: histograms, not empty.
        share: the percentile, 0.95 for the 95th.
        confidence: one-sided, 0.99 for 99 %.
    """
    n, m = min(total(active), SAMPLE_MAX), min(total(candidate), SAMPLE_MAX)
    rank = nearest_rank(share, n)
    k = exceedances(n, m, rank, 1.0 - confidence)
    if k is None:
        return None
    worst = ranked(active, _rank_of(rank, n, total(active)))[1] - 1
    best = ranked(candidate, _rank_of(m - k + 1, m, total(candidate)))[0]
    return _ratio(best, worst)


def fall_at_most(
    active: Mapping[int, int], candidate: Mapping[int, int], share: float, confidence: float
) -> float | None:
    """Upper confidence bound of the ratio of a percentile, for values of which lower is worse; arguments as above."""
    n, m = min(total(active), SAMPLE_MAX), min(total(candidate), SAMPLE_MAX)
    rank = nearest_rank(share, n)
    k = exceedances(n, m, n - rank + 1, 1.0 - confidence)
    if k is None:
        return None
    worst = ranked(active, _rank_of(rank, n, total(active)))[0]
    best = ranked(candidate, _rank_of(k, m, total(candidate)))[1] - 1
    return _ratio(best, worst)


def exceedances(n: int, m: int, rank: int, chance: float) -> int | None:
    """Smallest k with P(K >= k) <= chance, K of `m` values lying above the `rank`-th of `n` of the same distribution.

    None: not even all m of them would be that unlikely.
    """
    terms = _upper_terms(n, m, rank)
    tail = 0.0
    k = terms[0][0] + len(terms) if terms else 0
    for k_here, p in reversed(terms):
        tail += p
        if tail > chance:
            break
        k = k_here
    return k if k <= m else None


def _upper_terms(n: int, m: int, rank: int) -> list[tuple[int, float]]:
    """(k, P(K = k)) from the most likely k upwards, until the terms are negligible."""
    k = _mode(n, m, rank)
    log_p = _log_choose(m - k + rank - 1, rank - 1) + _log_choose(k + n - rank, n - rank) - _log_choose(m + n, n)
    p = math.exp(log_p)
    terms = [(k, p)]
    while k < m and p > NEGLIGIBLE:
        p *= (k + n - rank + 1) / (k + 1) * (m - k) / (m - k + rank - 1)
        k += 1
        terms.append((k, p))
    return terms


def _mode(n: int, m: int, rank: int) -> int:
    """The first k at which the terms no longer rise; the law has one peak."""
    low, high = 0, m
    while low < high:
        k = (low + high) // 2
        if (k + n - rank + 1) * (m - k) > (k + 1) * (m - k + rank - 1):
            low = k + 1
        else:
            high = k
    return low


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _ratio(candidate: int, active: int) -> float:
    """Below one of the unit nothing is told apart."""
    return max(candidate, 1) / max(active, 1)


def _rank_of(rank: int, size: int, real: int) -> int:
    """The rank in the whole sample that stands for one in a sample of `size`."""
    return rank if size == real else nearest_rank(rank / size, real)


def difference_at_least(active: tuple[float, int], candidate: tuple[float, int], confidence: float) -> float:
    """Lower confidence bound of share(candidate) - share(active), by Newcombe's method 10.

    Args:
        active, candidate: (share, count). A mean of values within 0..1 may be given as a share: nothing within these
            limits varies more than what is only ever 0 or 1 (Bhatia and Davis, Am. Math. Monthly 107, 2000, 353-357).
        confidence: one-sided.
    """
    z = NormalDist().inv_cdf(confidence)
    _, upper = wilson(*active, z)
    lower, _ = wilson(*candidate, z)
    return candidate[0] - active[0] - math.hypot(candidate[0] - lower, upper - active[0])


def wilson(share: float, count: int, z: float) -> tuple[float, float]:
    """Wilson's score interval of a share seen in `count` trials."""
    spread = z * z / count
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return max(0.0, centre - half), min(1.0, centre + half)
