"""Stage 3: what a ready replica means for its deployment and its first revision."""

from moorage.decide.decision import Draft
from moorage.decide.serving.phase import desired_replicas, initial_scale
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.nouns import Replica, Revision
from moorage.domain.reasons import reason
from moorage.domain.states import DeploymentStatus, ReplicaStatus, RevisionState


def note_ready(draft: Draft, snapshot: ServingSnapshot) -> None:
    """Set the facts that readiness establishes; nothing here is ever unset by a later failure."""
    deployment = draft.row(snapshot.deployment)
    replicas = list(draft.of(Replica))
    if not deployment.past_pulling and any(
        r.status in (ReplicaStatus.INITING, ReplicaStatus.RUNNING) for r in replicas
    ):
        draft.set(deployment, past_pulling=True)
    ready = [r for r in replicas if r.routed and r.status is ReplicaStatus.RUNNING]
    _say_ready(draft, snapshot, len(ready))
    if not ready:
        return
    served = {r.ordinal for r in ready}
    draft.set(
        deployment,
        ever_ready=True,
        fatal_since_ran=False,
        waking=None,
        not_ready=tuple(n for n in deployment.not_ready if n not in served),
    )
    if deployment.first_ready_at is None:
        draft.set(deployment, first_ready_at=draft.now)
    if deployment.status is DeploymentStatus.CREATED and len(ready) >= max(initial_scale(deployment.spec), 1):
        draft.set(deployment, initial_scale_reached=True)
        _activate(draft, snapshot)


def _say_ready(draft: Draft, snapshot: ServingSnapshot, ready: int) -> None:
    """The deployment's own reason counts its ready replicas, once it has had one and unless it waits to retry."""
    deployment = draft.row(snapshot.deployment)
    waits = deployment.retry_at is not None and deployment.retry_at > draft.now and not ready
    if deployment.status is not DeploymentStatus.CREATED or deployment.deleting or waits:
        return
    if ready or deployment.ever_ready:
        draft.because(deployment, reason("deploy.ready", ready=ready, desired=desired_replicas(deployment)))


def _activate(draft: Draft, snapshot: ServingSnapshot) -> None:
    """The first revision becomes active on readiness alone: there is no baseline to compare it with."""
    deployment = draft.row(snapshot.deployment)
    for revision in draft.of(Revision):
        if revision.uid == deployment.candidate_revision and deployment.active_revision is None:
            if revision.state is not RevisionState.PROVISIONING:
                continue
            decision = {"verdict": "ACCEPT", "reasons": [reason("no_baseline").to_wire()], "at": draft.now}
            draft.step(
                revision,
                RevisionState.ACTIVE,
                "promoted",
                reason("revision.promoted"),
                decisions=(*revision.decisions, decision),
            )
            draft.set(deployment, active_revision=revision.uid, candidate_revision=None)
