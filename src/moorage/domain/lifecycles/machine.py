"""The machine's table, as its agent's lease shows it. Cordoned and draining are flags beside the state."""

from collections.abc import Mapping

from moorage.domain.states import MachineState as S
from moorage.domain.transitions import Table, rows

TRIGGERS: Mapping[str, str] = {
    "joined": "its agent joined and holds no process of ours",
    "holds_processes": "its agent joined and says what it still runs",
    "rejoined": "its agent started again, or the machine booted again",
    "heartbeat_late": "no heartbeat for 20 seconds",
    "heartbeat_back": "its heartbeats come again",
    "lease_expired": "no heartbeat for the whole lease",
    "returned": "its agent came back after the lease was over",
    "reconciled": "each process that it still ran was kept or stopped",
    "removed": "a person removed it; its agent stops all it holds and exits",
}
"""Trigger word → what happened."""

MACHINE = Table(
    "Machine",
    S,
    (S.JOINING,),
    (
        *rows(S.JOINING, "joined", S.READY),
        *rows(S.JOINING, "holds_processes", S.RECONCILING),
        *rows(S.READY, "heartbeat_late", S.NOT_READY),
        *rows(S.READY, "rejoined", S.RECONCILING),
        *rows(S.READY, "lease_expired", S.DOWN),
        *rows(S.NOT_READY, "heartbeat_back", S.READY),
        *rows(S.NOT_READY, "rejoined", S.RECONCILING),
        *rows(S.NOT_READY, "lease_expired", S.DOWN),
        *rows(S.DOWN, "returned", S.RECONCILING),
        *rows(S.RECONCILING, "reconciled", S.READY),
        *rows(S.RECONCILING, "lease_expired", S.DOWN),
        *(row for state in S if state is not S.REMOVED for row in rows(state, "removed", S.REMOVED)),
    ),
)
"""A Down machine gets no work and comes back only through Reconciling. Removed is terminal."""
