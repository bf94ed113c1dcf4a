"""What the rows show of a stop or delete, and the proof of absence that a delete needs.

Absence is never assumed. A worker is gone when it ended, its machine saw nothing of it left, and no place is held for
it. A machine that is lost cannot say; its return, its removal from the fleet, or a person's word (kept with who gave
it) decides instead. Called by `operations`.
"""

from moorage.decide.decision import Draft
from moorage.decide.serving.facts import Facts, Retry
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.changes import Release, Remove
from moorage.domain.nouns import Deployment, Operation, Replica, Revision, Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import ENDED_WORKER, TERMINAL_REPLICA

_REMOVED = {"Worker": "worker", "Replica": "replica", "Revision": "revision"}


def stop_facts(draft: Draft, snapshot: ServingSnapshot, operation: Operation) -> Facts:
    """Withdrawn from routing, drained, stopped."""
    del operation
    demand = snapshot.demand
    replicas = [r for r in draft.of(Replica) if r.status not in TERMINAL_REPLICA]
    withdrawn = not any(r.routed for r in replicas) and not demand.published_targets
    stopping = all(draft.row(snapshot.runs[r.run]).cancel is not None for r in replicas if r.run in snapshot.runs)
    if not withdrawn:
        return Facts(0, waiting="gateways to take the new routes")
    if replicas and not stopping:
        return Facts(1, waiting="requests in flight to end, within the drain limit")
    if replicas or not all(_ended(w) for w in draft.of(Worker)):
        return Facts(2, waiting="machines to confirm that every process is gone")
    return Facts(3)


def delete_facts(draft: Draft, snapshot: ServingSnapshot, operation: Operation) -> Facts:
    """As a stop, then absence proven, then every row removed and a tombstone left."""
    facts = stop_facts(draft, snapshot, operation)
    if facts.done < 3:
        return facts
    unproven = [w for w in draft.of(Worker) if not _proven(w, snapshot)]
    if unproven and not _word_given(operation):
        return _unproven(unproven, snapshot)
    for worker in unproven:
        draft.write(Release(worker.uid))
    deployment = snapshot.deployment
    for noun in (Worker, Run, Replica, Revision):
        for row in draft.of(noun):
            draft.write(Remove(row.kind, row.uid, row.version, _removal(row.kind, deployment)))
    draft.write(
        Remove("Deployment", deployment.uid, deployment.version, reason("deploy.deleted", by=operation.actor or None))
    )
    return Facts(len(operation.steps))


def _ended(worker: Worker) -> bool:
    """It ended, and its machine saw nothing of it left (or is lost and its place is fenced)."""
    return worker.state in ENDED_WORKER and not worker.handed_over


def _proven(worker: Worker, snapshot: ServingSnapshot) -> bool:
    return worker.machine not in snapshot.lost and worker.uid not in snapshot.held


def _word_given(operation: Operation) -> bool:
    """A person said that nothing is there."""
    return dict(operation.resolution or {}).get("how") == "absent"


def _unproven(workers: list[Worker], snapshot: ServingSnapshot) -> Facts:
    lost = sorted({snapshot.lost[w.machine or ""].name for w in workers if w.machine in snapshot.lost})
    if not lost:
        return Facts(3, retry=Retry("a machine still holds a place for what ran there"))
    return Facts(3, retry=Retry(f"{', '.join(lost)} is lost, and what ran there cannot be seen"))


def _removal(kind: str, deployment: Deployment) -> Reason:
    """Why it goes; a run says whose it was, since its tombstone lies among those of people's runs."""
    if kind == Run.kind:
        return reason("run.deleted", deployment=deployment.name)
    return reason(f"{_REMOVED[kind]}.deleted")
