"""What the rows show of an apply, a promote, a reject and a rollback: how far each of these operations is.

Read by the engine in `operations`. A step is done when the rows prove it, so a control plane that takes over looks and
goes on.
"""

from collections.abc import Mapping
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.serving.facts import Facts, Retry
from moorage.decide.serving.phase import IN_PROMOTION
from moorage.decide.serving.rollout.record import Terms, rollout_of, terms_of
from moorage.decide.serving.rollout.roles import counters_of, live_replicas, ready_replicas, revision_row
from moorage.decide.serving.rollout.sizes import has_capacity
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.nouns import Deployment, Operation, Revision
from moorage.domain.states import DeploymentStatus, ReplicaStatus, RevisionState

SERVED = (RevisionState.ACTIVE, RevisionState.DRAINING, RevisionState.SUPERSEDED)
"""States of a revision that was promoted, be it that another one has followed it since."""


def apply_facts(draft: Draft, snapshot: ServingSnapshot, operation: Operation) -> Facts:
    """record, provision, ready, activate."""
    deployment, revision = draft.row(snapshot.deployment), revision_row(draft, operation.revision)
    over = _over(draft, deployment, revision)
    if over is not None:
        return over
    asleep = deployment.status is DeploymentStatus.PAUSED and deployment.active_revision is None
    if revision is None or asleep or revision.state in SERVED:
        return Facts(len(operation.steps))
    provisioned = any(r.status is not ReplicaStatus.PENDING for r in live_replicas(draft, revision.uid))
    ready = bool(ready_replicas(draft, revision.uid))
    done = 1 + provisioned + (provisioned and ready)
    return Facts(done, retry=_next_try(draft, deployment, revision), waiting=_waits_for(deployment, revision))


def promote_facts(draft: Draft, snapshot: ServingSnapshot, operation: Operation) -> Facts:
    """record, scale, activate: a person's word on a candidate."""
    deployment, revision = draft.row(snapshot.deployment), revision_row(draft, operation.revision)
    over = _over(draft, deployment, revision)
    if over is not None:
        return over
    if revision is None or revision.state in SERVED:
        return Facts(len(operation.steps))
    if has_capacity(draft, deployment, revision) and revision.state is RevisionState.PROMOTING:
        return Facts(2)
    waiting = "its replicas to be ready" if revision.state is RevisionState.PROMOTING else "its first replica"
    return Facts(1, retry=_next_try(draft, deployment, revision), waiting=waiting)


def reject_facts(draft: Draft, snapshot: ServingSnapshot, operation: Operation) -> Facts:
    """record, withdraw: done when no request can come to it any more."""
    replicas = {r.uid for r in live_replicas(draft, operation.revision or "")}
    if replicas & snapshot.demand.published_targets or (replicas and not snapshot.demand.confirmed):
        return Facts(1, waiting="gateways to take the new routes")
    return Facts(len(operation.steps))


def rollback_facts(draft: Draft, snapshot: ServingSnapshot, operation: Operation) -> Facts:
    """record, provision, activate."""
    deployment, revision = draft.row(snapshot.deployment), revision_row(draft, operation.revision)
    over = _over(draft, deployment, revision)
    if over is not None:
        return over
    if revision is None or revision.state is RevisionState.ACTIVE:
        return Facts(len(operation.steps))
    if revision.state is not RevisionState.PROVISIONING:
        return Facts(1, waiting="what is left of it to drain, so that it can be started again")
    if has_capacity(draft, deployment, revision):
        return Facts(2)
    return Facts(1, retry=_next_try(draft, deployment, revision), waiting="as many ready replicas as the load needs")


def take_back_word(draft: Draft, snapshot: ServingSnapshot, operation: Operation, by: str) -> None:
    """A cancelled promote: the guard decides again."""
    del snapshot, by
    revision = revision_row(draft, operation.revision)
    if revision is not None and revision.state in IN_PROMOTION:
        draft.set(revision, verdict=None)


def _over(draft: Draft, deployment: Deployment, revision: Revision | None) -> Facts | None:
    """The end of the operation, where its deployment or its revision came to one."""
    if deployment.deleting or deployment.status is DeploymentStatus.STOPPED:
        return Facts(0, cancelled_by="a stop or delete")
    if revision is None:
        return None
    why = revision.reason
    if revision.state is RevisionState.CANCELLED:
        return Facts(0, cancelled_by=str(dict(why.params).get("by") or "a newer order") if why else "a newer order")
    if deployment.status is DeploymentStatus.FAILED:
        return Facts(0, error=_failure(deployment))
    if revision.state in (RevisionState.REJECTED, RevisionState.FAILED):
        return Facts(0, error=_ended(revision))
    return None


def _ended(revision: Revision) -> dict[str, Any]:
    last = dict(revision.last_failure or {})
    code = f"revision_{revision.state}"
    why = revision.reason
    return {
        "code": str(last.get("fail_reason") or code) if revision.state is RevisionState.FAILED else code,
        "category": "failed",
        "message": f"revision {revision.name}: {why.message if why else revision.state}",
        "retryable": False,
        "remedy": why.advice if why else None,
        "target": f"Revision {revision.name}",
    }


def _failure(deployment: Deployment) -> dict[str, Any]:
    last: Mapping[str, Any] = deployment.last_failure or {}
    why = dict(last.get("reason") or {})
    return {
        "code": last.get("fail_reason") or "deploy_failed",
        "category": "failed",
        "message": why.get("message", "the deployment failed"),
        "retryable": False,
        "remedy": why.get("advice"),
    }


def _next_try(draft: Draft, deployment: Deployment, revision: Revision) -> Retry | None:
    """The replica that failed last is replaced at a time that the back-off of its revision chose."""
    counters = counters_of(draft, deployment, revision.uid)
    if counters is None or counters.retry_at is None or counters.retry_at <= draft.now:
        return None
    why = dict(dict(counters.last_failure or {}).get("reason") or {})
    return Retry(str(why.get("message") or "its replica failed"), counters.retry_at)


def _waits_for(deployment: Deployment, revision: Revision) -> str | None:
    """What a candidate beside an active revision waits for, without counts that change all the time."""
    if deployment.active_revision is None or revision.state is RevisionState.PROVISIONING:
        return None
    terms: Terms = terms_of(deployment)
    last = revision.decisions[-1] if revision.decisions else None
    if last is not None and last.get("verdict") == "WAIT":
        return "the release guard: " + ", ".join(str(r.get("code")) for r in last.get("reasons") or ())
    if revision.state is RevisionState.PROMOTING:
        return "as many ready replicas as the active revision has"
    rollout = rollout_of(deployment)
    if last is not None and rollout is not None and rollout.steady_s and revision.state is RevisionState.EVALUATING:
        return f"it to stay ready for {rollout.steady_s:.0f} s at a stretch, since it ceased to be ready before"
    return None if terms.auto else f"a person's word: moor promote {deployment.name}, or moor reject"
