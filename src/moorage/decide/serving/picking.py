"""Which replica of several takes the next request: the one with fewer in flight of two, or by weight.

Not here: whether it is tried at all (`routing`, `among`).
"""

from collections.abc import Sequence

from moorage.decide.serving import affinity
from moorage.decide.serving.routes import EndpointState, RevisionState, Serve, TargetState

_LCG_MASK = (1 << 64) - 1
_NUMBERS_MAX = 4096


class Picks:
    """The rotation that spreads picks.

    Args:
        seed: any number; where it starts.
    """

    def __init__(self, seed: int) -> None:
        self._turn = seed & _LCG_MASK
        self._numbers: dict[bytes, int] = {}
        """of keys that came lately"""

    def pick(
        self, among: EndpointState | RevisionState, now: float, limit: int, key: bytes | None = None
    ) -> TargetState | None:
        """Least in flight of two; all are looked at when neither of the two is open.

        Args:
            key: requests with the same one go to the same replica, whatever the weights.
        """
        targets = among.targets
        count = len(targets)
        if count == 1:
            only = targets[0]
            if not only.aside:
                return only if only.in_flight < limit else None
            return only if only.open_to(now, limit) else None
        if count == 0:
            return None
        if key is not None:
            return affinity.choose(targets, self._number(key), now, limit)
        self._turn = turn = (self._turn * 6364136223846793005 + 1442695040888963407) & _LCG_MASK
        if not among.uniform:
            return _weighted([t for t in targets if t.open_to(now, limit)], turn >> 33)
        first = (turn >> 33) % count
        second = (first + 1 + (turn >> 13) % (count - 1)) % count
        a, b = targets[first], targets[second]
        best = b if b.in_flight < a.in_flight else a
        if (best.in_flight < limit and not best.aside) or best.open_to(now, limit):
            return best
        open_targets = [t for t in targets if t.open_to(now, limit)]
        return min(open_targets, key=_load) if open_targets else None

    def _number(self, key: bytes) -> int:
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= _NUMBERS_MAX:
                self._numbers.clear()
            number = self._numbers[key] = affinity.number_of(key)
        return number


def start(endpoint: EndpointState, target: TargetState, tenant: str) -> Serve:
    """Count a request as in flight there."""
    if tenant:
        endpoint.queue.began(tenant)
    if target.aside:
        target.probing = True
    target.in_flight += 1
    endpoint.in_flight += 1
    return target.serve


def _load(target: TargetState) -> int:
    return target.in_flight


def _weighted(targets: Sequence[TargetState], draw: int) -> TargetState | None:
    """In proportion to weight, which is what a share of traffic means."""
    total = sum(target.spec.weight for target in targets)
    if not total:
        return None
    draw %= total
    for target in targets:
        draw -= target.spec.weight
        if draw < 0:
            return target
    return None
