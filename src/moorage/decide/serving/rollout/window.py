"""The window after a promotion: the guard looks on, and what clients meet may send the promoted revision back.

The baseline is what clients met at the old revision while the two were compared. No data never sends anything back; a
promoted revision that failed and has nothing ready does. A rollback has no window of its own, so it never swings.
"""

from moorage.decide.decision import Draft, Ids
from moorage.decide.serving.evidence import carried
from moorage.decide.serving.rollout import rollback
from moorage.decide.serving.rollout.promoting import BEHIND
from moorage.decide.serving.rollout.record import Rollout, rollout_of
from moorage.decide.serving.rollout.roles import ready_replicas, revision_row
from moorage.decide.serving.rollout.verdict import judge_now, keep, rejects, said
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.nouns import Deployment, Revision
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import DeploymentStatus


def watch(draft: Draft, snapshot: ServingSnapshot, ids: Ids) -> None:
    """Look at what is in its window; end the window in time."""
    deployment = draft.row(snapshot.deployment)
    rollout = rollout_of(deployment)
    if rollout is None or rollout.kind != "window":
        return
    promoted, before = revision_row(draft, rollout.candidate), revision_row(draft, rollout.baseline)
    until = rollout.window_until or 0.0
    over = draft.now >= until or deployment.status is not DeploymentStatus.CREATED or deployment.deleting
    if over or promoted is None or before is None or deployment.active_revision != rollout.candidate:
        close(draft, deployment, rollout)
        return
    draft.look_again(until)
    ready = bool(ready_replicas(draft, promoted.uid)) or not _failed_since(deployment, promoted)
    decision = judge_now(draft, deployment, rollout, promoted, before, ready=ready)
    if not rejects(decision) or before.state not in BEHIND:
        return
    keep(draft, promoted, before, decision, always=True)
    close(draft, deployment, rollout, reason("deploy.sent_back", revision=promoted.name, to=before.name))
    rollback.order(draft, deployment, before, ids, by="the release guard", text=said(decision))


def close(draft: Draft, deployment: Deployment, rollout: Rollout, why: Reason | None = None) -> None:
    """It is over: nothing is counted any more. The note is what tells the routes to say so.

    Args:
        why: what is noted; None: it ended in time.
    """
    promoted = revision_row(draft, rollout.candidate)
    draft.set(deployment, rollout=None)
    name = promoted.name if promoted is not None else rollout.candidate
    draft.note(deployment, why or reason("deploy.window_over", revision=name))
    for uid in (rollout.candidate, rollout.baseline):
        revision = revision_row(draft, uid)
        if revision is not None:
            draft.set(revision, evidence=carried(revision.evidence))


def _failed_since(deployment: Deployment, promoted: Revision) -> bool:
    return deployment.failed_at is not None and deployment.failed_at >= (promoted.activated_at or 0.0)
