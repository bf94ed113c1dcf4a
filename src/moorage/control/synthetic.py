"""The sender of synthetic requests: while two revisions are compared and requests are missing, it sends them to both.

One to the active and one to the candidate at a time, the same ones in the same order, so that neither is disturbed more
than the other and hardly at all. Which and how many: `decide/serving/synthetic`. What came of them is added up in
`Revision.evidence["synthetic"]`, at most once a second: a control plane that is killed loses a second of it, and the
next one goes on from there. It stops when nothing is missing, when the comparison is over, and when it is cancelled.

1. what the candidate's server lists is asked once and kept: it must be what its spec declares
2. the requests must work on the active revision: one that fails there too says nothing about the candidate
3. then pairs of requests, until the guard lacks none

Where the active revision was stopped to make room (`rollout.capacity: replace`), the candidate alone is asked.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx
import structlog

from moorage.control.evidence import EVERY_S, EvidenceBook
from moorage.control.requesting import Answered, ask, listed_models
from moorage.decide.serving import synthetic
from moorage.decide.serving.evidence import SYNTHETIC, Seen, together
from moorage.decide.serving.guard import Policy, comparable, judge
from moorage.decide.serving.phase import is_ready
from moorage.decide.serving.rollout.sizes import gives_its_place
from moorage.decide.serving.synthetic import Ask, Missing, kept
from moorage.domain.changes import Fence
from moorage.domain.errors import StaleVersion
from moorage.domain.histogram import bounds_of
from moorage.domain.nouns import Deployment, Replica, Revision
from moorage.domain.states import ReplicaStatus, RevisionState
from moorage.ports import Clock, Store

FIRST_LIMIT_S = 120.0
"""For the first answers of an active revision of which nothing is known."""
ALONE_LIMIT_S = 30.0
"""For those of a candidate that is alone: clients' requests are held until it is known to answer."""
LIMIT_MIN_S = 15.0
SLOWER_MAX = 10.0
"""A request that takes ten times as long as the active revision's slowest has failed: waiting longer for a candidate
that hangs would hold the rollout for its whole deadline."""
MODELS_LIMIT_S = 10.0
UNPROVEN_RETRY_S = 10.0
WRITE_TRIES = 10

log = structlog.get_logger("moorage.control")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two revisions.

    Args:
        addresses: `host:port` of its ready replicas.
    """

    revision: Revision
    addresses: tuple[str, ...]

    @property
    def kept(self) -> Mapping[str, Any]:
        """What is recorded of it."""
        return kept(self.revision)

    @property
    def count(self) -> int:
        """Requests sent to it so far."""
        return int(self.kept.get("requests", 0))


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a look at the rows shows of a comparison under way."""

    evidence_id: str
    deployment: Deployment
    active: Side
    candidate: Side
    asks: tuple[Ask, ...]
    missing: Missing
    alone: bool = False

    @property
    def limit_s(self) -> float:
        """How long one request may take."""
        known = (self.candidate if self.alone else self.active).kept.get("latency_us") or {}
        gateway = dict(self.deployment.spec.get("gateway") or {})
        most = float(gateway.get("first_byte_timeout") or FIRST_LIMIT_S)
        if self.alone and not known:
            return min(ALONE_LIMIT_S, most)
        slowest_s = bounds_of(max(int(index) for index in known))[1] / 1e6 if known else FIRST_LIMIT_S / SLOWER_MAX
        return min(max(SLOWER_MAX * slowest_s, LIMIT_MIN_S), most)


