"""A deployment that is rolled out: the serving world with words for candidates, evidence and drains.

Evidence is written as the senders and gateways leave it in `Revision.evidence`. Holds no rule. Used by the unit and
property tests of rollouts.
"""

from typing import Any

from moorage.decide.decision import Outcome
from moorage.decide.serving import commands
from moorage.decide.serving.evidence import Seen, microseconds
from moorage.domain.changes import Update
from moorage.domain.histogram import index_of
from moorage.domain.nouns import Operation, Replica, Revision, Worker
from moorage.domain.states import TERMINAL_REPLICA, RevisionState, WorkerState
from tests.serving_world import World, spec

FAST_S, SLOW_S = 0.1, 0.5


def seen(requests: int = 40, *, errors: int = 0, latency_s: float = FAST_S) -> dict[str, Any]:
    """Evidence of so many requests, all alike."""
    good = requests - errors
    times = {index_of(microseconds(latency_s)): good} if good else {}
    rates = {index_of(20_000): good} if good else {}
    return Seen(requests, errors, 0, times, times, rates).to_wire()


class RolloutWorld(World):
    """One deployment with an active revision, and words for what may happen to the next one."""

    def serve(self, **parts: Any) -> "RolloutWorld":
        """The first revision is active and ready at its size."""
        self.up(spec(**parts))
        return self

    def change(self, digest: str = "d2", settle: bool = True, **parts: Any) -> Revision:
        """An apply of another revision part; the candidate."""
        document = spec(**parts)
        document["runtime"] = {"runner": "process", "command": ["serve", digest]}
        self.apply(document, digest)
        if settle:
            self.settle()
        return self.revision(digest)

    def revision(self, digest: str) -> Revision:
        """The newest revision of this digest, as it is now."""
        return [r for r in self.of(Revision) if r.digest == digest][-1]

    def state(self, digest: str) -> RevisionState:
        """Its state."""
        return self.revision(digest).state

    @property
    def active(self) -> Revision:
        """The one that serves."""
        return next(r for r in self.of(Revision) if r.uid == self.deployment.active_revision)

    def replicas_of(self, digest: str) -> list[Replica]:
        """Its replicas that are not over."""
        uids = {r.uid for r in self.of(Revision) if r.digest == digest}
        return [r for r in self.of(Replica) if r.revision in uids and r.status not in TERMINAL_REPLICA]

    def sizes(self) -> dict[str, int]:
        """Replicas that are not over and not asked to stop, by digest."""
        out: dict[str, int] = {}
        for replica in self.replicas:
            if replica.stopping is None:
                digest = self.rows[replica.revision].digest  # type: ignore[attr-defined]  # a revision
                out[digest] = out.get(digest, 0) + 1
        return out

    def routed(self) -> set[str]:
        """Digests of the revisions that the newest table has targets of."""
        route = self.publish()
        return {self.rows[t.replica.revision].digest for t in route.targets} if route else set()  # type: ignore[attr-defined]  # a revision

    def met(self, digest: str, source: str = "synthetic", **evidence: Any) -> None:
        """What a sender or a gateway saw of a revision by now."""
        row = self.revision(digest)
        kept = {**row.evidence, source: seen(**evidence)}
        self.commit_writes([Update("Revision", row.uid, row.version, fields={"evidence": kept})], "controller:evidence")

    def compare(self, *, active: dict[str, Any] | None = None, source: str = "synthetic", **candidate: Any) -> None:
        """Evidence of both, and what follows from it."""
        baseline, other = self.active.digest, self.rows[self.deployment.candidate_revision or ""].digest  # type: ignore[attr-defined]  # a revision
        self.met(baseline, source, **(active or {}))
        self.met(other, source, **candidate)
        self.settle()

    def stopped(self) -> None:
        """Everything that was asked to stop is gone."""
        for worker in self.of(Worker):
            if worker.state is WorkerState.STOPPING:
                self.stops(worker)
        self.settle()

    def promote(self, digest: str = "d2", **parts: Any) -> Revision:
        """The whole way: applied, ready, compared, promoted, the old one gone."""
        self.change(digest, **parts)
        self.bring_up()
        if self.deployment.candidate_revision is not None:
            self.compare()
        self.bring_up()
        self.stopped()
        return self.revision(digest)

    def order(self, what: str, **more: Any) -> Outcome:
        """`moor promote | reject | rollback`, committed."""
        outcome = getattr(commands, what)(
            self.known_rows(), self.ids, self.now, actor="person:p", text=more.pop("text", "because"), **more
        )
        self.commit(outcome.change)
        return outcome

    def operation(self, what: str) -> Operation:
        """The newest operation of this kind."""
        return [o for o in self.of(Operation) if o.operation == what][-1]
