"""Which replica answers a request, and what happens to it when none can: the pure core of the gateway.

Here: the state of every endpoint as one gateway sees it, and the rules for serve, hold, wake and refuse. Not here:
sockets, clocks, randomness, logging (`now` and the seed are arguments). Called by `moorage.gateway.hub` only, from one
thread. A request is known by a token that the caller chooses (any hashable object); each admitted token leaves by
exactly one of `done`, `cancelled`, or a `Refuse` returned for it.

Invariants (checked by the property tests): a target never has more than `max_in_flight` requests; new requests are
refused once `max_queue` are held; an endpoint that the table names is never answered 404.
"""

from collections.abc import Iterable, Iterator, Sequence

from moorage.decide.serving.routes import (
    DEFAULT_NAMESPACE,
    HOLD,
    HOLD_FIRST,
    Decision,
    EndpointState,
    Generation,
    Refuse,
    Release,
    RouteSpec,
    Serve,
    TargetState,
    Token,
)

EJECT_MIN_S = 0.05
"""First back-off after a failed connect: a server that listens a moment after it said ready costs one such wait."""
EJECT_MAX_S = 2.0
CONTROL_GRACE_S = 10.0
"""A control plane away for less than this is a restart: cold endpoints still hold. Beyond it nobody can wake them."""
DEFAULT_RETRY_AFTER_S = 5.0
_LCG_MASK = (1 << 64) - 1


def not_found(name: str) -> Refuse:
    """The answer for a name that the table does not have; it lists nothing, since other names may not be yours."""
    return Refuse(404, "model_not_found", f"The model `{name}` does not exist or you do not have access to it.")


NOT_LOADED = Refuse(503, "not_ready", "this gateway has no routing table yet; retry shortly", 1.0)


