"""The deployment's table, over its status: what was decided. What is happening is its phase, which is derived."""

from collections.abc import Mapping

from moorage.domain.states import DeploymentStatus as S
from moorage.domain.transitions import Table, rows

TRIGGERS: Mapping[str, str] = {
    "idle": "no request for the idle time-out, and every gateway confirmed that nothing is in flight or held",
    "paused_by_person": "a person paused it",
    "wake_failed": "its wake failed, nothing is held any more and its minimum is 0",
    "wake_request": "a request, or a person, wakes it",
    "rollout": "an apply made a candidate revision while it was paused",
    "scaled": "its minimum was raised above 0 while it was paused",
    "failed_fatal": "a replica failed fatally, no other lives, and the revision never reached its initial scale",
    "stop_requested": "a person stopped it",
    "delete_requested": "a person deleted it; stopped is written before anything is taken down",
}
"""Trigger word → what happened."""

DEPLOYMENT = Table(
    "Deployment",
    S,
    (S.CREATED, S.PAUSED),
    (
        *rows(S.CREATED, "idle", S.PAUSED),
        *rows(S.CREATED, "paused_by_person", S.PAUSED),
        *rows(S.CREATED, "wake_failed", S.PAUSED),
        *rows(S.CREATED, "failed_fatal", S.FAILED),
        *rows(S.CREATED, "stop_requested", S.STOPPED),
        *rows(S.CREATED, "delete_requested", S.STOPPED),
        *rows(S.PAUSED, "wake_request", S.CREATED),
        *rows(S.PAUSED, "rollout", S.CREATED),
        *rows(S.PAUSED, "scaled", S.CREATED),
        *rows(S.PAUSED, "stop_requested", S.STOPPED),
        *rows(S.PAUSED, "delete_requested", S.STOPPED),
    ),
)
"""A deployment with `initial: 0` is accepted straight into paused. failed and stopped are terminal."""
