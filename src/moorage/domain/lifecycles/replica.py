"""The replica's table: the serving view of one service run. It never goes back; withdrawal from routing is a flag."""

from collections.abc import Mapping

from moorage.domain.states import ReplicaStatus as S
from moorage.domain.transitions import Table, rows

TRIGGERS: Mapping[str, str] = {
    "pulling": "its machine fetches the image or the model",
    "initing": "its server is at the barrier, is starting, or runs and is not ready yet",
    "ready": "its server is healthy and lists the expected model",
    "failed": "its run failed or was lost, or its server was not ready in time; the fail reason says which",
    "stopped": "it was stopped on purpose and nothing of it runs; the reason says why",
}
"""Trigger word → what happened."""

_ENDS = tuple(
    row
    for state in (S.PENDING, S.PULLING, S.INITING, S.RUNNING)
    for row in (*rows(state, "failed", S.FAILED), *rows(state, "stopped", S.STOPPED))
)

REPLICA = Table(
    "Replica",
    S,
    (S.PENDING,),
    (
        *rows(S.PENDING, "pulling", S.PULLING),
        *rows(S.PENDING, "initing", S.INITING),
        *rows(S.PENDING, "ready", S.RUNNING),
        *rows(S.PULLING, "initing", S.INITING),
        *rows(S.PULLING, "ready", S.RUNNING),
        *rows(S.INITING, "ready", S.RUNNING),
        *_ENDS,
    ),
)
"""failed and stopped are terminal: the deployment replaces a replica, it never restarts one."""
