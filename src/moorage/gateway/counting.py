"""What is counted and kept when a request ends: its endpoint's and its replica's counts, its tokens, its record.

Here: reading them off the client connection, once a request, and counting some requests together: those that ended
alike are counted as one, in columns. Not here: what is counted (`measures`, and the core's tally), what is kept of each
(`records`), the text of it (`exposition`, `access_lines`). Owned by `hub`; `own` reads it.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import sub
from typing import TYPE_CHECKING, Any, Final

from moorage.decide.serving.binding import BindingState
from moorage.decide.serving.routes import EndpointState, Generation, RevisionState, TargetState
from moorage.gateway.access_lines import address_of
from moorage.gateway.access_log import AccessLog
from moorage.gateway.heads import OWN, RequestLine
from moorage.gateway.measures import Stats
from moorage.gateway.outcomes import Refused
from moorage.gateway.records import Batch, Record, Ring, alike, picked, running_record
from moorage.gateway.tokens import LATER_BYTES_MAX, Stream, Tokens, columns_of, told_by_body
from moorage.gateway.watching import compare

if TYPE_CHECKING:
    from moorage.gateway.exchange import Exchange


_FRESH_MAX: Final = 128
"""Requests that ended and are counted later, together, which costs a tenth of counting each by itself."""
_ALIKE: Final = 5
"""So many things come first of what is noted of a request, in which it may be like others."""
_ENDED_AT: Final = 9
_UNREAD: Final = RequestLine("", "", OWN, (), False)
"""Of a request whose head was refused."""


class Counts:
    """The counts of one gateway process. Whatever is read here is exact: what ended lately is counted before.

    Args:
        time: the clock, in seconds.
        records_max: how many ended requests are remembered.
    """

    __slots__ = (
        "_asked",
        "_bound",
        "_fresh",
        "_number",
        "_ring",
        "_stats",
        "_time",
        "access",
        "generation",
        "unrouted",
    )

    def __init__(self, time: Callable[[], float], records_max: int) -> None:
        self.unrouted = 0
        self.access: AccessLog | None = None
        self.generation: Generation | None = None
        """of the table by which requests end now: what ended before is settled when one is applied"""
        self._fresh: list[tuple[Any, ...]] = []
        """what is noted of requests that ended and are not counted yet"""
        self._number = 0
        """of the next request that is counted"""
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
        fresh = self._fresh
        first_at = client.first_at
        tail = client.tail
        stream = client.stream
        if stream is not None:
            first_at = stream.first_at or first_at
            client.tokens = stream.tokens()
            self._of(client.binding, endpoint).gaps_s += stream.last_at - stream.first_at
        elif tail and (client.tenant or client.permit is not None or len(tail) > LATER_BYTES_MAX):
            client.tokens = told_by_body(tail, client.front)
            tail = b""
        if target is not None and target.revision.comparison is not None:
            _compare(client, target.revision, outcome, now)
        if self.access is not None:
            self._asked.append((client.address or _address(client), client.head.line))
        fresh.append(
            (
                client.binding,
                endpoint,
                target,
                client.status,
                outcome,
                client.request_id,
                client.started,
                client.sent_at,
                first_at,
                now,
                client.sent_bytes,
                client.tokens,
                tail,
                client.front,
                client.key_name,
                client.retried,
            )
        )
        if len(fresh) >= _FRESH_MAX:
            self.settle()

    def answered(  # noqa: PLR0917 - by place, which is quicker than by name
        self,
        client: "Exchange",
        endpoint: EndpointState,
        target: TargetState,
        status: int,
        body: bytes,
        now: float,
    ) -> None:
        """A request was answered whole, in one piece that may wait: as `ended`, with outcome `ok`, in few steps. Where
        something is asked of the client, its status and tokens are there.
        """
        tokens = None
        tail = body
        if client.tenant or client.permit is not None:
            client.status = status
            client.tokens = tokens = told_by_body(body, body)
            tail = b""
        if self.access is not None:
            self._asked.append((client.address or _address(client), client.head.line))
        fresh = self._fresh
        fresh.append(
            (
                client.binding,
                endpoint,
                target,
                status,
                "ok",
                client.request_id,
                client.started,
                client.sent_at,
                now,
                now,
                len(body),
                tokens,
                tail,
                tail,
                client.key_name,
                client.retried,
            )
        )
        if len(fresh) >= _FRESH_MAX:
            self.settle()

    def refused(self, client: "Exchange", outcome: str) -> None:
        """A request ended before its endpoint was known."""
        now = self._time()
        self._unrouted(client, client.head.line, client.status, outcome, (client.started, now))

    def unread(self, client: "Exchange", status: int, error: str, taken_s: float) -> None:
        """A head was refused, or did not come in time: what it asked for is not known.

        Args:
            error: the code that the client was told.
            taken_s: for how long it was waited for.
        """
        now = self._time()
        self._unrouted(client, _UNREAD, status, Refused("refused", error), (now - taken_s, now))

    def _unrouted(
        self, client: "Exchange", line: RequestLine, status: int, outcome: str, times: tuple[float, float]
    ) -> None:
        self.unrouted += 1
        if self.access is not None:
            self._asked.append((client.address or _address(client), line))
        alike = (None, None, None, status, outcome)
        began, ended = times
        told = (client.request_id, began, 0.0, 0.0, ended, client.sent_bytes)
        self._fresh.append((*alike, *told, None, b"", b"", "", 0))
        if len(self._fresh) >= _FRESH_MAX:
            self.settle()

    def settle(self) -> None:
        """Count what ended since the last time."""
        fresh = self._fresh
        if not fresh:
            return
        self._fresh = []
        asked, self._asked = self._asked, []
        begin, self._number = self._number, self._number + len(fresh)
        columns = list(zip(*fresh, strict=True))
        groups = alike(columns[:_ALIKE])
        if groups:
            batches = [
                self._counted(list(zip(*picked(fresh, places), strict=True)), [begin + at for at in places])
                for places in groups
            ]
        else:
            batches = [self._counted(columns, range(begin, self._number))]
        for batch in batches:
            self._ring.keep(batch)
        if self.access is not None and self.access.takes(len(fresh)):
            ahead_s = self.access.now() - self._time()
            self.access.add(batches, [int(1000.0 * (ahead_s + now)) for now in columns[_ENDED_AT]], asked)

    def _counted(self, columns: Sequence[tuple[Any, ...]], numbers: Sequence[int]) -> Batch:
        """Count requests that ended alike."""
        bindings, endpoints, targets, statuses, outcomes, ids, begun, sent, first, now, *rest = columns
        sizes, tokens, tails, fronts, keys, retried = rest
        binding, endpoint, target, status = bindings[0], endpoints[0], targets[0], statuses[0]
        total_s = list(map(sub, now, begun))
        queued_s = total_s if target is None else list(map(sub, sent, begun))
        if first == now:  # each answer came in one piece
            first_s: Sequence[float | None] = total_s
        else:
            first_s = [at - since if at else None for at, since in zip(first, begun, strict=True)]
        read: Sequence[Tokens | None] = tokens
        if all(tails):
            read = list(map(told_by_body, tails, fronts))
        elif any(tails):
            each = zip(tokens, tails, fronts, strict=True)
            read = [told_by_body(tail, front) if tail else told for told, tail, front in each]
        told = columns_of(read)
        name = named = ""
        if endpoint is not None:
            name = endpoint.route.name
            named = name if binding is None else binding.spec.name
            stats = self._of(binding, endpoint)
            stats.count(target, status, outcomes[0], queued_s, first_s, total_s)
            stats.count_tokens(read, told)
            stats.bytes += sum(sizes)
            stats.retried += sum(retried)
        number = 0 if self.generation is None else self.generation.number
        spec = None if target is None else target.spec
        times = (None if endpoint is None else queued_s, first_s, total_s)
        return Batch(
            numbers, named, name, number, spec, status, ids, *times, sizes, outcomes, read, told, keys, retried
        )

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


def _address(client: "Exchange") -> str:
    """Its address, asked for once a connection."""
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
