"""What is counted and kept when a request ends: its endpoint's and its replica's counts, its tokens, its record.

Here: reading them off the client connection, once a request. Not here: what is counted (`measures`, and the core's
tally), the text of it (`exposition`). Owned by `hub`; `own` reads it.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from moorage.decide.serving.binding import BindingState
from moorage.decide.serving.routes import EndpointState, Generation, RevisionState, TargetState
from moorage.gateway.access_log import AccessLog
from moorage.gateway.measures import Record, Ring, Stats, running_record
from moorage.gateway.tokens import Stream, Tokens, told_by_body
from moorage.gateway.watching import compare

if TYPE_CHECKING:
    from moorage.gateway.exchange import Exchange


class Counts:
    """The counts of one gateway process.

    Args:
        time: the clock, in seconds.
        records_max: how many ended requests are remembered.
    """

    def __init__(self, time: Callable[[], float], records_max: int) -> None:
        self.ring = Ring(records_max)
        self.stats: dict[EndpointState, Stats] = {}
        """of requests that named a deployment's own endpoint"""
        self.bound: dict[tuple[BindingState, EndpointState], Stats] = {}
        """of those that named one which people made"""
        self.unrouted = 0
        self.access: AccessLog | None = None
        self._time = time

    # --- while a request runs ------------------------------------------------------------------------------------

    def watch_stream(self, client: "Exchange") -> Stream:
        """An answer of events begins."""
        endpoint = client.endpoint
        assert endpoint is not None
        return Stream(self._time, self._of(client.binding, endpoint).gaps)

    def find(self, request_id: bytes, running: "Iterable[Exchange]", generation: Generation | None) -> Record | None:
        """What is known of a request: of the one under way by that id, else of the last that ended."""
        found = [c for c in running if c.endpoint is not None and c.request_id == request_id]
        if found:
            return running_record(max(found, key=lambda c: c.started), self._time(), generation)
        return self.ring.find(request_id)

    # --- when it ends --------------------------------------------------------------------------------------------

    def ended(
        self,
        client: "Exchange",
        endpoint: EndpointState,
        target: TargetState | None,
        outcome: str,
        *,
        now: float,
        generation: Generation | None,
    ) -> None:
        """A request ended whose endpoint was known. What its answer says of tokens is the client's from here on."""
        started = client.started
        sent_at, first_at = client.sent_at, client.first_at
        stream = client.stream
        if stream is not None:
            first_at = stream.first_at or first_at
        queued_s = (sent_at if target is not None else now) - started
        first_s = first_at - started if first_at else None
        total_s = now - started
        binding = client.binding
        stats = self._of(binding, endpoint)
        stats.count(target, client.status, outcome, queued_s=queued_s, first_s=first_s, total_s=total_s)
        stats.bytes += client.sent_bytes
        stats.retried += client.retried
        tokens: Tokens | None = None
        if stream is not None:
            tokens = stream.tokens()
            stats.gaps_s += stream.last_at - stream.first_at
        elif client.tail and client.first_at:
            tokens = told_by_body(client.tail, client.front)
        if tokens is not None:
            stats.count_tokens(tokens)
        client.tokens = tokens
        if target is not None:
            _count_revision(client, target.revision, outcome, now)
        record = (
            client.request_id,
            endpoint.route.name if binding is None else binding.spec.name,
            endpoint.route.name,
            generation.number if generation else 0,
            target.spec if target is not None else None,
            queued_s,
            first_s,
            total_s,
            client.status,
            client.sent_bytes,
            outcome,
            tokens,
            client.key_name or None,
            client.retried,
        )
        self.ring.add(record)
        if self.access is not None:
            self._log(client, record)

    def refused(self, client: "Exchange", outcome: str, generation: Generation | None) -> None:
        """A request ended before its endpoint was known."""
        self.unrouted += 1
        taken_s = self._time() - client.started
        number = generation.number if generation else 0
        told = (client.status, client.sent_bytes, outcome, None, None, 0)
        record = (client.request_id, "", "", number, None, None, None, taken_s, *told)
        self.ring.add(record)
        if self.access is not None:
            self._log(client, record)

    def _log(self, client: "Exchange", record: tuple[Any, ...]) -> None:
        assert self.access is not None
        line = client.head.line
        peer = client.transport.get_extra_info("peername")
        self.access.add(peer, line.method, line.path, Record._make(record))

    # --- with each table -----------------------------------------------------------------------------------------

    def forget(self, known: set[EndpointState], listed: set[TargetState], bindings: set[BindingState]) -> None:
        """Series of what left the table, and answers nobody any more, end."""
        for endpoint in [endpoint for endpoint in self.stats if endpoint not in known]:
            del self.stats[endpoint]
        for which in [which for which in self.bound if which[0] not in bindings or which[1] not in known]:
            del self.bound[which]
        of_all = [*self.stats.items(), *((endpoint, stats) for (_, endpoint), stats in self.bound.items())]
        for endpoint, stats in of_all:
            stats.forget([t for t in stats.replicas if t not in listed and t not in endpoint.leaving])

    def named(self) -> list[tuple[str, str, str, Stats]]:
        """Namespace, endpoint as clients named it, the deployment's own, and the counts, of all."""
        own = [(e.route.namespace, e.route.name, e.route.name, stats) for e, stats in self.stats.items()]
        made = [(b.spec.namespace, b.spec.name, e.route.name, stats) for (b, e), stats in self.bound.items()]
        return own + made

    def _of(self, binding: BindingState | None, endpoint: EndpointState) -> Stats:
        if binding is None:
            stats = self.stats.get(endpoint)
            if stats is None:
                stats = self.stats[endpoint] = Stats()
            return stats
        which = (binding, endpoint)
        return self.bound.get(which) or self.bound.setdefault(which, Stats())


def _count_revision(client: "Exchange", revision: RevisionState, outcome: str, now: float) -> None:
    traffic = revision.traffic
    traffic.statuses[client.status // 100] += 1
    if outcome == "cut":
        traffic.cut += 1
    elif outcome == "client_gone":
        traffic.client_gone += 1
    if revision.comparison is not None:
        compare(
            revision,
            outcome,
            client.status,
            sent_at=client.sent_at,
            first_at=client.first_at,
            ended_at=now,
            watch=client.watch,
        )
    client.watch = None
