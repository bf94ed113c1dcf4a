"""Stage 3: what a ready replica means for its deployment and its first revision."""

from collections.abc import Iterable

from moorage.decide.decision import Draft
from moorage.decide.serving.phase import desired_replicas, initial_scale
from moorage.decide.serving.rollout.roles import candidate_beside, ready_replicas, revision_row, serving_uid
from moorage.decide.serving.rollout.verdict import accept_first
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.nouns import Deployment, Replica
from moorage.domain.reasons import reason
from moorage.domain.states import TERMINAL_REPLICA, DeploymentStatus, ReplicaStatus, RevisionState

UNREADY = frozenset({"replica.queued", "replica.not_ready", "replica.withdrawn"})
"""Reasons of a replica that say with `why` what keeps requests from it."""

PASSING = frozenset({"deploy.unready", "deploy.retry"})
"""Reasons of a deployment that are not true any more once nothing of it waits."""


def note_ready(draft: Draft, snapshot: ServingSnapshot) -> None:
    """Set the facts that readiness establishes; nothing here is ever unset by a later failure."""
    deployment = draft.row(snapshot.deployment)
    _note_candidate(draft, deployment)
    serving = serving_uid(deployment)
    replicas = [r for r in draft.of(Replica) if r.revision == serving]
    if not deployment.past_pulling and any(
        r.status in (ReplicaStatus.INITING, ReplicaStatus.RUNNING) for r in replicas
    ):
        draft.set(deployment, past_pulling=True)
    ready = [r for r in replicas if r.routed and r.status is ReplicaStatus.RUNNING]
    _say_ready(draft, snapshot, len(ready), replicas)
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


def _note_candidate(draft: Draft, deployment: Deployment) -> None:
    """A candidate begins with one replica: that one ready is its initial scale."""
    candidate = candidate_beside(draft, deployment)
    ready = ready_replicas(draft, candidate.uid) if candidate is not None else []
    if candidate is not None and ready:
        served = {r.ordinal for r in ready}
        left = tuple(n for n in candidate.not_ready if n not in served)
        draft.set(candidate, initial_scale_reached=True, fatal_since_ran=False, not_ready=left)


def _say_ready(draft: Draft, snapshot: ServingSnapshot, ready: int, replicas: Iterable[Replica]) -> None:
    """The deployment's own reason counts its ready replicas, and says what none is ready for, unless it waits to retry.

    Before it ever had one, `created` and what follows it stand until there is something to tell.
    """
    deployment = draft.row(snapshot.deployment)
    waits = deployment.retry_at is not None and deployment.retry_at > draft.now and not ready
    if deployment.status is not DeploymentStatus.CREATED or deployment.deleting or waits:
        return
    desired, replicas = desired_replicas(deployment), tuple(replicas)
    why = None if ready else first_unready_why(replicas)
    if why is not None:
        draft.because(deployment, reason("deploy.unready", ready=ready, desired=desired, why=why))
    elif ready or deployment.ever_ready or (deployment.reason and deployment.reason.code in PASSING):
        lacks = _why_fewer(draft, deployment, replicas) if ready < desired else None
        draft.because(deployment, reason("deploy.ready", ready=ready, desired=desired, why=lacks))


def _why_fewer(draft: Draft, deployment: Deployment, replicas: Iterable[Replica]) -> str | None:
    """Why it has fewer ready ones than it had: what is said of one that hangs, else how the last one failed.

    That is told from the moment of the failure on until one is ready in its place, or something else is told.
    """
    routed: set[int] = set()
    for replica in replicas:
        why = dict(replica.routed_why or {})
        if replica.routed:
            routed.add(replica.ordinal)
        elif (why.get("code"), replica.status, replica.stopping) == ("replica.withdrawn", ReplicaStatus.RUNNING, None):
            return f"{replica.name}: {why['params']['why']}"
    failure = dict(deployment.last_failure or {})
    if "name" not in failure or failure["ordinal"] in routed:
        return None
    told = f"{failure['name']} failed: {failure['reason']['message']}"
    current = deployment.reason
    return told if failure["at"] == draft.now or (current and current.params.get("why") == told) else None


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
    revision = revision_row(draft, deployment.candidate_revision)
    if deployment.active_revision is not None or revision is None or revision.state is not RevisionState.PROVISIONING:
        return
    accept_first(draft, deployment, revision)
    draft.step(
        revision,
        RevisionState.ACTIVE,
        "promoted",
        reason("revision.promoted"),
        activated_at=draft.now,
        initial_scale_reached=True,
    )
    draft.set(deployment, active_revision=revision.uid, candidate_revision=None)
