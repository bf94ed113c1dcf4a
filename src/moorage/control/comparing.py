"""The two loops that run while revisions are compared: evidence is written down, and missing requests are sent.

Both work one deployment at a time and sleep where nothing is compared. What they write makes no row of history, so they
tell the serving loop themselves. Part of `loops`.
"""

from collections.abc import Callable, Iterable

import httpx

from moorage.control.cycle import KeyedLoop
from moorage.control.evidence import EvidenceStep
from moorage.control.routing import Publisher
from moorage.control.synthetic import SyntheticStep
from moorage.domain.changes import Fence, HistoryRow
from moorage.domain.nouns import Deployment, Replica, Revision
from moorage.domain.states import ReplicaStatus
from moorage.ports import Clock, Store

RESYNC_S = 1800.0
"""As for deployments: nothing relies on it."""


class Comparing:
    """Runs while this process leads.

    Args:
        store, clock: outside.
        http: a client that uses no proxy, for synthetic requests.
        publisher: hears the gateways' reports.
    """

    def __init__(self, store: Store, clock: Clock, http: httpx.AsyncClient, publisher: Publisher) -> None:
        self._evidence_step = EvidenceStep(store, clock, self._written)
        self._sender_step = SyntheticStep(store, clock, http, self._sent)
        self._evidence = KeyedLoop(
            "evidence", self._evidence_step, clock, self._evidence_step.everything, resync_s=RESYNC_S
        )
        self._sender = KeyedLoop("synthetic", self._sender_step, clock, self._sender_step.everything, resync_s=RESYNC_S)
        self._evidence_step.mark = self._evidence.mark
        publisher.on_report.append(self._evidence_step.heard)
        self.decide: Callable[[str], None] = lambda _: None
        """marks a deployment in the serving loop"""

    @property
    def loops(self) -> tuple[KeyedLoop, ...]:
        """To be run."""
        return self._evidence, self._sender

    def fenced(self, fence: Fence) -> None:
        """Write only under this leadership."""
        self._evidence_step.fence = self._sender_step.fence = fence

    def heard(self, rows: Iterable[HistoryRow]) -> None:
        """Rows after which requests may be missing: of a deployment, of a revision, of a replica that is ready."""
        for row in rows:
            if row.object_kind in (Deployment.kind, Revision.kind) or _serves(row):
                self._sender.mark(row.root)

    def _written(self, deployment: str) -> None:
        self.decide(deployment)
        self._sender.mark(deployment)

    def _sent(self, deployment: str) -> None:
        self.decide(deployment)


def _serves(row: HistoryRow) -> bool:
    return row.object_kind == Replica.kind and row.to == ReplicaStatus.RUNNING
