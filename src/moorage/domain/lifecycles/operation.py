"""The operation's table: a durable, keyed, resumable piece of work, done under a fenced lease."""

from collections.abc import Mapping

from moorage.domain.states import OperationState as S
from moorage.domain.transitions import Table, rows

TRIGGERS: Mapping[str, str] = {
    "leased": "a controller took its lease",
    "started": "its holder goes on from the first unfinished step",
    "lease_lost": "its holder's lease is over; the next holder resumes",
    "waiting": "its step waits for something, or for the next attempt",
    "succeeded": "its last step is done, or a cancel came past the point of no return",
    "failed": "a step failed in a way that trying again cannot mend",
    "attempts_exhausted": "a step failed in every attempt allowed",
    "cancel_requested": "a person, or a higher operation, asked it to end",
    "cancelled": "it ended without having its effect",
    "needs_attention": "what is there cannot be told for certain; a person must say",
    "resolved": "a person said what is there, and the evidence is stored",
}
"""Trigger word → what happened."""

OPERATION = Table(
    "Operation",
    S,
    (S.PENDING,),
    (
        *rows(S.PENDING, "leased", S.LEASED),
        *rows(S.PENDING, "cancelled", S.CANCELLED),
        *rows(S.LEASED, "started", S.RUNNING),
        *rows(S.LEASED, "cancel_requested", S.CANCELLING),
        *rows(S.LEASED, "lease_lost", S.PENDING),
        *rows(S.RUNNING, "waiting", S.WAITING),
        *rows(S.RUNNING, "succeeded", S.SUCCEEDED),
        *rows(S.RUNNING, "failed", S.FAILED),
        *rows(S.RUNNING, "attempts_exhausted", S.FAILED),
        *rows(S.RUNNING, "cancel_requested", S.CANCELLING),
        *rows(S.RUNNING, "needs_attention", S.NEEDS_ATTENTION),
        *rows(S.RUNNING, "lease_lost", S.PENDING),
        *rows(S.WAITING, "leased", S.LEASED),
        *rows(S.WAITING, "cancel_requested", S.CANCELLING),
        *rows(S.WAITING, "failed", S.FAILED),
        *rows(S.WAITING, "attempts_exhausted", S.FAILED),
        *rows(S.WAITING, "needs_attention", S.NEEDS_ATTENTION),
        *rows(S.CANCELLING, "cancelled", S.CANCELLED),
        *rows(S.CANCELLING, "succeeded", S.SUCCEEDED),
        *rows(S.CANCELLING, "needs_attention", S.NEEDS_ATTENTION),
        *rows(S.NEEDS_ATTENTION, "resolved", S.PENDING),
        *rows(S.NEEDS_ATTENTION, "cancel_requested", S.CANCELLING),
    ),
)
"""On lease loss cancelling stays cancelling, and the next holder goes on. succeeded, failed, cancelled are terminal."""
