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
from moorage.decide.serving.routes import EndpointState, Refuse, Release, RevisionState, Serve, TargetState
from moorage.decide.serving.shares import Split

COPIES_MAX = 8
"""Copies of an endpoint's requests in flight at once: a candidate that cannot keep up loses copies, not memory."""

Pick = Callable[[EndpointState | RevisionState, float, int], TargetState | None]


class Among:
    """The rules; what they change is the endpoint's.

    Args:
        pick: a replica that may take one more request, of those of an endpoint or of a revision.
    """

    def __init__(self, pick: Pick) -> None:
        self._pick = pick

    def arrive(self, endpoint: EndpointState, now: float, revision: str | None) -> Serve | Refuse | None:
        """Where a new request goes, None when it has to wait.

        Args:
            revision: the one that it names, if it does.
        """
        if revision is not None:
            return self._serve_named(endpoint, revision, now, its_turn=not endpoint.waiting)
        return self._serve_unnamed(endpoint, now)

    def again(
        self, endpoint: EndpointState, failed: TargetState, now: float, revision: str | None
    ) -> Serve | Refuse | None:
        """After a failed connect: another replica of the revision that was named, else of the active one."""
        if revision is not None:
            return self._serve_named(endpoint, revision, now)
        split = endpoint.split
        if split is not None and failed.revision is split.candidate:
            failed.revision.traffic.passed_over += 1
        among = endpoint if split is None else split.active
        target = self._pick(among, now, endpoint.route.limits.max_in_flight) if among is not None else None
        return start(endpoint, target) if target is not None else None

    def release(self, endpoint: EndpointState, now: float) -> list[Release]:
        """In the order of their coming, save that those who wait for one revision do not keep back the others."""
        out: list[Release] = []
        full = False
        for token in list(endpoint.waiting):
            word = endpoint.named.get(token)
            if word is not None:
                decision = self._serve_named(endpoint, word, now)
            elif full:
                continue
            else:
                decision = self._serve_active(endpoint, now)
                full = decision is None
            if decision is not None:
                del endpoint.waiting[token]
                endpoint.named.pop(token, None)
                out.append((token, decision))
            elif full and not endpoint.named:
                break
        return out

    def _serve_unnamed(self, endpoint: EndpointState, now: float) -> Serve | None:
        """The candidate when it is its turn and it can; else the active one, unless others wait for it."""
        split = endpoint.split
        candidate = split.turn() if split is not None else None
        if candidate is not None:
            target = self._pick(candidate, now, endpoint.route.limits.max_in_flight)
            if target is not None:
                return start(endpoint, target)
            candidate.traffic.passed_over += 1
        if len(endpoint.waiting) > len(endpoint.named):
            return None
        return self._serve_active(endpoint, now)

    def _serve_active(self, endpoint: EndpointState, now: float) -> Serve | None:
        split, limit = endpoint.split, endpoint.route.limits.max_in_flight
        if split is None:
            target = self._pick(endpoint, now, limit)
            return start(endpoint, target) if target is not None else None
        target = self._pick(split.active, now, limit) if split.active is not None else None
        if target is None:
            return None
        serve = start(endpoint, target)
        copy = self._copy_target(endpoint, split, now)
        return serve if copy is None else Serve(target, copy)

    def _copy_target(self, endpoint: EndpointState, split: Split, now: float) -> TargetState | None:
        """Where a copy of this request goes, now counted as in flight there."""
        mirror = split.copy_turn()
        if mirror is None:
            return None
        free = endpoint.copies < COPIES_MAX
        target = self._pick(mirror, now, endpoint.route.limits.max_in_flight) if free else None
        if target is None:
            mirror.traffic.copies_dropped += 1
            return None
        if target.failures:
            target.probing = True
        target.in_flight += 1
        endpoint.copies += 1
        return target

    def _serve_named(
        self, endpoint: EndpointState, word: str, now: float, *, its_turn: bool = True
    ) -> Serve | Refuse | None:
        """None: it waits for a place at the revision that it names."""
        revision = endpoint.revision_named(word)
        if revision is None:
            return refusals.no_such_revision(endpoint, word)
        is_candidate = revision.spec is not None and revision.spec.role == "candidate"
        if is_candidate or its_turn:
            target = self._pick(revision, now, endpoint.route.limits.max_in_flight)
            if target is not None:
                return start(endpoint, target)
        if is_candidate and all(target.failures for target in revision.targets):
            return refusals.revision_not_ready(endpoint, revision.label)
        return None
