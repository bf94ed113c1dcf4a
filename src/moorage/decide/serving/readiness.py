"""Stage 3: what a ready replica means for its deployment and its first revision."""

from collections.abc import Iterable

from moorage.decide.decision import Draft
from moorage.decide.serving.phase import desired_replicas, initial_scale
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.nouns import Replica, Revision
from moorage.domain.reasons import reason
from moorage.domain.states import TERMINAL_REPLICA, DeploymentStatus, ReplicaStatus, RevisionState

UNREADY = frozenset({"replica.queued", "replica.not_ready", "replica.withdrawn"})
"""Reasons of a replica that say with `why` what keeps requests from it."""

PASSING = frozenset({"deploy.unready", "deploy.retry"})
"""Reasons of a deployment that are not true any more once nothing of it waits."""


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
    """The deployment's own reason counts its ready replicas, and says what none is ready for, unless it waits to retry.

    Before it ever had one, `created` and what follows it stand until there is something to tell.
    """
    deployment = draft.row(snapshot.deployment)
    waits = deployment.retry_at is not None and deployment.retry_at > draft.now and not ready
    if deployment.status is not DeploymentStatus.CREATED or deployment.deleting or waits:
        return
    desired = desired_replicas(deployment)
    why = None if ready else first_unready_why(draft.of(Replica))
    if why is not None:
        draft.because(deployment, reason("deploy.unready", ready=ready, desired=desired, why=why))
    elif ready or deployment.ever_ready or (deployment.reason and deployment.reason.code in PASSING):
        draft.because(deployment, reason("deploy.ready", ready=ready, desired=desired))


def first_unready(replicas: Iterable[Replica]) -> Replica | None:
    """The lowest ordinal's replica that is wanted, gets no requests, and says what it waits for."""
    waiting = [
        r
        for r in replicas
        if r.status not in TERMINAL_REPLICA and r.stopping is None and not r.routed and r.reason is not None
    ]
    telling = [r for r in waiting if r.reason is not None and r.reason.code in UNREADY]
    return min(telling, key=lambda r: (r.ordinal, -r.attempt, r.uid), default=None)


def first_unready_why(replicas: Iterable[Replica]) -> str | None:
    """What that replica waits for."""
    replica = first_unready(replicas)
    return str(replica.reason.params["why"]) if replica is not None and replica.reason is not None else None


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
