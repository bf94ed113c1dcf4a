"""How many replicas each revision should have now, and how many a candidate needs before traffic moves.

extra: a candidate has one replica while it is compared and the active one's size while it is promoted, beside it.
replace: the two never have more than that size together. The candidate's one is taken from the active one; while it is
promoted each replica of it that is ready lets one more of the active one go, and traffic moves half-way, so that with
two or more replicas something serves throughout; with one nothing does, and requests are held.
"""

from moorage.decide.decision import Draft
from moorage.decide.serving.phase import desired_replicas
from moorage.decide.serving.rollout.record import Rollout, rollout_of, terms_of
from moorage.decide.serving.rollout.roles import candidate_beside, ready_replicas, serving_uid
from moorage.domain import limits
from moorage.domain.nouns import Deployment, Revision
from moorage.domain.states import RevisionState


def wanted_sizes(draft: Draft, deployment: Deployment) -> dict[str, int]:
    """Replicas wanted per revision uid, the one that serves first; a revision that is not named should have none."""
    deployment = draft.row(deployment)
    size = min(desired_replicas(deployment), limits.REPLICAS_MAX)
    serving = serving_uid(deployment)
    if serving is None or size == 0:
        return {}
    candidate = candidate_beside(draft, deployment)
    if candidate is None:
        return {serving: size}
    grows = candidate.state is RevisionState.PROMOTING or _goes_back(deployment)
    if not terms_of(deployment).replace:
        return {serving: size, candidate.uid: size if grows else 1}
    taken = min(size, len(ready_replicas(draft, candidate.uid)) + 1) if grows else 1
    return {serving: size - taken, candidate.uid: taken}


def needed_to_move(draft: Draft, deployment: Deployment) -> int:
    """Ready replicas that a candidate must have before requests go to it: as many as carry the load now."""
    deployment = draft.row(deployment)
    size = min(desired_replicas(deployment), limits.REPLICAS_MAX)
    if terms_of(deployment).replace:
        size //= 2
    carrying = len(ready_replicas(draft, deployment.active_revision)) if deployment.active_revision else 0
    return max(1, min(size, carrying))


def has_capacity(draft: Draft, deployment: Deployment, candidate: Revision) -> bool:
    """Whether the candidate can take the traffic now."""
    return len(ready_replicas(draft, candidate.uid)) >= needed_to_move(draft, deployment)


def gives_its_place(deployment: Deployment, rollout: Rollout) -> bool:
    """Whether an active revision without a ready replica was stopped to make room for its candidate.

    Such a candidate is alone, and must prove itself alone. An active one that had nothing ready by itself is no
    baseline at all.
    """
    one = min(desired_replicas(deployment), limits.REPLICAS_MAX) <= 1
    return rollout.kind == "rollout" and bool(rollout.served) and one and terms_of(deployment).replace


def _goes_back(deployment: Deployment) -> bool:
    rollout = rollout_of(deployment)
    return rollout is not None and rollout.kind == "rollback"