class SyntheticStep:
    """Sends what is missing, one deployment at a time.

    Args:
        store, clock: outside.
        http: a client that uses no proxy.
        told: called with a deployment's uid when something new was written about its revisions.
    """

    def __init__(
        self, store: Store, clock: Clock, http: httpx.AsyncClient, told: Callable[[str], None] = lambda _: None
    ) -> None:
        self._store = store
        self._clock = clock
        self._http = http
        self._book = EvidenceBook(store)
        self.told = told
        self.fence: Fence | None = None

    async def everything(self) -> Iterable[str]:
        """Deployments with a candidate that is compared."""
        return {r.deployment for r in await self._store.find(Revision, state=RevisionState.EVALUATING)}

    async def __call__(self, uid: str) -> float | None:
        """Send until nothing is missing; when to look again, where the requests do not work yet."""
        comparison = await self._look(uid)
        if comparison is None:
            return None
        if "listed" not in comparison.candidate.kept:
            await self._note_listed(uid, comparison)
        if not comparison.missing:
            return None
        if not comparison.alone and "streams" not in comparison.active.kept and not await self._prove(uid, comparison):
            return self._clock.now() + UNPROVEN_RETRY_S
        return self._clock.now() if await self._send(uid, comparison.evidence_id) else None

    # The rows

    async def _look(self, uid: str) -> Comparison | None:
        """The comparison as the rows show it; None: nothing is compared, or nothing can be sent."""
        found = await self._book.comparison(uid)
        if found is None:
            return None
        deployment, rollout, revisions = found
        active, candidate = revisions.get(rollout.baseline or ""), revisions.get(rollout.candidate)
        if active is None or candidate is None or candidate.state is not RevisionState.EVALUATING:
            return None
        ready = await self._ready(uid)
        sides = [Side(r, tuple(ready.get(r.uid, ()))) for r in (active, candidate)]
        asks = synthetic.asks_of(deployment, candidate)
        alone = not sides[0].addresses and gives_its_place(deployment, rollout)
        if not sides[1].addresses or not (sides[0].addresses or alone):
            return None
        policy = Policy.of(dict(deployment.spec.get("rollout") or {}).get("guard"))
        facts = synthetic.facts_of(deployment, None if alone else active, candidate, candidate_ready=True)
        facts = replace(facts, baseline_stopped=alone)
        seen = comparable(active.evidence, candidate.evidence, rollout.strategy, policy.minimum_requests)
        missing = synthetic.missing(judge(policy, *seen, facts), active, candidate) if asks else Missing()
        return Comparison(str(rollout.evidence_id), deployment, sides[0], sides[1], asks, missing, alone)

    async def _ready(self, uid: str) -> dict[str, list[str]]:
        """Addresses of ready replicas by revision."""
        out: dict[str, list[str]] = {}
        for replica in await self._store.find(Replica, deployment=uid, status=ReplicaStatus.RUNNING):
            if is_ready(replica) and replica.address:
                out.setdefault(replica.revision, []).append(replica.address)
        return out

    async def _record(self, uid: str, evidence_id: str, said: Mapping[str, Mapping[str, Any]]) -> bool:
        """Add to what is recorded; False: the comparison is over, and it counts no more.

        Args:
            said: revision uid -> `seen` to add up, and fields to set.
        """
        for _ in range(WRITE_TRIES):
            found = await self._book.comparison(uid)
            if found is None or found[1].evidence_id != evidence_id:
                return False
            revisions = found[2]
            parts = [
                (revisions[r], {SYNTHETIC: _added(kept(revisions[r]), fields)})
                for r, fields in said.items()
                if r in revisions
            ]
            try:
                if await self._book.write(parts, self.fence):
                    self.told(uid)
            except StaleVersion:
                continue
            return True
        raise StaleVersion("the revisions kept changing while synthetic requests were counted")

    # The candidate's list of models, and whether the requests work at all

    async def _note_listed(self, uid: str, comparison: Comparison) -> None:
        side = comparison.candidate
        listed: list[str] | None = []
        lacks: tuple[str, ...] = ()
        if dict(side.revision.spec.get("model") or {}).get("id"):
            listed = await listed_models(self._http, f"http://{side.addresses[0]}", MODELS_LIMIT_S)
            lacks = synthetic.not_listed(side.revision, listed) if listed is not None else ()
        if listed is not None:
            said = {"listed": listed[:50], "not_listed": list(lacks)}
            await self._record(uid, comparison.evidence_id, {side.revision.uid: said})

    async def _prove(self, uid: str, comparison: Comparison) -> bool:
        """Whether a request works on the active revision, streamed where its server can."""
        side = comparison.active
        tried = int(side.kept.get("tried", 0))
        request = comparison.asks[tried % len(comparison.asks)]
        error = ""
        for streams in STREAMS if can_stream(request) else ("as_given",):
            answered = await self._ask(side, request, streams, comparison.limit_s)
            if answered.error is None:
                said = {"streams": streams, "unproven": None}
                return await self._record(uid, comparison.evidence_id, {side.revision.uid: said})
            if answered.unreachable:
                return False
            error = error or answered.error
            if answered.status is None or not 400 <= answered.status < 500:
                break
        log.warning("a synthetic request fails on the active revision", deployment=uid, error=error)
        said_of = {"unproven": error, "tried": tried + 1}
        await self._record(uid, comparison.evidence_id, {side.revision.uid: said_of})
        return False

    # Sending

    async def _send(self, uid: str, evidence_id: str) -> bool:
        """Pairs of requests until nothing is missing; True where another comparison began meanwhile."""
        under_way: dict[str, asyncio.Task[Answered]] = {}
        try:
            while (comparison := await self._look(uid)) is not None:
                if comparison.evidence_id != evidence_id:
                    return True
                counted = await _Round(self._ask, self._clock, comparison, under_way).send()
                said = {revision: {"seen": seen} for revision, seen in counted.items()}
                if said and not await self._record(uid, evidence_id, said):
                    return True
                if not comparison.missing and not under_way:
                    return False
            return False
        finally:
            for task in under_way.values():
                task.cancel()
            await asyncio.gather(*under_way.values(), return_exceptions=True)

    async def _ask(self, side: Side, request: Ask, streams: str, limit_s: float) -> Answered:
        address = side.addresses[side.count % len(side.addresses)]
        body = {**synthetic.body_for(request, side.revision), **(_STREAMED[streams] if can_stream(request) else {})}
        return await ask(self._http, self._clock, f"http://{address}{request.path}", body, limit_s)