class Router:
    """All endpoints of one gateway, and every decision about them.

    Args:
        seed: start of the rotation that spreads picks; any number.
        now: the caller's monotonic seconds.
    """

    def __init__(self, seed: int, now: float) -> None:
        self.generation: Generation | None = None
        self.control_lost_at: float | None = now
        self._endpoints: dict[tuple[str, str], EndpointState] = {}
        self._names: dict[str, EndpointState] = {}
        self._turn = seed & _LCG_MASK

    # --- reading -------------------------------------------------------------------------------------------------

    def find(self, name: str) -> EndpointState | None:
        """The endpoint called so: name, namespace/name or alias."""
        return self._names.get(name)

    def endpoints(self) -> Iterator[EndpointState]:
        """Every endpoint known, those that left the table with requests still running included."""
        return iter(self._endpoints.values())

    def busy(self) -> bool:
        """Whether anything is in flight or held anywhere."""
        return any(state.in_flight or state.waiting for state in self._endpoints.values())

    # --- requests ------------------------------------------------------------------------------------------------

    def arrive(self, endpoint: EndpointState, token: Token, now: float) -> Decision:
        """Decide for a new request. After `Serve` the request counts as in flight; after `Hold` as held."""
        route = endpoint.route
        if route.mode == "serve" and not endpoint.waiting:
            target = self._pick(endpoint, now)
            if target is not None:
                return self._start(endpoint, target)
        refusal = self._refusal(endpoint, now)
        if refusal is not None:
            return refusal
        endpoint.waiting[token] = now + route.limits.queue_timeout_s
        return HOLD_FIRST if len(endpoint.waiting) == 1 else HOLD

    def connected(self, endpoint: EndpointState, target: TargetState, now: float) -> Sequence[Release]:
        """The target took a connection: it is healthy again. Returns the held requests that may go now."""
        if not target.failures:
            return ()
        target.failures = 0
        target.probing = False
        return self._release(endpoint, now)

    def connect_failed(
        self, endpoint: EndpointState, target: TargetState, token: Token, deadline: float, now: float
    ) -> Decision:
        """A connect failed and nothing was sent: put the target aside, and decide again for that request.

        Args:
            deadline: end of the request's patience (`now` of its arrival + queue_timeout_s); it goes back to the
                front of the queue with it, so that failing servers never prolong a wait.
        """
        self._end(endpoint, target)
        self.eject(target, now)
        if endpoint.route.mode == "serve" and endpoint.listed:
            other = self._pick(endpoint, now)
            if other is not None:
                return self._start(endpoint, other)
        final = self._final(endpoint)
        if final is not None:
            return final
        if now >= deadline:
            return self._timed_out(endpoint)
        first = not endpoint.waiting
        endpoint.waiting = {token: deadline, **endpoint.waiting}
        return HOLD_FIRST if first else HOLD

    def eject(self, target: TargetState, now: float) -> None:
        """A connect failed. Those that failed together count once, else a burst would put it aside for long."""
        target.probing = False
        if target.failures and now < target.ejected_until:
            return
        target.failures += 1
        target.ejected_until = now + min(EJECT_MAX_S, EJECT_MIN_S * 2.0 ** min(target.failures - 1, 16))

    def done(self, endpoint: EndpointState, target: TargetState, now: float) -> Sequence[Release]:
        """A request in flight ended, however it ended. Returns the held requests that may go now.

        When it ends while its connect is still open, the caller reports that connect later: `connected` or `eject`.
        """
        self._end(endpoint, target)
        endpoint.completed += 1
        endpoint.ended_at = now
        return self._release(endpoint, now) if endpoint.waiting else ()

    def cancelled(self, endpoint: EndpointState, token: Token) -> None:
        """The client of a held request went away."""
        endpoint.waiting.pop(token, None)

    def retry(self, endpoint: EndpointState, now: float) -> Sequence[Release]:
        """A back-off may be over: held requests that may go now."""
        return self._release(endpoint, now) if endpoint.waiting else ()

    def sweep(self, now: float) -> list[Release]:
        """Requests held past their deadline, and held ones whose way became free; call about once a second."""
        out: list[Release] = []
        for endpoint in self._endpoints.values():
            if not endpoint.waiting:
                continue
            late = [token for token, deadline in endpoint.waiting.items() if now >= deadline]
            for token in late:
                del endpoint.waiting[token]
                out.append((token, self._timed_out(endpoint)))
            out.extend(self._release(endpoint, now))
        return out

    # --- the table -----------------------------------------------------------------------------------------------

    def apply(self, generation: Generation, routes: Iterable[RouteSpec], now: float) -> list[Release] | None:
        """Take a table. None when it is not newer; else what becomes of held requests.

        A rise of `wake_failures` answers those held at this moment with the endpoint's error; later ones wait again.
        """
        if not generation.supersedes(self.generation):
            return None
        self.generation = generation
        out: list[Release] = []
        seen: set[tuple[str, str]] = set()
        for route in routes:
            key = (route.namespace, route.name)
            seen.add(key)
            state = self._endpoints.get(key)
            if state is None:
                state = self._endpoints[key] = EndpointState(route)
            wake_failed = route.wake_failures > state.route.wake_failures
            state.update(route)
            out.extend(self._settle(state, wake_failed, now))
        for key in [key for key in self._endpoints if key not in seen]:
            out.extend(self._forget(key))
        self._index()
        return out

    def control(self, up: bool, now: float) -> None:
        """Whether the control plane answers; its absence beyond the grace makes cold endpoints refuse."""
        if up:
            self.control_lost_at = None
        elif self.control_lost_at is None:
            self.control_lost_at = now

    # --- inside --------------------------------------------------------------------------------------------------

    def _start(self, endpoint: EndpointState, target: TargetState) -> Serve:
        if target.failures:
            target.probing = True
        target.in_flight += 1
        endpoint.in_flight += 1
        return target.serve

    def _end(self, endpoint: EndpointState, target: TargetState) -> None:
        target.in_flight -= 1
        endpoint.in_flight -= 1

    def _pick(self, endpoint: EndpointState, now: float) -> TargetState | None:
        """Least in flight of two; all are looked at when neither of the two is open."""
        targets = endpoint.targets
        limit = endpoint.route.limits.max_in_flight
        count = len(targets)
        if count == 1:
            return targets[0] if targets[0].open_to(now, limit) else None
        if count == 0:
            return None
        self._turn = turn = (self._turn * 6364136223846793005 + 1442695040888963407) & _LCG_MASK
        if not endpoint.uniform:
            return _weighted([t for t in targets if t.open_to(now, limit)], turn >> 33)
        first = (turn >> 33) % count
        second = (first + 1 + (turn >> 13) % (count - 1)) % count
        a, b = targets[first], targets[second]
        best = b if b.in_flight < a.in_flight else a
        if best.open_to(now, limit):
            return best
        open_targets = [t for t in targets if t.open_to(now, limit)]
        return min(open_targets, key=_load) if open_targets else None

    def _release(self, endpoint: EndpointState, now: float) -> list[Release]:
        out: list[Release] = []
        if endpoint.route.mode != "serve" or not endpoint.listed:
            return out
        while endpoint.waiting:
            target = self._pick(endpoint, now)
            if target is None:
                break
            token = next(iter(endpoint.waiting))
            del endpoint.waiting[token]
            out.append((token, self._start(endpoint, target)))
        return out

    def _final(self, endpoint: EndpointState) -> Refuse | None:
        """The refusal of an endpoint that cannot serve whatever one waits."""
        route = endpoint.route
        if not endpoint.listed:
            return not_found(endpoint.public_id)
        if route.mode not in ("failed", "stopped"):
            return None
        message = route.error or f"endpoint {endpoint.public_id} is {route.mode}"
        return Refuse(503, route.error_code or f"endpoint_{route.mode}", message, route.retry_after_s)

    def _refusal(self, endpoint: EndpointState, now: float) -> Refuse | None:
        final = self._final(endpoint)
        if final is not None:
            return final
        route = endpoint.route
        retry_after = route.retry_after_s or DEFAULT_RETRY_AFTER_S
        lost = self.control_lost_at
        if lost is not None and now - lost > CONTROL_GRACE_S and endpoint.cold:
            return Refuse(
                503,
                "control_plane_unreachable",
                f"endpoint {endpoint.public_id} has no running replica, "
                "and the control plane that would start one does not answer",
                retry_after,
            )
        if len(endpoint.waiting) >= route.limits.max_queue:
            return Refuse(
                429,
                "queue_full",
                f"endpoint {endpoint.public_id} already holds {len(endpoint.waiting)} requests, its limit",
                route.retry_after_s or 1.0,
            )
        return None

    def _timed_out(self, endpoint: EndpointState) -> Refuse:
        route = endpoint.route
        why = f": {route.error}" if route.error else ""
        return Refuse(
            503,
            "queue_timeout",
            f"endpoint {endpoint.public_id} was not ready within {route.limits.queue_timeout_s:g} s{why}",
            route.retry_after_s or DEFAULT_RETRY_AFTER_S,
        )

    def _settle(self, endpoint: EndpointState, wake_failed: bool, now: float) -> list[Release]:
        if not endpoint.waiting:
            return []
        refusal = self._final(endpoint)
        if refusal is None and wake_failed:
            route = endpoint.route
            refusal = Refuse(
                503,
                route.error_code or "wake_failed",
                route.error or f"endpoint {endpoint.public_id} could not be started",
                route.retry_after_s or DEFAULT_RETRY_AFTER_S,
            )
        return self._release(endpoint, now) if refusal is None else _refuse_all(endpoint, refusal)

    def _forget(self, key: tuple[str, str]) -> list[Release]:
        endpoint = self._endpoints[key]
        endpoint.listed = False
        endpoint.targets = []
        out = _refuse_all(endpoint, not_found(endpoint.public_id))
        if not endpoint.in_flight:
            del self._endpoints[key]
        return out

    def _index(self) -> None:
        """Names to endpoints: full names always; bare ones to `default` first, else only while unambiguous."""
        names: dict[str, EndpointState] = {}
        bare: dict[str, list[EndpointState]] = {}
        for state in self._endpoints.values():
            if not state.listed:
                continue
            for name in (state.route.name, *state.route.aliases):
                names.setdefault(f"{state.route.namespace}/{name}", state)
                bare.setdefault(name, []).append(state)
        for name, states in bare.items():
            own = [s for s in states if s.route.namespace == DEFAULT_NAMESPACE] or states
            exact = [s for s in own if s.route.name == name] or own
            if len(exact) == 1:
                names.setdefault(name, exact[0])
        for state in self._endpoints.values():
            if state.listed:
                names[f"{state.route.namespace}/{state.route.name}"] = state
        self._names = names


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


def _refuse_all(endpoint: EndpointState, refusal: Refuse) -> list[Release]:
    tokens = list(endpoint.waiting)
    endpoint.waiting = {}
    return [(token, refusal) for token in tokens]
