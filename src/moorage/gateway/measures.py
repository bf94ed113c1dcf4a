"""What the gateway counts.

Here: integers, counted for many requests at once; text is made only when asked for (`exposition`). What is counted by
replica lives as long as the replica is in the table or still answers, so that series are few and end. Filled by
`counting`; read by `own` and `exposition`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from moorage.decide.serving.routes import TargetState
from moorage.gateway.tokens import GAP_BOUNDS_S, Tokens, sums_of

BOUNDS_S: Final = GAP_BOUNDS_S
_BUCKETS: Final = len(BOUNDS_S) + 1
_SERVER_ERROR: Final = 5
_FAILED: Final = frozenset(("cut", "upstream_error"))


class ReplicaStats:
    """Counters of one replica, as clients met it."""

    __slots__ = ("errors", "first", "first_s", "requests", "total", "total_s")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        """answers of the 500s, cut ones, and requests that got none"""
        self.first = [0] * _BUCKETS
        self.first_s = 0.0
        self.total = [0] * _BUCKETS
        self.total_s = 0.0


class Stats:
    """Counters of one endpoint at one deployment."""

    __slots__ = (
        "bytes",
        "client_gone",
        "completion_tokens",
        "counted_tokens",
        "cut",
        "first",
        "first_s",
        "gaps",
        "gaps_s",
        "limited",
        "prompt_tokens",
        "queued",
        "queued_s",
        "replicas",
        "retried",
        "statuses",
        "total",
        "total_s",
        "tunnels",
        "waited",
    )

    def __init__(self) -> None:
        self.statuses = [0] * 6
        """by the first digit; 0: no answer"""
        self.total = [0] * _BUCKETS
        self.total_s = 0.0
        self.first = [0] * _BUCKETS
        self.first_s = 0.0
        self.queued = [0] * _BUCKETS
        self.queued_s = 0.0
        self.gaps = [0] * _BUCKETS
        """between the parts of streams"""
        self.gaps_s = 0.0
        self.bytes = 0
        self.cut = 0
        self.client_gone = 0
        self.waited = 0
        self.limited = 0
        self.retried = 0
        self.tunnels = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.counted_tokens = 0
        """of streams that told no usage"""
        self.replicas: dict[TargetState, ReplicaStats] = {}

    def count(  # noqa: PLR0917 - by place, which is quicker than by name
        self,
        target: TargetState | None,
        status: int,
        outcome: str,
        queued_s: Sequence[float],
        first_s: Sequence[float | None],
        total_s: Sequence[float],
    ) -> None:
        """Finished requests that ended alike, here and at their replica's revision; times in seconds."""
        number, kind = len(total_s), status // 100
        self.statuses[kind] += number
        total, sum_s = _spread(total_s), sum(total_s)
        _add(self.total, total)
        self.total_s += sum_s
        if any(queued_s):
            _add(self.queued, _spread(queued_s))
            self.queued_s += sum(queued_s)
        else:
            self.queued[0] += number
        first, first_sum_s = total, sum_s  # an answer that came in one piece began when it ended
        if first_s is not total_s:
            began = [seconds for seconds in first_s if seconds is not None]
            first, first_sum_s = _spread(began), sum(began)
        _add(self.first, first)
        self.first_s += first_sum_s
        self._count_ends(status, outcome, number)
        if target is None:
            return
        self.waited += sum([seconds > 0.0 for seconds in queued_s]) if any(queued_s) else 0
        traffic = target.revision.traffic
        traffic.statuses[kind] += number
        if outcome == "cut":
            traffic.cut += number
        elif outcome == "client_gone":
            traffic.client_gone += number
        replica = self.replicas.get(target)
        if replica is None:
            replica = self.replicas[target] = ReplicaStats()
        replica.requests += number
        _add(replica.total, total)
        replica.total_s += sum_s
        _add(replica.first, first)
        replica.first_s += first_sum_s
        if kind >= _SERVER_ERROR or outcome in _FAILED:
            replica.errors += number

    def _count_ends(self, status: int, outcome: str, number: int) -> None:
        if outcome == "cut":
            self.cut += number
        elif outcome == "client_gone":
            self.client_gone += number
        if status == 429:
            self.limited += number
        elif status == 101:
            self.tunnels += number

    def count_tokens(self, tokens: Sequence[Tokens | None], told: tuple[Sequence[int], Sequence[int]] | None) -> None:
        """What answers took and gave; `told` as `tokens.columns_of` gives it."""
        prompt, completion, counted = (sum(told[0]), sum(told[1]), 0) if told is not None else sums_of(tokens)
        self.prompt_tokens += prompt
        self.completion_tokens += completion
        self.counted_tokens += counted

    def forget(self, gone: Iterable[TargetState]) -> None:
        """These replicas left the table and answer nobody any more: their series end."""
        for target in gone:
            self.replicas.pop(target, None)


def _spread(times_s: Sequence[float]) -> list[tuple[int, int]]:
    """How many of these are in which bucket."""
    if len(times_s) == 1:
        return [(bisect_left(BOUNDS_S, times_s[0]), 1)]
    found: list[tuple[int, int]] = []
    ordered, begin = sorted(times_s), 0
    while begin < len(ordered):  # few times: requests of one moment take about the same
        bucket = bisect_left(BOUNDS_S, ordered[begin])
        end = bisect_right(ordered, BOUNDS_S[bucket], begin) if bucket < len(BOUNDS_S) else len(ordered)
        found.append((bucket, end - begin))
        begin = end
    return found


def _add(counts: list[int], spread: Iterable[tuple[int, int]]) -> None:
    for bucket, number in spread:
        counts[bucket] += number
