"""The revision's table: one immutable version of what a deployment serves, from candidate to superseded."""

from collections.abc import Mapping

from moorage.domain.states import RevisionState as S
from moorage.domain.transitions import Table, rows

TRIGGERS: Mapping[str, str] = {
    "provision": "its first replica is asked for",
    "replica_ready": "a replica of it is ready, so it can be compared with the active revision",
    "lost_ready": "it lost its ready replicas while it was compared",
    "accepted": "the release guard accepted it; it is scaled to the size of the active one",
    "decision_stale": "the decision no longer holds for these two revisions and is made again",
    "promoted": "it serves: routing, both revisions and the deployment were written in one transaction",
    "replaced": "another revision was promoted, so this one drains",
    "drained": "every gateway confirmed that nothing of it is in flight, or the drain limit passed",
    "rollback": "a person, or the guard in the window after promotion, goes back to it",
    "rejected": "the release guard, or a person, rejected it",
    "failed_fatal": "a replica of it failed fatally, no other lives, and it never reached its initial scale",
    "deadline": "it was not promoted within the rollout's deadline",
    "cancelled": "a newer apply, a stop, a delete or a person ended the rollout",
}
"""Trigger word → what happened."""

_ENDS = tuple(
    row
    for state in (S.CANDIDATE, S.PROVISIONING, S.EVALUATING, S.PROMOTING)
    for row in (
        *rows(state, "failed_fatal", S.FAILED),
        *rows(state, "deadline", S.FAILED),
        *rows(state, "cancelled", S.CANCELLED),
    )
)

REVISION = Table(
    "Revision",
    S,
    (S.CANDIDATE,),
    (
        *rows(S.CANDIDATE, "provision", S.PROVISIONING),
        *rows(S.PROVISIONING, "replica_ready", S.EVALUATING),
        *rows(S.PROVISIONING, "promoted", S.ACTIVE),
        *rows(S.PROVISIONING, "rejected", S.REJECTED),
        *rows(S.EVALUATING, "lost_ready", S.PROVISIONING),
        *rows(S.EVALUATING, "accepted", S.PROMOTING),
        *rows(S.EVALUATING, "rejected", S.REJECTED),
        *rows(S.PROMOTING, "promoted", S.ACTIVE),
        *rows(S.PROMOTING, "decision_stale", S.EVALUATING),
        *rows(S.PROMOTING, "rejected", S.REJECTED),
        *_ENDS,
        *rows(S.ACTIVE, "replaced", S.DRAINING),
        *rows(S.DRAINING, "drained", S.SUPERSEDED),
        *rows(S.DRAINING, "rollback", S.ACTIVE),
        *rows(S.SUPERSEDED, "rollback", S.PROVISIONING),
    ),
)
"""rejected, failed and cancelled are terminal. provisioning → active is for a revision without a baseline."""
