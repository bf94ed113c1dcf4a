"""Which replica of several takes the next request: the one with fewer in flight of two, or by weight.

Not here: whether it is tried at all (`routing`, `among`).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from moorage.decide.serving import affinity
from moorage.decide.serving.routes import EndpointState, RevisionState, Serve, TargetState

_PRIME: Final = 2**31 - 1
_FACTOR: Final = 48271
"""Park and Miller's generator, with their later factor: of small integers, which cost a tenth of large ones."""
_ORDERS_MAX = 4096
_Among = EndpointState | RevisionState


class Orders:
    """Of one endpoint or revision: its replicas as keys that came lately like them.

    Args:
        targets: these replicas. A table that names others makes another list of them, which shows that no order of
            these is one any more.
    """

    __slots__ = ("by_key", "targets")

    def __init__(self, targets: list[TargetState]) -> None:
        self.targets = targets
        self.by_key: dict[bytes, list[TargetState]] = {}


class Picks:
    """The rotation that spreads picks.

    Args:
        seed: any number; where it starts.
    """

    def __init__(self, seed: int) -> None:
        self._turn = seed % (_PRIME - 1) + 1
        self._orders: dict[_Among, Orders] = {}
        self._count = 0
        """orders in all of them"""

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
            orders = self._orders.get(among)
            if orders is None or orders.targets is not targets:
                orders = self._begin(among)
            ordered = orders.by_key.get(key)
            if ordered is None:
                ordered = self._order(key, among, orders)
            return affinity.first(ordered, now, limit)
        self._turn = turn = self._turn * _FACTOR % _PRIME
        if not among.uniform:
            return _weighted([t for t in targets if t.open_to(now, limit)], turn)
        if count == 2:
            a, b = targets
            if turn & 1:
                a, b = b, a
        else:
            first = turn % count
            a, b = targets[first], targets[first - 1 - turn // count % (count - 1)]
        best = b if b.in_flight < a.in_flight else a
        if (best.in_flight < limit and not best.aside) or best.open_to(now, limit):
            return best
        open_targets = [t for t in targets if t.open_to(now, limit)]
        return min(open_targets, key=_load) if open_targets else None

    def at_once(
        self, endpoint: EndpointState, now: float, tenant: str = "", affinity: bytes | None = None
    ) -> TargetState | None:
        """The replica that a new request may go to now, and counts as in flight at; None: `Router.arrive` decides.

        In few steps what that says to most requests: one that names no revision, where all replicas are alike and
        nobody waits.

        Args:
            tenant: whose it is; told again when it ends.
            affinity: requests with the same one go to the same replica.
        """
        if endpoint.waiting or not endpoint.at_once:
            return None
        targets = endpoint.targets
        if len(targets) == 1:
            target: TargetState | None = targets[0]
            assert target is not None
            if target.aside or target.in_flight >= endpoint.route.limits.max_in_flight:
                return None
        else:
            target = self.pick(endpoint, now, endpoint.route.limits.max_in_flight, affinity)
            if target is None:
                return None
            if target.aside:
                target.probing = True
        if tenant:
            endpoint.queue.began(tenant)
        target.in_flight += 1
        endpoint.in_flight += 1
        return target

    def keep(self, among: Iterable[_Among]) -> None:
        """Forget the orders of all but these, and of the replicas that these had before: they are no more of a table.

        Args:
            among: what there is by the table.
        """
        if not self._orders:
            return
        known = [(each, self._orders.get(each)) for each in among]
        self._orders = {each: orders for each, orders in known if orders is not None and orders.targets is each.targets}
        self._count = sum(len(orders.by_key) for orders in self._orders.values())

    def _begin(self, among: _Among) -> Orders:
        former = self._orders.get(among)
        if former is not None:
            self._count -= len(former.by_key)
        orders = self._orders[among] = Orders(among.targets)
        return orders

    def _order(self, key: bytes, among: _Among, orders: Orders) -> list[TargetState]:
        if self._count >= _ORDERS_MAX:
            orders.by_key.clear()
            self._orders = {among: orders}
            self._count = 0
        ordered = orders.by_key[key] = affinity.order(orders.targets, affinity.number_of(key))
        self._count += 1
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
