"""Which revision serves, which one is the candidate, what each of them has ready, and where its failures are counted.

The rows that the first revision fails on are the deployment's, since with it the deployment fails; a candidate beside
an active revision has counters of its own, so that a bad candidate never makes its deployment look ill.
"""

from moorage.decide.decision import Draft
from moorage.decide.serving.phase import is_ready
from moorage.domain.nouns import Deployment, Replica, Revision
from moorage.domain.states import TERMINAL_REPLICA


def serving_uid(deployment: Deployment) -> str | None:
    """The active revision, or the first one on its way to be."""
    return deployment.active_revision or deployment.candidate_revision


def revision_row(draft: Draft, uid: str | None) -> Revision | None:
    """The revision as this decision has left it so far."""
    return draft.known(Revision, uid)


def candidate_beside(draft: Draft, deployment: Deployment) -> Revision | None:
    """The candidate beside an active revision; None: none, or it is the first revision."""
    if deployment.active_revision is None:
        return None
    return revision_row(draft, deployment.candidate_revision)


def counters_of(draft: Draft, deployment: Deployment, revision: str) -> Deployment | Revision | None:
    """The row on which failures of a revision's replicas count; None: nothing of it is wanted any more."""
    if revision == serving_uid(deployment):
        return draft.row(deployment)
    return revision_row(draft, revision) if revision == deployment.candidate_revision else None


def live_replicas(draft: Draft, revision: str) -> list[Replica]:
    """Its replicas that are not over, those that are being stopped included."""
    return [r for r in draft.of(Replica) if r.revision == revision and r.status not in TERMINAL_REPLICA]


def ready_replicas(draft: Draft, revision: str) -> list[Replica]:
    """Its replicas that can answer now."""
    return [r for r in live_replicas(draft, revision) if is_ready(r)]
