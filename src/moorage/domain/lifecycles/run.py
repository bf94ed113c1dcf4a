"""The run's table: which state may follow which. The state itself is derived from the workers, in `decide/running`."""

from collections.abc import Mapping

from moorage.domain.states import RunState as S
from moorage.domain.transitions import Table, rows

TRIGGERS: Mapping[str, str] = {
    "workers_waiting": "no worker runs now and at least one waits to be placed or to start again",
    "gang_placed": "every needed member of the gang has its place, and not all run",
    "workers_running": "one worker runs; of a gang, every needed worker that has not completed",
    "completed": "every needed worker completed, or the group that `complete_with` names did",
    "failed": "a needed worker failed for good, a time limit passed, or its time in the queue was spent",
    "cancelled": "every worker ended and at least one was cancelled for good",
}
"""Trigger word → what happened."""

_ENDS = tuple(
    row
    for state in (S.PENDING, S.STARTING, S.RUNNING)
    for row in (
        *rows(state, "completed", S.COMPLETED),
        *rows(state, "failed", S.FAILED),
        *rows(state, "cancelled", S.CANCELLED),
    )
)

RUN = Table(
    "Run",
    S,
    (S.PENDING,),
    (
        *rows(S.PENDING, "gang_placed", S.STARTING),
        *rows(S.PENDING, "workers_running", S.RUNNING),
        *rows(S.STARTING, "workers_running", S.RUNNING),
        *rows(S.STARTING, "workers_waiting", S.PENDING),
        *rows(S.RUNNING, "workers_waiting", S.PENDING),
        *rows(S.RUNNING, "gang_placed", S.STARTING),
        *_ENDS,
    ),
)
"""Completed, Failed and Cancelled are terminal: a terminal run restarts nothing."""