class _Round:
    """What is sent between two looks at the rows: at most one request to each side at a time.

    Args:
        ask: sends one.
        under_way: by revision uid; left over from the round before, and left to the next one.
    """

    def __init__(
        self,
        ask: Callable[[Side, Ask, str, float], Coroutine[Any, Any, Answered]],
        clock: Clock,
        comparison: Comparison,
        under_way: dict[str, asyncio.Task[Answered]],
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._comparison = comparison
        self._under_way = under_way
        self._until = clock.monotonic() + EVERY_S
        self._unreachable: set[str] = set()
        self._counted: dict[str, Seen] = {}

    async def send(self) -> dict[str, Seen]:
        """Send for as long as a write may wait; what was answered meanwhile, by revision."""
        sides, missing = (self._comparison.active, self._comparison.candidate), self._comparison.missing
        while True:
            for side, left in zip(sides, (missing.active, missing.candidate), strict=True):
                self._send_next(side, left)
            wait_s = self._until - self._clock.monotonic()
            if wait_s <= 0 or not (self._under_way or self._unreachable):
                return self._counted
            if self._under_way:
                await asyncio.wait(self._under_way.values(), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                self._take_answers()
            else:
                await self._clock.sleep(wait_s)

    def _send_next(self, side: Side, left: int) -> None:
        revision = side.revision.uid
        done = self._counted.get(revision, Seen()).requests
        if revision in self._under_way or revision in self._unreachable or done >= left:
            return
        comparison, number = self._comparison, side.count + done
        request = comparison.asks[number % len(comparison.asks)]
        streams = str(comparison.active.kept.get("streams", "as_given"))
        asking = self._ask(side, request, streams, comparison.limit_s)
        self._under_way[revision] = asyncio.create_task(asking)

    def _take_answers(self) -> None:
        """A replica that cannot be reached was not asked: it says nothing, and is looked up anew in the next round."""
        for revision, task in list(self._under_way.items()):
            if not task.done():
                continue
            answered = self._under_way.pop(revision).result()
            if answered.unreachable:
                self._unreachable.add(revision)
            else:
                self._counted[revision] = together((self._counted.get(revision, Seen()), answered.seen()))


STREAMS = ("with_usage", "streamed", "as_given")
"""How a completion is asked for, best first: a server may refuse what it does not know."""

_STREAMED: Mapping[str, Mapping[str, Any]] = {
    "with_usage": {"stream": True, "stream_options": {"include_usage": True}},
    "streamed": {"stream": True},
    "as_given": {},
}


def can_stream(request: Ask) -> bool:
    """Whether it is a completion that does not say itself whether it is to be streamed."""
    return request.path.endswith("/completions") and "stream" not in request.body


def _added(before: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """A record with one more part of it."""
    fields = {name: value for name, value in said.items() if name != "seen"}
    seen = together((Seen.from_wire(before), said.get("seen", Seen())))
    return {**before, **seen.to_wire(), **fields}
