"""Going back to a revision that served before: ordered by a person, or by the guard in the window.

1. order: the operation is written, and whatever candidate is on its way gives way to it
2. pursue: one that still drains takes over at once if all its capacity is there; else, once it is superseded, it is
   started again beside the active one
3. complete: traffic moves when it has the capacity that carries the load, and not before

No guard is asked: it was accepted before, and the one that serves is why people go back.
"""

from moorage.decide.decision import Draft, Ids
from moorage.decide.serving.evidence import carried
from moorage.decide.serving.facts import first_steps
from moorage.decide.serving.phase import OPEN_OPERATION
from moorage.decide.serving.rollout.closing import cancel_candidate
from moorage.decide.serving.rollout.promoting import promote
from moorage.decide.serving.rollout.proposing import begin, call_off_pause
from moorage.decide.serving.rollout.record import Rollout
from moorage.decide.serving.rollout.roles import live_replicas, revision_row
from moorage.decide.serving.rollout.sizes import has_capacity, needed_to_move
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.nouns import Deployment, Operation, Replica, Revision
from moorage.domain.reasons import reason
from moorage.domain.states import ReplicaStatus, RevisionState, WorkerState


def order(
    draft: Draft, deployment: Deployment, to: Revision, ids: Ids, *, by: str, text: str | None, key: str | None = None
) -> Operation:
    """Write the order down.

    Args:
        to: the revision to go back to.
        by, text: who goes back, and why.
    """
    cancel_candidate(draft, deployment, "a rollback")
    call_off_pause(draft, deployment, "it is rolled back")
    operation = Operation(
        uid=ids.new("Operation"),
        name=f"rollback-{deployment.name}",
        namespace=deployment.namespace,
        operation="rollback",
        target=deployment.uid,
        actor=by,
        revision=to.uid,
        steps=first_steps("rollback", 1, draft.now),
        key=key,
        annotations={"why": text} if text else {},
    )
    draft.set(deployment, operation=operation.uid)
    return draft.create(operation, reason("op.created", operation="rollback"))


def pursue(draft: Draft, snapshot: ServingSnapshot) -> None:
    """Begin what was ordered as soon as the revision can be had."""
    deployment = draft.row(snapshot.deployment)
    for operation in snapshot.operations:
        to = revision_row(draft, operation.revision) if operation.operation == "rollback" else None
        active = revision_row(draft, deployment.active_revision)
        open_one = operation.state in OPEN_OPERATION and not operation.cancel_requested
        if to is None or active is None or not open_one or deployment.candidate_revision == to.uid:
            continue
        if to.state is RevisionState.DRAINING:
            _take_back(draft, snapshot, to, active, operation)
        elif to.state is RevisionState.SUPERSEDED:
            _start_again(draft, deployment, to, operation)


def complete(draft: Draft, deployment: Deployment, candidate: Revision, active: Revision, rollout: Rollout) -> None:
    """Traffic moves once the capacity is there."""
    if draft.row(candidate).state is RevisionState.PROVISIONING and has_capacity(draft, deployment, candidate):
        promote(draft, deployment, candidate, active, rollout)


def _why(operation: Operation) -> str | None:
    return dict(operation.annotations).get("why")


def _start_again(draft: Draft, deployment: Deployment, to: Revision, operation: Operation) -> None:
    draft.step(
        to,
        RevisionState.PROVISIONING,
        "rollback",
        reason("revision.provisioning"),
        failures_in_row=0,
        failed_at=None,
        retry_at=None,
        last_failure=None,
        fatal_since_ran=False,
        not_ready=(),
        verdict=None,
        evidence=carried(draft.row(to).evidence),
    )
    draft.set(deployment, candidate_revision=to.uid)
    rollout = begin(draft, deployment, to, "rollback").but(by=operation.actor, why=_why(operation))
    draft.set(deployment, rollout=rollout.to_wire())


def _take_back(draft: Draft, snapshot: ServingSnapshot, to: Revision, active: Revision, operation: Operation) -> None:
    """It still drains: with all the capacity that the load needs it simply serves again."""
    deployment = draft.row(snapshot.deployment)
    there = [r for r in live_replicas(draft, to.uid) if _can_serve_again(draft, snapshot, r)]
    if len(there) < needed_to_move(draft, deployment):
        return
    for replica in there:
        draft.set(replica, stopping=None, routed=True, routed_why=None)
        draft.note(replica, reason("replica.routed"))
    back = Rollout(to.uid, active.uid, kind="rollback", by=operation.actor, why=_why(operation))
    promote(draft, deployment, to, active, back)


def _can_serve_again(draft: Draft, snapshot: ServingSnapshot, replica: Replica) -> bool:
    run = snapshot.runs.get(replica.run)
    if run is None or draft.row(run).cancel is not None or replica.status is not ReplicaStatus.RUNNING:
        return False
    workers = snapshot.workers.get(run.uid, ())
    return bool(workers) and all(
        w.state is WorkerState.RUNNING and (w.ready or w.rank > 0) for w in map(draft.row, workers)
    )
