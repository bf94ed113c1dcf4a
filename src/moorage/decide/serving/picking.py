"""Which replica of several takes the next request: the one with fewer in flight of two, or by weight.

Not here: whether it is tried at all (`routing`, `among`).
"""

from collections.abc import Sequence
from typing import Final

from moorage.decide.serving import affinity
from moorage.decide.serving.routes import EndpointState, RevisionState, Serve, TargetState

_PRIME: Final = 2**31 - 1
_FACTOR: Final = 48271
"""Park and Miller's generator, with their later factor: of small integers, which cost a tenth of large ones."""
_ORDERS_MAX = 4096
_Among = EndpointState | RevisionState


class Picks:
    """The rotation that spreads picks.

    Args:
        seed: any number; where it starts.
    """

    def __init__(self, seed: int) -> None:
        self._turn = seed % (_PRIME - 1) + 1
        self._orders: dict[tuple[bytes, _Among], tuple[list[TargetState], list[TargetState]]] = {}
        """of keys that came lately: the replicas of which, and these as the key likes them"""

    def pick(self, among: _Among, now: float, limit: int, key: bytes | None = None) -> TargetState | None:
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
            known = self._orders.get((key, among))
            ordered = known[1] if known is not None and known[0] is targets else self._order(key, among)
            return affinity.first(ordered, now, limit)
        self._turn = turn = self._turn * _FACTOR % _PRIME
        if not among.uniform:
            return _weighted([t for t in targets if t.open_to(now, limit)], turn)
        first = turn % count
        a, b = targets[first], targets[first - 1 - turn // count % (count - 1)]
        best = b if b.in_flight < a.in_flight else a
        if (best.in_flight < limit and not best.aside) or best.open_to(now, limit):
            return best
        open_targets = [t for t in targets if t.open_to(now, limit)]
        return min(open_targets, key=_load) if open_targets else None

    def _order(self, key: bytes, among: _Among) -> list[TargetState]:
        if len(self._orders) >= _ORDERS_MAX:
            self._orders.clear()
        # A table that names other replicas makes another list of them, which shows that an order is none any more.
        targets = among.targets
        ordered = affinity.order(targets, affinity.number_of(key))
        self._orders[key, among] = targets, ordered
        return ordered


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
