"""The worker's table: one process (or container) of a run on one machine.

Agents report every step in order, so there is no skipping edge. Each edge into Pending raises the attempt and the
placement epoch.
"""

from collections.abc import Mapping
from itertools import chain

from moorage.domain.states import ACTIVE_WORKER
from moorage.domain.states import WorkerState as S
from moorage.domain.transitions import Table, Transition, rows

TRIGGERS: Mapping[str, str] = {
    "picked_up": "its machine took it over and begins to set it up",
    "pulling": "its machine fetches the image or the model",
    "barrier": "it is set up and waits for the other members of its gang",
    "barrier_open": "every member of the gang is ready and the process was started",
    "started": "the process or container was started",
    "running": "its machine sees it running",
    "heartbeat_late": "no heartbeat for the time to live and its grace",
    "heartbeat_back": "a heartbeat came again while its machine is up",
    "heartbeat_expired": "no heartbeat for a further time to live after going stale",
    "exited_zero": "the process ended with exit code 0",
    "exited_nonzero": "the process ended with another exit code, by a signal, or out of memory",
    "failed": "its machine could not prepare, fetch, create or start it, or gave it up at a limit of such a step",
    "vanished": "its process or container was found gone and nothing says how it ended",
    "stop_requested": "it was asked to stop after it had been handed over to a machine",
    "stop_confirmed": "its machine saw the stopped process gone",
    "cancelled": "it was ended while no machine held it",
    "refused": "the machine refuses the spec",
    "dependency_failed": "something that it depends on failed for good",
    "unplaced": "its machine was lost, removed or cordoned before it picked the worker up",
    "machine_lost": "the lease of its machine is over",
    "machine_removed": "its machine was removed from the cluster",
    "returned": "its machine came back with the same epoch still running and its place not given away",
    "late_report": "a report of the same epoch, late, proves how it ended",
    "restart": "its own restart policy starts it again",
    "gang_restart": "the gang is started again as a whole",
    "requeued": "it was stopped for a cause after which it is queued again, and it is gone",
}
"""Trigger word → what happened."""


def _ends_of_active(state: S) -> tuple[Transition, ...]:
    """What can end or interrupt a worker in any active state."""
    return (
        *rows(state, "failed", S.FAILED),
        *rows(state, "vanished", S.FAILED),
        *rows(state, "stop_requested", S.STOPPING),
        *rows(state, "machine_lost", S.DOWN),
        *rows(state, "machine_removed", S.DOWN),
    )


_EXITS = tuple(
    chain.from_iterable(
        (*rows(state, "exited_zero", S.COMPLETED), *rows(state, "exited_nonzero", S.FAILED))
        for state in (S.STARTING, S.RUNNING, S.STALE, S.STOPPING)
    )
)

WORKER = Table(
    "Worker",
    S,
    (S.PENDING,),
    (
        *rows(S.PENDING, "picked_up", S.PREPARING),
        *rows(S.PENDING, "unplaced", S.PENDING),
        *rows(S.PENDING, "stop_requested", S.STOPPING),
        *rows(S.PENDING, "cancelled", S.CANCELLED),
        *rows(S.PENDING, "refused", S.FAILED),
        *rows(S.PENDING, "dependency_failed", S.FAILED),
        *rows(S.PREPARING, "pulling", S.PULLING),
        *rows(S.PREPARING, "started", S.STARTING),
        *rows(S.PREPARING, "barrier", S.READY_TO_START),
        *rows(S.PULLING, "started", S.STARTING),
        *rows(S.PULLING, "barrier", S.READY_TO_START),
        *rows(S.READY_TO_START, "barrier_open", S.STARTING),
        *rows(S.STARTING, "running", S.RUNNING),
        *rows(S.RUNNING, "heartbeat_late", S.STALE),
        *rows(S.STALE, "heartbeat_back", S.RUNNING),
        *rows(S.STALE, "heartbeat_expired", S.DOWN),
        *chain.from_iterable(_ends_of_active(state) for state in S if state in ACTIVE_WORKER),
        *_EXITS,
        *rows(S.STOPPING, "stop_confirmed", S.CANCELLED),
        *rows(S.STOPPING, "machine_lost", S.CANCELLED),
        *rows(S.STOPPING, "machine_removed", S.CANCELLED),
        *rows(S.STOPPING, "failed", S.FAILED),
        *rows(S.DOWN, "restart", S.PENDING),
        *rows(S.DOWN, "gang_restart", S.PENDING),
        *rows(S.DOWN, "returned", S.RUNNING),
        *rows(S.DOWN, "late_report", S.COMPLETED, S.FAILED),
        *rows(S.DOWN, "cancelled", S.CANCELLED),
        *rows(S.FAILED, "restart", S.PENDING),
        *rows(S.FAILED, "gang_restart", S.PENDING),
        *rows(S.COMPLETED, "restart", S.PENDING),
        *rows(S.COMPLETED, "gang_restart", S.PENDING),
        *rows(S.CANCELLED, "requeued", S.PENDING),
    ),
)
"""Active is Preparing to Stale. A stopped worker is Cancelled whatever its exit code, unless it ended before."""
