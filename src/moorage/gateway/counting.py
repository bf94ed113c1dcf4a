"""What is counted and kept when a request ends: its endpoint's and its replica's counts, its tokens, its record.

Here: reading them off the client connection, once a request, and counting some requests together. Not here: what is
counted (`measures`, and the core's tally), the text of it (`exposition`). Owned by `hub`; `own` reads it.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from moorage.decide.serving.binding import BindingState
from moorage.decide.serving.routes import EndpointState, Generation, RevisionState, TargetState
from moorage.gateway.access_lines import address_of
from moorage.gateway.access_log import AccessLog
from moorage.gateway.heads import OWN, RequestLine
from moorage.gateway.measures import Record, Ring, Stats, running_record
from moorage.gateway.outcomes import Refused
from moorage.gateway.tokens import Stream, told_by_body
from moorage.gateway.watching import compare

if TYPE_CHECKING:
    from moorage.gateway.exchange import Exchange


_FRESH_MAX: Final = 64
"""Requests that ended and are counted later, together, which costs half of counting each by itself."""
_LATER_BYTES_MAX: Final = 16 * 1024
"""Of an answer's end that may wait for that in memory."""
_UNREAD: Final = RequestLine("", "", OWN, (), False)
"""Of a request whose head was refused."""


class Counts:
    """The counts of one gateway process. Whatever is read here is exact: what ended lately is counted before.

    Args:
        time: the clock, in seconds.
        records_max: how many ended requests are remembered.
    """

    __slots__ = ("_asked", "_bound", "_fresh", "_ring", "_stats", "_time", "access", "unrouted")

    def __init__(self, time: Callable[[], float], records_max: int) -> None:
        self.unrouted = 0
        self.access: AccessLog | None = None
        self._fresh: list[tuple[Any, ...]] = []
        self._asked: list[tuple[str, RequestLine]] = []
        """of the same requests, who asked and for what; only where that is logged"""
        self._ring = Ring(records_max)
        self._stats: dict[EndpointState, Stats] = {}
        self._bound: dict[tuple[BindingState, EndpointState], Stats] = {}
        self._time = time

    @property
    def ring(self) -> Ring:
        """The last requests that ended."""
        self.settle()
        return self._ring

    @property
    def stats(self) -> dict[EndpointState, Stats]:
        """Of requests that named a deployment's own endpoint."""
        self.settle()
        return self._stats

    @property
    def bound(self) -> dict[tuple[BindingState, EndpointState], Stats]:
        """Of those that named one which people made."""
        self.settle()
        return self._bound

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
        now: float,
    ) -> None:
        """A request ended whose endpoint was known. What its answer says of tokens is the client's from here on where
        it is asked for: of one with a key or a limit.
        """
        first_at = client.first_at
        stream = client.stream
        tail = client.tail if first_at else b""
        if stream is not None:
            first_at = stream.first_at or first_at
            client.tokens = stream.tokens()
            self._of(client.binding, endpoint).gaps_s += stream.last_at - stream.first_at
        elif tail and (client.tenant or client.permit is not None or len(tail) > _LATER_BYTES_MAX):
            client.tokens = told_by_body(tail, client.front)
            tail = b""
        if target is not None and target.revision.comparison is not None:
            _compare(client, target.revision, outcome, now)
        record = (
            client.request_id,
            client.binding,
            endpoint,
            target,
            client.hub.router.generation,
            client.started,
            client.sent_at,
            first_at,
            now,
            client.status,
            client.sent_bytes,
            outcome,
            client.tokens,
            tail,
            client.front,
            client.key_name,
            client.retried,
        )
        self._fresh.append(record)
        if self.access is not None:
            self._asked.append(_asked_by(client))
        if len(self._fresh) >= _FRESH_MAX:
            self.settle()

    def settle(self) -> None:
        """Count what ended since the last time."""
        fresh, self._fresh = self._fresh, []
        add = self._ring.add
        access, at = self.access, 0
        asked, self._asked = self._asked, []
        ahead_s = 0.0 if access is None or not fresh else access.now() - self._time()
        stats, name, named = Stats(), "", ""
        last: EndpointState | None = None
        last_binding: BindingState | None = None
        for (
            id_,
            binding,
            endpoint,
            target,
            generation,
            started,
            sent_at,
            first_at,
            now,
            status,
            size,
            outcome,
            tokens,
            tail,
            front,
            key,
            retried,
        ) in fresh:
            if endpoint is not last or binding is not last_binding:  # seldom: requests of one kind come together
                last, last_binding = endpoint, binding
                stats = self._of(binding, endpoint)
                name = endpoint.route.name
                named = name if binding is None else binding.spec.name
            if tail:
                tokens = told_by_body(tail, front)  # noqa: PLW2901 - there are none where it was not read
            queued_s = (now if target is None else sent_at) - started
            first_s = first_at - started if first_at else None
            total_s = now - started
            stats.count(target, status, outcome, queued_s, first_s, total_s)
            stats.bytes += size
            stats.retried += retried
            if tokens is not None:
                stats.count_tokens(tokens)
            number = 0 if generation is None else generation.number
            spec = None if target is None else target.spec
            times = (queued_s, first_s, total_s)
            record = (id_, named, name, number, spec, *times, status, size, outcome, tokens, key or None, retried)
            add(record)
            if access is not None:
                client, line = asked[at]
                at += 1
                access.add(ahead_s + now, client, line, record)

    def refused(self, client: "Exchange", outcome: str, generation: Generation | None) -> None:
        """A request ended before its endpoint was known."""
        self.settle()
        self.unrouted += 1
        taken_s = self._time() - client.started
        number = generation.number if generation else 0
        told = (client.status, client.sent_bytes, outcome, None, None, 0)
        record = (client.request_id, "", "", number, None, None, None, taken_s, *told)
        self._ring.add(record)
        if self.access is not None:
            self.access.add(self.access.now(), *_asked_by(client), record)

    def unread(
        self, client: "Exchange", status: int, error: str, generation: Generation | None, taken_s: float
    ) -> None:
        """A head was refused, or did not come in time: what it asked for is not known.

        Args:
            error: the code that the client was told.
            taken_s: for how long it was waited for.
        """
        self.settle()
        self.unrouted += 1
        number = generation.number if generation else 0
        told = (status, 0, Refused("refused", error), None, None, 0)
        record = (client.request_id, "", "", number, None, None, None, taken_s, *told)
        self._ring.add(record)
        if self.access is not None:
            self.access.add(self.access.now(), _address(client), _UNREAD, record)

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
            stats = self._stats.get(endpoint)
            if stats is None:
                stats = self._stats[endpoint] = Stats()
            return stats
        which = (binding, endpoint)
        return self._bound.get(which) or self._bound.setdefault(which, Stats())


def _asked_by(client: "Exchange") -> tuple[str, RequestLine]:
    """Its address and its request line."""
    return _address(client), client.head.line


def _address(client: "Exchange") -> str:
    """Of the client's side, asked for once a connection."""
    if not client.address:
        client.address = address_of(client.transport.get_extra_info("peername"))
    return client.address


def _compare(client: "Exchange", revision: RevisionState, outcome: str, now: float) -> None:
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
