"""Evidence of a comparison under way, from whoever saw something to the rows of the two revisions.

Gateways report sums of what clients met, many times a second; they are kept here and written at most once a second and
deployment, since the guard needs no more and each write is a commit. Only those of the comparison under way count. A
report that was not written when the control plane ends is told again: gateways send sums, and the last value wins.
What is written here wakes the serving loop, since such a write makes no row of history.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moorage.decide.serving.evidence import SYNTHETIC, Seen
from moorage.decide.serving.goodput import MEASURED
from moorage.decide.serving.rollout.record import Rollout, rollout_of
from moorage.domain.changes import Change, Fence, Update
from moorage.domain.nouns import Deployment, Revision
from moorage.ports import Clock, Store
from moorage.wire.routing import Evidence, GatewayReport

ACTOR = "controller:evidence"
EVERY_S = 1.0
"""Seconds between two writes about one deployment."""

SOURCES_MAX = 64
"""Sources kept of one revision; a gateway that restarts is another one. What comes from more is not counted."""

Sources = Mapping[str, Mapping[str, Any]]
"""source -> what it says, as `Revision.evidence` keeps it"""


class EvidenceBook:
    """Writes evidence into revisions while they are compared.

    Args:
        store: outside.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def comparison(self, deployment: str) -> tuple[Deployment, Rollout, dict[str, Revision]] | None:
        """The comparison under way: its deployment, rollout, and both revisions by uid; None: there is none."""
        row = await self._store.get(Deployment, deployment)
        rollout = rollout_of(row) if row is not None and not row.deleting else None
        if row is None or rollout is None or rollout.evidence_id is None:
            return None
        uids = [uid for uid in (rollout.candidate, rollout.baseline) if uid]
        return row, rollout, {r.uid: r for r in await self._store.find(Revision, uid=uids)}

    async def write(self, revisions: Iterable[tuple[Revision, Sources]], fence: Fence | None) -> bool:
        """Lay sources over what these revisions have; False: they have it already.

        Raises:
            StaleVersion: a revision moved on; read again.
        """
        writes = []
        for revision, sources in revisions:
            kept = _with(revision.evidence, sources)
            if kept != dict(revision.evidence):
                writes.append(Update(Revision.kind, revision.uid, revision.version, fields={"evidence": kept}))
        if not writes:
            return False
        await self._store.commit(Change(tuple(writes), ACTOR, fence=fence))
        return True


def _with(evidence: Sources, sources: Sources) -> dict[str, Any]:
    """The evidence with these sources, as many as there is room for; the sender's own is always kept."""
    kept: dict[str, Any] = dict(evidence)
    for source, said in sources.items():
        if source in kept or source == SYNTHETIC or len(kept) < SOURCES_MAX:
            kept[source] = dict(said)
    return kept


class EvidenceStep:
    """Takes gateways' reports in, and writes them, one deployment at a time.

    Args:
        store, clock: outside.
        told: called with a deployment's uid when something new was written about its revisions.
    """

    def __init__(self, store: Store, clock: Clock, told: Callable[[str], None] = lambda _: None) -> None:
        self._book = EvidenceBook(store)
        self._store = store
        self._clock = clock
        self.told = told
        self.mark: Callable[[str], None] = lambda _: None
        """called when a deployment has something to write; the loop's own"""
        self.fence: Fence | None = None
        self._pending: dict[str, dict[tuple[str, str], tuple[str, dict[str, Any]]]] = {}
        """deployment -> (revision, source) -> (evidence id, what it says)"""
        self._written_at: dict[str, float] = {}

    def heard(self, report: GatewayReport) -> None:
        """Keep what a gateway says until it is written."""
        for one in report.evidence:
            if one.evidence_id.startswith(MEASURED):
                continue
            source = f"{report.gateway}/{report.incarnation}/{one.evidence_id}"
            said = self._pending.setdefault(one.deployment, {})
            said[one.revision, source] = (one.evidence_id, _seen(one).to_wire())
            self.mark(one.deployment)

    async def everything(self) -> Iterable[str]:
        """Deployments with something to write."""
        return tuple(self._pending)

    async def __call__(self, uid: str) -> float | None:
        """Write what is kept of one deployment; when to come again, where that is too soon now."""
        moment = self._clock.monotonic()
        early_s = self._written_at.get(uid, moment - EVERY_S) + EVERY_S - moment
        if early_s > 0:
            return self._clock.now() + early_s
        self._written_at.pop(uid, None)
        taken = dict(self._pending.get(uid, {}))
        if taken and await self._write(uid, taken):
            self._written_at[uid] = moment
            self.told(uid)
        self._drop(uid, taken)
        return self._clock.now() + EVERY_S if uid in self._pending else None

    async def _write(self, uid: str, said: Mapping[tuple[str, str], tuple[str, dict[str, Any]]]) -> bool:
        comparison = await self._book.comparison(uid)
        if comparison is None:
            return False
        _, rollout, revisions = comparison
        parts: dict[str, dict[str, Mapping[str, Any]]] = {}
        for (revision, source), (evidence_id, seen) in said.items():
            if evidence_id == rollout.evidence_id and revision in revisions:
                parts.setdefault(revision, {})[source] = seen
        return await self._book.write([(revisions[r], sources) for r, sources in parts.items()], self.fence)

    def _drop(self, uid: str, taken: Mapping[tuple[str, str], tuple[str, dict[str, Any]]]) -> None:
        """Forget what was written, and not what came meanwhile."""
        left = {k: v for k, v in self._pending.get(uid, {}).items() if taken.get(k) is not v}
        if left:
            self._pending[uid] = left
        else:
            self._pending.pop(uid, None)


def _seen(said: Evidence) -> Seen:
    return Seen(
        requests=said.requests,
        errors=said.errors,
        client_gone=said.client_gone,
        ttft_us=said.ttft_us,
        latency_us=said.latency_us,
        throughput_milli=said.throughput_milli,
    )
