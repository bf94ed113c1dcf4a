"""Which replica answers a request, and what happens to it when none can: the pure core of the gateway.

Here: the state of every endpoint as one gateway sees it, and the rules for serve, hold, wake and refuse. Not here:
sockets, clocks, randomness, logging (`now` and the seed are arguments); which revision (`among`) and which replica of
it (`picking`); who of those that wait goes first (`queueing`); when a replica is put aside (`ejection`); endpoints that
people made (`binding`); names (`naming`); what refusals say (`refusals`). Called by `moorage.gateway.hub` only, from
one thread. A request is known by a token that the caller chooses (any hashable object); each admitted token leaves by
exactly one of `done`, `cancelled`, or a `Refuse` returned for it.

Invariants (checked by the property tests): a target never has more than `max_in_flight` requests; no new request
makes more than `max_queue` wait; an endpoint that the table names is never answered 404, save for a revision that it
does not have; a request that names a revision goes to no other; bad answers never put aside more than half of a
revision's replicas.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from math import inf
from typing import Final

from moorage.decide.serving import ejection, estimates, naming, refusals
from moorage.decide.serving.among import Among
from moorage.decide.serving.binding import BindingSpec, BindingState
from moorage.decide.serving.ejection import EJECT_MAX_S, EJECT_MIN_S, why_aside
from moorage.decide.serving.picking import Picks, start
from moorage.decide.serving.queueing import Token, Waiter
from moorage.decide.serving.routes import (
    HOLD,
    HOLD_FIRST,
    NEUTRAL,
    OK,
    Decision,
    EndpointState,
    Generation,
    Held,
    Hold,
    Refuse,
    Release,
    RouteSpec,
    TargetState,
)

__all__ = ["CONTROL_GRACE_S", "EJECT_MAX_S", "EJECT_MIN_S", "Router", "why_aside"]

_SAMPLED: Final = 7
"""While nothing waits, every eighth service time is measured."""
CONTROL_GRACE_S: Final = 10.0
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
        self._bindings: dict[tuple[str, str], BindingState] = {}
        self._bound: dict[str, BindingState] = {}
        self.picks = Picks(seed)
        self._pick = self.picks.pick
        self._among = Among(self._pick)

    # --- reading -------------------------------------------------------------------------------------------------

    def find(self, name: str) -> EndpointState | None:
        """The deployment's own endpoint called so: name, namespace/name or alias."""
        return self._names.get(name)

    def bound(self, name: str) -> BindingState | None:
        """The endpoint that people made called so, asked for once `find` knows none; `draw` says where it leads."""
        return self._bound.get(name)

    def bindings(self) -> Iterable[BindingState]:
        """Every endpoint that people made and that its name reaches."""
        return set(self._bound.values())

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

    def arrive(  # noqa: PLR0917 - by place, which is quicker than by name
        self,
        endpoint: EndpointState,
        token: Token,
        now: float,
        revision: str | None = None,
        tenant: str = "",
        affinity: bytes | None = None,
        bound: str = "",
    ) -> Decision:
        """Decide for a new request. After `Serve` the request counts as in flight; after `Hold` as held.

        Args:
            revision: the one that it names (uid, number or name), if it does.
            tenant: whose it is; told again when it ends.
            affinity: requests with the same one go to the same replica.
            bound: the name of the endpoint that people made by which it came, if it did.
        """
        route = endpoint.route
        if endpoint.split is not None or revision is not None:
            if route.mode == "serve":
                decision = self._among.arrive(endpoint, now, revision, tenant, affinity)
                if decision is not None:
                    return decision
        elif route.mode == "serve" and not endpoint.waiting:
            target = self._pick(endpoint, now, route.limits.max_in_flight, affinity)
            if target is not None:
                if tenant or target.aside:
                    return start(endpoint, target, tenant)
                target.in_flight += 1
                endpoint.in_flight += 1
                return target.serve
        return self._hold(endpoint, Waiter(token, 0.0, revision, tenant=tenant, affinity=affinity, bound=bound), now)

    def connected(self, endpoint: EndpointState, target: TargetState, now: float) -> Sequence[Release]:
        """The target took a connection: it is healthy again. Returns the held requests that may go now."""
        if not target.failures:
            return ()
        return self._release(endpoint, now) if ejection.connected(target) else ()

    def connect_failed(self, endpoint: EndpointState, target: TargetState, held: Held, now: float) -> Decision:
        """A connect failed and nothing was sent: put the target aside, and decide again for that request.

        It goes back to the front of the queue with its old deadline, so that failing servers never prolong a wait.
        """
        self._end(endpoint, target, held.tenant)
        self.eject(target, now)
        if endpoint.route.mode == "serve" and endpoint.listed:
            again = self._among.again(endpoint, target, now, held)
            if again is not None:
                return again
        final = self._settled(endpoint, held.bound)
        if final is not None:
            return final
        if now >= held.deadline:
            return refusals.timed_out(endpoint, now)
        first = not endpoint.waiting
        endpoint.queue.add_first(
            Waiter(
                held.token,
                held.deadline,
                held.revision,
                tenant=held.tenant,
                affinity=held.affinity,
                bound=held.bound,
            )
        )
        return HOLD_FIRST if first else HOLD

    def eject(self, target: TargetState, now: float) -> None:
        """A connect failed for which no request of a client waits (any more)."""
        ejection.refused_connect(target, now)

    def withdraw(self, target: TargetState) -> None:
        """Another model answers in its place: it gets nothing more until a newer table names it."""
        ejection.withdrawn(target)

    def done(  # noqa: PLR0917 - by place, which is quicker than by name
        self,
        endpoint: EndpointState,
        target: TargetState,
        now: float,
        outcome: int = OK,
        sent_at: float = inf,
        tenant: str = "",
    ) -> Sequence[Release]:
        """A request in flight ended, however it ended. Returns the held requests that may go now.

        When it ends while its connect is still open, the caller reports that connect later: `connected` or `eject`.

        Args:
            outcome: `OK`, `FAILED`, `SERVER_ERROR` or `NEUTRAL`.
            sent_at: when it went to the target.
            tenant: as at its arrival.
        """
        target.in_flight -= 1
        endpoint.in_flight -= 1
        if tenant:
            endpoint.queue.ended(tenant)
        if outcome or target.strikes:
            self._judge(target, outcome, now, sent_at)
        if (endpoint.waiting or not endpoint.completed & _SAMPLED) and sent_at < now and outcome == OK:
            estimates.measure_service(endpoint, now - sent_at)
        endpoint.completed += 1
        endpoint.ended_at = now
        return self._release(endpoint, now) if endpoint.waiting else ()

    def cancelled(self, endpoint: EndpointState, token: Token) -> None:
        """The client of a held request went away."""
        endpoint.queue.remove(token)
        if not endpoint.waiting:
            endpoint.cold_at = None

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
            for waiter in endpoint.queue.late(now):
                out.append((waiter.token, refusals.timed_out(endpoint, now)))
            if not endpoint.waiting:
                endpoint.cold_at = None
            out.extend(self._release(endpoint, now))
        return out

    # --- the table -----------------------------------------------------------------------------------------------

    def apply(
        self, generation: Generation, routes: Iterable[RouteSpec], now: float, bindings: Iterable[BindingSpec] = ()
    ) -> list[Release] | None:
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
                state.update(route, now)
            wake_failed = route.wake_failures > state.route.wake_failures
            if route != state.route or not state.listed or state.leaving:
                state.update(route, now)
                for revision in state.revisions.values():
                    ejection.let_in(revision)
            for target in state.targets:
                ejection.named_anew(target)
            out.extend(self._settle(state, wake_failed, now))
        for key in [key for key in self._endpoints if key not in seen]:
            out.extend(self._forget(key))
        self.picks.keep(chain(self._endpoints.values(), *(e.revisions.values() for e in self._endpoints.values())))
        self._names = naming.of_endpoints(self._endpoints.values())
        self._bind(bindings)
        return out

    def control(self, up: bool, now: float) -> None:
        """Whether the control plane answers; its absence beyond the grace makes cold endpoints refuse."""
        if up:
            self.control_lost_at = None
        elif self.control_lost_at is None:
            self.control_lost_at = now

    # --- inside --------------------------------------------------------------------------------------------------

    def _end(self, endpoint: EndpointState, target: TargetState, tenant: str) -> None:
        target.in_flight -= 1
        endpoint.in_flight -= 1
        if tenant:
            endpoint.queue.ended(tenant)

    def _judge(self, target: TargetState, outcome: int, now: float, sent_at: float) -> None:
        if outcome == OK:
            ejection.answered_well(target, sent_at)
        elif outcome == NEUTRAL:
            ejection.left_open(target, sent_at)
        else:
            ejection.answered_badly(target, outcome, now, sent_at)

    def _hold(self, endpoint: EndpointState, waiter: Waiter, now: float) -> Hold | Refuse:
        refusal = self._settled(endpoint, waiter.bound)
        if refusal is not None:
            return refusal
        lost = self.control_lost_at
        cold = endpoint.cold
        if cold and lost is not None and now - lost > CONTROL_GRACE_S:
            return refusals.nobody_to_wake_it(endpoint, now)
        limits = endpoint.route.limits
        waiter.deadline = now + limits.queue_timeout_s
        queue = endpoint.queue
        # Those that name a revision have a queue's length of their own: they must not fill that of all others.
        named = waiter.revision is not None
        held = len(queue.named) if named else len(queue.waiting) - len(queue.named)
        if held >= limits.max_queue:
            other = queue.place_for(waiter.tenant) if not named else None
            if other is None:
                return refusals.queue_full(endpoint, held, now)
            queue.remove(other.token)
            queue.add(waiter)
            return Hold(False, (other.token, refusals.displaced(endpoint, now)))
        queue.add(waiter)
        if cold and endpoint.cold_at is None:
            endpoint.cold_at = now
        return HOLD_FIRST if len(queue.waiting) == 1 else HOLD

    def _settled(self, endpoint: EndpointState, bound: str) -> Refuse | None:
        """The refusal of an endpoint that cannot serve whatever one waits; None of one that may."""
        return refusals.moved(bound) if bound and not endpoint.listed else refusals.settled(endpoint)

    def _release(self, endpoint: EndpointState, now: float) -> list[Release]:
        out: list[Release] = []
        if endpoint.route.mode != "serve" or not endpoint.listed:
            return out
        if endpoint.split is not None or endpoint.named:
            out = self._among.release(endpoint, now)
        else:
            queue = endpoint.queue
            limit = endpoint.route.limits.max_in_flight
            while (waiter := queue.head(endpoint.in_flight)) is not None:
                target = self._pick(endpoint, now, limit, waiter.affinity)
                if target is None:
                    break
                queue.went(waiter)
                out.append((waiter.token, start(endpoint, target, waiter.tenant)))
        if out and endpoint.cold_at is not None:
            endpoint.wake_s = now - endpoint.cold_at
            endpoint.cold_at = None
        return out

    # --- the table, inside ---------------------------------------------------------------------------------------

    def _settle(self, endpoint: EndpointState, wake_failed: bool, now: float) -> list[Release]:
        if not endpoint.waiting:
            return []
        refusal = refusals.settled(endpoint)
        if refusal is None and wake_failed:
            refusal = refusals.wake_failed(endpoint)
        return self._release(endpoint, now) if refusal is None else _refuse_all(endpoint, refusal, None)

    def _forget(self, key: tuple[str, str]) -> list[Release]:
        endpoint = self._endpoints[key]
        endpoint.forget()
        out = _refuse_all(endpoint, refusals.not_found(endpoint.public_id), refusals.moved)
        if not endpoint.in_flight:
            del self._endpoints[key]
        return out

    def _bind(self, specs: Iterable[BindingSpec]) -> None:
        kept: dict[tuple[str, str], BindingState] = {}
        for spec in specs:
            key = (spec.namespace, spec.name)
            state = kept[key] = self._bindings.get(key) or BindingState(spec)
            state.update(spec, self._listed)
        self._bindings = kept
        self._bound = naming.of_bindings(kept.values(), self._names)

    def _listed(self, namespace: str, name: str) -> EndpointState | None:
        state = self._endpoints.get((namespace, name))
        return state if state is not None and state.listed else None


def _refuse_all(endpoint: EndpointState, refusal: Refuse, bound: Callable[[str], Refuse] | None) -> list[Release]:
    """Answer everybody that waits.

    Args:
        bound: the answer for those that came by an endpoint that people made, by its name; None: the same.
    """
    endpoint.cold_at = None
    return [
        (waiter.token, bound(waiter.bound) if bound is not None and waiter.bound else refusal)
        for waiter in endpoint.queue.clear()
    ]
