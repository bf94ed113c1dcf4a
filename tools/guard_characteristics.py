"""Operating characteristics of the release guard: how often it errs, worked out by playing rollouts.

    python tools/guard_characteristics.py [--rollouts 2000] [--seed 1]

Each rollout draws requests for an active revision and a candidate, one for each at a time, and from minimum_requests on
has the guard itself judge for as long as it waits: after each pair of requests, with a minimum above 39 after each
twentieth part of it. Looking that often is the worst case for a decision by luck. Times are lognormal, `scatter` is
their standard deviation over their mean; the time to the first token, the time to the last and the rate are drawn
independently, so that luck has three chances. Prints the tables of docs/decisions/0024, the same for the same seed;
`tests/unit/decide/test_guard_characteristics.py` holds what is promised.
"""

import argparse
import math
import random
from collections import Counter
from dataclasses import dataclass, replace

from moorage.decide.serving.evidence import Seen
from moorage.decide.serving.guard import Facts, Policy, judge
from moorage.domain.histogram import index_of

BASE_US = 400_000
"""Mean latency of the active revision; only ratios matter."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a revision behaves.

    Args:
        slower: its times over the active's.
        errors: share of its requests that fail.
        scatter: standard deviation of its times over their mean.
    """

    slower: float = 1.0
    errors: float = 0.0
    scatter: float = 0.3


class Side:
    """One revision's evidence, drawn request by request."""

    def __init__(self, kind: Kind, draws: random.Random) -> None:
        self._kind = kind
        self._draws = draws
        self._sigma = math.sqrt(math.log(1 + kind.scatter**2))
        self.seen = Seen(ttft_us={}, latency_us={}, throughput_milli={})

    def answer(self, count: int) -> None:
        """So many more requests."""
        failed = sum(self._draws.random() < self._kind.errors for _ in range(count))
        self.seen = replace(self.seen, requests=self.seen.requests + count, errors=self.seen.errors + failed)
        for _ in range(count - failed):
            self._count(self.seen.ttft_us, BASE_US / 8 * self._kind.slower)
            self._count(self.seen.latency_us, BASE_US * self._kind.slower)
            self._count(self.seen.throughput_milli, 50_000 / self._kind.slower)

    def _count(self, histogram: object, mean: float) -> None:
        assert isinstance(histogram, dict)
        index = index_of(round(mean * self._draws.lognormvariate(0, self._sigma)))
        histogram[index] = histogram.get(index, 0) + 1


@dataclass(frozen=True, slots=True)
class Played:
    """How rollouts ended, as shares of them; and how many requests each side had at the end, on average."""

    accepted: float
    rejected: float
    requests: float


def play(active: Kind, candidate: Kind, *, minimum: int, rollouts: int, seed: int) -> Played:
    """Rollouts of one kind against another."""
    draws = random.Random(seed)
    policy, ends, requests = Policy(minimum_requests=minimum), Counter[str](), 0
    for _ in range(rollouts):
        sides = Side(active, draws), Side(candidate, draws)
        verdict, more = "WAIT", minimum
        while verdict == "WAIT":
            for side in sides:
                side.answer(more)
            verdict = str(judge(policy, sides[0].seen, sides[1].seen, Facts()).verdict)
            more = max(1, minimum // 20)
        ends[verdict] += 1
        requests += sides[0].seen.requests
    return Played(ends["ACCEPT"] / rollouts, ends["REJECT"] / rollouts, requests / rollouts)


MINIMA = (20, 50, 100, 200, 500)
SCATTERS = (0.1, 0.3, 0.5, 1.0)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rollouts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    how = {"rollouts": asked.rollouts, "seed": asked.seed}
    print("rejected, per cent of rollouts (requests on each side at the end)\n")
    print("| minimum_requests | scatter | equal | 30 % slower | twice as slow |")
    print("|---|---|---|---|---|")
    for minimum in MINIMA:
        for scatter in SCATTERS:
            calm = Kind(scatter=scatter)
            cells = [play(calm, replace(calm, slower=s), minimum=minimum, **how) for s in (1.0, 1.3, 2.0)]
            print(f"| {minimum} | {scatter} | " + " | ".join(map(_cell, cells)) + " |")
    print("\n| minimum_requests | equal, 2 % fail | 5 % fail | 10 % fail | 30 % fail |")
    print("|---|---|---|---|---|")
    for minimum in MINIMA:
        even = play(Kind(errors=0.02), Kind(errors=0.02), minimum=minimum, **how)
        worse = [play(Kind(), Kind(errors=share), minimum=minimum, **how) for share in (0.05, 0.1, 0.3)]
        print(f"| {minimum} | " + " | ".join(map(_cell, (even, *worse))) + " |")


def _cell(played: Played) -> str:
    return f"{100 * played.rejected:.1f} ({played.requests:.0f})"


if __name__ == "__main__":
    main()
