"""How a rollout ends without a promotion, how the replaced revision goes, and the proof that an ended one is gone.

A candidate that ended is named by nothing any more: no size, no route, no second chance; `scale` stops what is left.
"""

from moorage.decide.decision import Draft
from moorage.decide.serving.evidence import carried
from moorage.decide.serving.phase import IN_PROMOTION
from moorage.decide.serving.rollout.roles import live_replicas, revision_row
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.nouns import Deployment, Revision
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import RevisionState

ENDED = frozenset({RevisionState.REJECTED, RevisionState.FAILED, RevisionState.CANCELLED})
"""Terminal states of a revision."""


def end_candidate(draft: Draft, deployment: Deployment, revision: Revision, trigger: str, why: Reason) -> None:
    """rejected, failed or cancelled: it ends, and nothing is under way any more.

    Args:
        trigger: rejected, failed_fatal, deadline or cancelled. Before its first replica is asked for, a candidate can
            only be cancelled or fail.
    """
    to = {"rejected": RevisionState.REJECTED, "cancelled": RevisionState.CANCELLED}.get(trigger, RevisionState.FAILED)
    if trigger == "rejected" and draft.row(revision).state is RevisionState.CANDIDATE:
        to, trigger = RevisionState.CANCELLED, "cancelled"
        why = reason("revision.cancelled", by=str(why.params.get("by", "the release guard")))
    draft.step(revision, to, trigger, why, evidence={}, retry_at=None)
    forget(draft, deployment, revision.uid)


def cancel_candidate(draft: Draft, deployment: Deployment, by: str) -> None:
    """The candidate, if there is one, gives way to a newer order."""
    revision = revision_row(draft, draft.row(deployment).candidate_revision)
    if revision is not None and revision.state in IN_PROMOTION:
        end_candidate(draft, deployment, revision, "cancelled", reason("revision.cancelled", by=by))
    draft.set(deployment, candidate_revision=None, rollout=None)


def forget(draft: Draft, deployment: Deployment, revision: str) -> None:
    """Nothing is under way: the next comparison begins at nothing."""
    current = draft.row(deployment)
    if current.candidate_revision == revision:
        draft.set(deployment, candidate_revision=None, rollout=None)
    active = revision_row(draft, current.active_revision)
    if active is not None:
        draft.set(active, evidence=carried(active.evidence))


def follow_draining(draft: Draft, snapshot: ServingSnapshot) -> None:
    """draining → superseded once nothing of it can be asked: every replica was drained, or its limit passed."""
    for revision in draft.of(Revision):
        if revision.state is not RevisionState.DRAINING:
            continue
        left = live_replicas(draft, revision.uid)
        runs = (snapshot.runs.get(r.run) for r in left)
        if all(run is None or draft.row(run).cancel for run in runs):
            by = revision_row(draft, draft.row(snapshot.deployment).active_revision)
            why = reason("revision.superseded", by=by.name if by else None)
            draft.step(revision, RevisionState.SUPERSEDED, "drained", why)


def prove_gone(draft: Draft, snapshot: ServingSnapshot) -> None:
    """An ended revision says when nothing of it is left on any machine."""
    for revision in draft.of(Revision):
        if revision.state not in ENDED or revision.capacity_gone or revision.uid in snapshot.leftovers:
            continue
        if not live_replicas(draft, revision.uid):
            draft.set(revision, capacity_gone=True)
            draft.note(revision, reason("revision.capacity_gone"))
