"""What this gateway tells the control plane: traffic, what still runs at withdrawn replicas, evidence.

Here: making a report, and knowing whether there is news since the last one that was answered. Not here: when and how
it is sent (`control`).
"""

from collections.abc import Iterator, Mapping
from math import inf

from moorage.decide.serving.routes import EndpointState, Generation, RevisionState, TargetState
from moorage.decide.serving.routing import why_aside
from moorage.gateway.config import GatewayConfig
from moorage.gateway.hub import Hub
from moorage.wire.routing import EndpointActivity, Evidence, GatewayReport, PutAside

_Key = tuple[str, str, str]
"""evidence id, deployment, revision"""
_Changes = dict[_Key, int]
"""how often the sums had changed"""


class Reporter:
    """Makes the reports of one gateway process, one after the other.

    Args:
        incarnation: drawn at each start of the process.
        address: where the control plane asks this gateway about requests.
    """

    def __init__(self, hub: Hub, config: GatewayConfig, *, incarnation: str, address: str) -> None:
        self._hub = hub
        self._config = config
        self._incarnation = incarnation
        self._address = address
        self._sent: tuple[object, _Changes] = (None, {})
        self._told: tuple[object, _Changes] = (None, {})
        self._sequence = 0

    def report(self, confirmed: Generation | None, *, leaving: bool = False) -> GatewayReport:
        """What this gateway sees now.

        Args:
            confirmed: the table that is applied and kept.
            leaving: it is the last one: nothing runs, and nothing more is admitted.
        """
        now = self._hub.time()
        self._sent = (self._traffic_key(), self._changes())
        oldest = self._oldest_s(now)
        self._sequence += 1
        limits = self._hub.limits
        return GatewayReport(
            gateway=self._config.gateway_id,
            incarnation=self._incarnation,
            table_incarnation=confirmed.incarnation if confirmed else None,
            table_number=confirmed.number if confirmed else 0,
            address=self._address,
            url=self._config.advertise or None,
            endpoints=tuple(_activity(endpoint, oldest, now) for endpoint in self._seen()),
            evidence=tuple(self._evidence()),
            wants=limits.last_wants() if leaving else limits.wants(),
            usage=self._hub.usage.tell(self._sequence, leaving=leaving),
            sequence=self._sequence,
            slices_epoch=limits.epoch,
            leaving=leaving,
            processes=self._hub.processes,
        )

    def answered(self) -> None:
        """The control plane has the last report."""
        self._told = self._sent

    def forget(self) -> None:
        """Another control plane, or another leader of it, may not have what was answered: all is told again."""
        self._told = (None, {})
        self._hub.limits.forget()

    def due(self) -> bool:
        """Whether there is anything to tell: while something runs its age is news."""
        return self._hub.router.busy() or self._told != (self._traffic_key(), self._changes())

    # --- inside --------------------------------------------------------------------------------------------------

    def _seen(self) -> list[EndpointState]:
        return [
            e for e in self._hub.router.endpoints() if e.in_flight or e.waiting or e.completed or e.copies or _aside(e)
        ]

    def _traffic_key(self) -> object:
        return [(e.key, e.in_flight, len(e.waiting), e.completed, _running(e), _aside(e)) for e in self._seen()]

    def _oldest_s(self, now: float) -> dict[TargetState, float]:
        """Ages of the oldest requests at withdrawn replicas."""
        leaving = {target for endpoint in self._hub.router.endpoints() for target in endpoint.leaving}
        oldest: dict[TargetState, float] = {}
        if not leaving:
            return oldest
        running = [(client.target, client.started) for client in self._hub.clients]
        running += [(copy.target, copy.sent_at) for copy in self._hub.copies]
        for target, since in running:
            if target in leaving:
                oldest[target] = max(oldest.get(target, 0.0), now - since)
        return oldest

    def _compared(self) -> Iterator[tuple[_Key, RevisionState]]:
        for endpoint in self._hub.router.endpoints():
            if endpoint.evidence_id is not None:
                for revision in endpoint.revisions.values():
                    yield (endpoint.evidence_id, endpoint.route.deployment, revision.uid), revision

    def _changes(self) -> _Changes:
        return {key: seen.changes for key, r in self._compared() if (seen := r.comparison) and seen.changes}

    def _evidence(self) -> Iterator[Evidence]:
        """Of those that changed since the control plane heard of them last."""
        told = self._told[1]
        for key, revision in self._compared():
            seen = revision.comparison
            if seen is not None and seen.changes and told.get(key) != seen.changes:
                evidence_id, deployment, uid = key
                yield Evidence(
                    evidence_id=evidence_id,
                    deployment=deployment,
                    revision=uid,
                    requests=seen.requests,
                    errors=seen.errors,
                    client_gone=seen.client_gone,
                    ttft_us=dict(seen.ttft_us),
                    latency_us=dict(seen.latency_us),
                    throughput_milli=dict(seen.throughput_milli),
                )


def _activity(endpoint: EndpointState, oldest: Mapping[TargetState, float], now: float) -> EndpointActivity:
    return EndpointActivity(
        namespace=endpoint.route.namespace,
        name=endpoint.route.name,
        in_flight=endpoint.in_flight,
        held=len(endpoint.waiting),
        requests=endpoint.completed,
        replicas=_running(endpoint),
        idle_s=None if endpoint.ended_at is None else max(0.0, now - endpoint.ended_at),
        oldest_s={t.spec.replica: round(oldest[t], 3) for t in endpoint.leaving if t in oldest},
        aside=tuple(
            PutAside(
                replica=target.spec.replica,
                why=why,
                tried_in_s=round(max(0.0, target.ejected_until - now), 3)
                if target.aside and target.ejected_until != inf
                else None,
                bad=target.bad,
                answered=target.answered if target.bad else None,
                of=len(target.revision.targets),
            )
            for target, why in _aside(endpoint)
        ),
    )


def _aside(endpoint: EndpointState) -> list[tuple[TargetState, str]]:
    """Replicas in the table that are put aside, or would be if there were others, and why."""
    return [(target, why) for target in endpoint.targets if (why := why_aside(target)) is not None]


def _running(endpoint: EndpointState) -> dict[str, int]:
    """Requests in flight by replica; one that was withdrawn may be there twice, at two addresses."""
    running: dict[str, int] = {}
    for target in (*endpoint.targets, *endpoint.leaving):
        if target.in_flight:
            running[target.spec.replica] = running.get(target.spec.replica, 0) + target.in_flight
    return running
