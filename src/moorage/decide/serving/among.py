"""Which revision answers a request, while an endpoint's targets are of more than one or a request names one.

Here: turns, names, passing over, copies. Not here: the queue's limits and refusals that concern the whole endpoint
(`routing`, the only caller), which replica of a revision (`picking`).

The endpoint's queue is the active revision's. A candidate whose turn it is is passed over when it cannot take the
request, so that a bad one costs nobody more than its own answers. Only a request that names a candidate waits for it,
and is refused at once when none of its replicas can be reached.
"""

from collections.abc import Callable

from moorage.decide.serving import refusals
from moorage.decide.serving.picking import start
from moorage.decide.serving.queueing import Waiter
from moorage.decide.serving.routes import EndpointState, Held, Refuse, Release, RevisionState, Serve, TargetState
from moorage.decide.serving.shares import Split

COPIES_MAX = 8
"""Copies of an endpoint's requests in flight at once: a candidate that cannot keep up loses copies, not memory."""

Pick = Callable[[EndpointState | RevisionState, float, int, bytes | None], TargetState | None]


class Among:
    """The rules; what they change is the endpoint's.

    Args:
        pick: a replica that may take one more request, of those of an endpoint or of a revision.
    """

    def __init__(self, pick: Pick) -> None:
        self._pick = pick

    def arrive(
        self, endpoint: EndpointState, now: float, revision: str | None, tenant: str, key: bytes | None
    ) -> Serve | Refuse | None:
        """Where a new request goes, None when it has to wait.

        Args:
            revision: the one that it names, if it does.
            key: of its affinity.
        """
        if revision is not None:
            return self._serve_named(endpoint, revision, now, tenant, key, its_turn=not endpoint.waiting)
        return self._serve_unnamed(endpoint, now, tenant, key)

    def again(self, endpoint: EndpointState, failed: TargetState, now: float, held: Held) -> Serve | Refuse | None:
        """After a failed connect: another replica of the revision that was named, else of the active one."""
        if held.revision is not None:
            return self._serve_named(endpoint, held.revision, now, held.tenant, held.affinity)
        split = endpoint.split
        if split is not None and failed.revision is split.candidate:
            failed.revision.traffic.passed_over += 1
        among = endpoint if split is None else split.active
        if among is None:
            return None
        target = self._pick(among, now, endpoint.route.limits.max_in_flight, held.affinity)
        return start(endpoint, target, held.tenant) if target is not None else None

    def release(self, endpoint: EndpointState, now: float) -> list[Release]:
        """In the order of their coming, save that those who wait for one revision do not keep back the others."""
        out: list[Release] = []
        queue = endpoint.queue
        blocked: set[str | None] = set()
        while True:
            waiter = self._next(endpoint, blocked)
            if waiter is None:
                return out
            word = waiter.revision
            if word is not None:
                decision = self._serve_named(endpoint, word, now, waiter.tenant, waiter.affinity)
            else:
                decision = self._serve_active(endpoint, now, waiter.tenant, waiter.affinity)
            if decision is None:
                blocked.add(word)
            else:
                queue.went(waiter)
                out.append((waiter.token, decision))

    def _next(self, endpoint: EndpointState, blocked: set[str | None]) -> Waiter | None:
        """Who came first, of the heads of all lines that are not blocked; None: the line without a name."""
        queue = endpoint.queue
        first = queue.head(endpoint.in_flight) if None not in blocked else None
        for word in queue.words():
            if word not in blocked:
                named = queue.head_of(word)
                if named is not None and (first is None or named.number < first.number):
                    first = named
                break
        return first

    def _serve_unnamed(self, endpoint: EndpointState, now: float, tenant: str, key: bytes | None) -> Serve | None:
        """The candidate when it is its turn and it can; else the active one, unless others wait for it."""
        split = endpoint.split
        candidate = split.turn() if split is not None else None
        if candidate is not None:
            target = self._pick(candidate, now, endpoint.route.limits.max_in_flight, key)
            if target is not None:
                return start(endpoint, target, tenant)
            candidate.traffic.passed_over += 1
        if len(endpoint.waiting) > len(endpoint.named):
            return None
        return self._serve_active(endpoint, now, tenant, key)

    def _serve_active(self, endpoint: EndpointState, now: float, tenant: str, key: bytes | None) -> Serve | None:
        split, limit = endpoint.split, endpoint.route.limits.max_in_flight
        if split is None:
            target = self._pick(endpoint, now, limit, key)
            return start(endpoint, target, tenant) if target is not None else None
        target = self._pick(split.active, now, limit, key) if split.active is not None else None
        if target is None:
            return None
        serve = start(endpoint, target, tenant)
        copy = self._copy_target(endpoint, split, now)
        return serve if copy is None else Serve(target, copy)

    def _copy_target(self, endpoint: EndpointState, split: Split, now: float) -> TargetState | None:
        """Where a copy of this request goes, now counted as in flight there."""
        mirror = split.copy_turn()
        if mirror is None:
            return None
        free = endpoint.copies < COPIES_MAX
        target = self._pick(mirror, now, endpoint.route.limits.max_in_flight, None) if free else None
        if target is None:
            mirror.traffic.copies_dropped += 1
            return None
        if target.aside:
            target.probing = True
        target.in_flight += 1
        endpoint.copies += 1
        return target

    def _serve_named(
        self,
        endpoint: EndpointState,
        word: str,
        now: float,
        tenant: str,
        key: bytes | None,
        *,
        its_turn: bool = True,
    ) -> Serve | Refuse | None:
        """None: it waits for a place at the revision that it names."""
        revision = endpoint.revision_named(word)
        if revision is None:
            return refusals.no_such_revision(endpoint, word)
        is_candidate = revision.spec is not None and revision.spec.role == "candidate"
        if is_candidate or its_turn:
            target = self._pick(revision, now, endpoint.route.limits.max_in_flight, key)
            if target is not None:
                return start(endpoint, target, tenant)
        if is_candidate and all(target.failures for target in revision.targets):
            return refusals.revision_not_ready(endpoint, revision.label)
        return None
