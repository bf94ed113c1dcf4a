"""Which replica answers a request, and what happens to it when none can: the pure core of the gateway.

Here: the state of every endpoint as one gateway sees it, and the rules for serve, hold, wake and refuse. Not here:
sockets, clocks, randomness, logging (`now` and the seed are arguments); which revision (`among`) and which replica of
it (`picking`); what refusals say (`refusals`). Called by `moorage.gateway.hub` only, from one thread. A request is
known by a token that the caller chooses (any hashable object); each admitted token leaves by exactly one of `done`,
`cancelled`, or a `Refuse` returned for it.

Invariants (checked by the property tests): a target never has more than `max_in_flight` requests; new requests are
refused once `max_queue` are held; an endpoint that the table names is never answered 404, save for a revision that it
does not have; a request that names a revision goes to no other.
"""

from collections.abc import Iterable, Iterator, Sequence

from moorage.decide.serving import refusals
from moorage.decide.serving.among import Among
from moorage.decide.serving.picking import Picks, start
from moorage.decide.serving.routes import (
    DEFAULT_NAMESPACE,
    HOLD,
    HOLD_FIRST,
    Decision,
    EndpointState,
    Generation,
    Held,
    Hold,
    Refuse,
    Release,
    RouteSpec,
    TargetState,
    Token,
)

EJECT_MIN_S = 0.05
"""First back-off after a failed connect: a server that listens a moment after it said ready costs one such wait."""
EJECT_MAX_S = 2.0
CONTROL_GRACE_S = 10.0
"""A control plane away for less than this is a restart: cold endpoints still hold. Beyond it nobody can wake them."""


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
        self._pick = Picks(seed).pick
        self._among = Among(self._pick)

    # --- reading -------------------------------------------------------------------------------------------------

    def find(self, name: str) -> EndpointState | None:
        """The endpoint called so: name, namespace/name or alias."""
        return self._names.get(name)

    def unknown(self, name: str) -> Refuse:
        """The answer for a name that `find` does not know."""
        return refusals.not_found(name) if self.generation else refusals.NOT_LOADED

    def endpoints(self) -> Iterator[EndpointState]:
        """Every endpoint known, those that left the table with requests still running included."""
        return iter(self._endpoints.values())

    def busy(self) -> bool:
        """Whether anything is in flight or held anywhere."""
        return any(state.in_flight or state.waiting or state.copies for state in self._endpoints.values())

    # --- requests ------------------------------------------------------------------------------------------------

    def arrive(self, endpoint: EndpointState, token: Token, now: float, revision: str | None = None) -> Decision:
        """Decide for a new request. After `Serve` the request counts as in flight; after `Hold` as held.

        Args:
            revision: the one that it names (uid, number or name), if it does.
        """
        if endpoint.split is not None or revision is not None:
            decision = self._among.arrive(endpoint, now, revision) if endpoint.route.mode == "serve" else None
            return decision or self._hold(endpoint, token, now, revision)
        route = endpoint.route
        if route.mode == "serve" and not endpoint.waiting:
            target = self._pick(endpoint, now, route.limits.max_in_flight)
            if target is not None:
                return start(endpoint, target)
        return self._hold(endpoint, token, now, None)

    def connected(self, endpoint: EndpointState, target: TargetState, now: float) -> Sequence[Release]:
        """The target took a connection: it is healthy again. Returns the held requests that may go now."""
        if not target.failures:
            return ()
        target.failures = 0
        target.probing = False
        return self._release(endpoint, now)

    def connect_failed(self, endpoint: EndpointState, target: TargetState, held: Held, now: float) -> Decision:
        """A connect failed and nothing was sent: put the target aside, and decide again for that request.

        It goes back to the front of the queue with its old deadline, so that failing servers never prolong a wait.
        """
        self._end(endpoint, target)
        self.eject(target, now)
        if endpoint.route.mode == "serve" and endpoint.listed:
            again = self._among.again(endpoint, target, now, held.revision)
            if again is not None:
                return again
        final = refusals.settled(endpoint)
        if final is not None:
            return final
        if now >= held.deadline:
            return refusals.timed_out(endpoint)
        first = not endpoint.waiting
        endpoint.waiting = {held.token: held.deadline, **endpoint.waiting}
        if held.revision is not None:
            endpoint.named[held.token] = held.revision
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
        endpoint.named.pop(token, None)

    def copy_ended(self, endpoint: EndpointState, target: TargetState) -> None:
        """A copy is over, or was never sent. When its connect failed, the caller calls `eject` as well."""
        target.in_flight -= 1
        endpoint.copies -= 1

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
                self.cancelled(endpoint, token)
                out.append((token, refusals.timed_out(endpoint)))
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
            state.update(route, now)
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

    def _end(self, endpoint: EndpointState, target: TargetState) -> None:
        target.in_flight -= 1
        endpoint.in_flight -= 1

    def _hold(self, endpoint: EndpointState, token: Token, now: float, revision: str | None) -> Hold | Refuse:
        refusal = refusals.settled(endpoint)
        if refusal is not None:
            return refusal
        lost = self.control_lost_at
        if lost is not None and now - lost > CONTROL_GRACE_S and endpoint.cold:
            return refusals.nobody_to_wake_it(endpoint)
        limits = endpoint.route.limits
        # Those that name a revision have a queue's length of their own: they must not fill that of all others.
        held = len(endpoint.named) if revision is not None else len(endpoint.waiting) - len(endpoint.named)
        if held >= limits.max_queue:
            return refusals.queue_full(endpoint, held)
        endpoint.waiting[token] = now + limits.queue_timeout_s
        if revision is not None:
            endpoint.named[token] = revision
        return HOLD_FIRST if len(endpoint.waiting) == 1 else HOLD

    def _release(self, endpoint: EndpointState, now: float) -> list[Release]:
        out: list[Release] = []
        if endpoint.route.mode != "serve" or not endpoint.listed:
            return out
        if endpoint.split is not None or endpoint.named:
            return self._among.release(endpoint, now)
        while endpoint.waiting:
            target = self._pick(endpoint, now, endpoint.route.limits.max_in_flight)
            if target is None:
                break
            token = next(iter(endpoint.waiting))
            del endpoint.waiting[token]
            out.append((token, start(endpoint, target)))
        return out

    # --- the table, inside ---------------------------------------------------------------------------------------

    def _settle(self, endpoint: EndpointState, wake_failed: bool, now: float) -> list[Release]:
        if not endpoint.waiting:
            return []
        refusal = refusals.settled(endpoint)
        if refusal is None and wake_failed:
            refusal = refusals.wake_failed(endpoint)
        return self._release(endpoint, now) if refusal is None else _refuse_all(endpoint, refusal)

    def _forget(self, key: tuple[str, str]) -> list[Release]:
        endpoint = self._endpoints[key]
        endpoint.forget()
        out = _refuse_all(endpoint, refusals.not_found(endpoint.public_id))
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


def _refuse_all(endpoint: EndpointState, refusal: Refuse) -> list[Release]:
    tokens = list(endpoint.waiting)
    endpoint.waiting = {}
    endpoint.named = {}
    return [(token, refusal) for token in tokens]
