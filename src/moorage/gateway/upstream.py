"""The side towards model servers: one object a connection.

Here: reading an answer's head, counting its body to the end, handing bytes on untouched. Not here: which replica is
asked (the routing core), what the client gets when it fails (`exchange`), whether it is sent again (`frontend`).
"""

import asyncio
import select
from typing import TYPE_CHECKING, Protocol, cast

from moorage.gateway.arrivals import Arriving
from moorage.gateway.fields import BadHead
from moorage.gateway.framing import ChunkCounter, FramingError
from moorage.gateway.heads import RequestHead, ResponseHead, ResponseReader
from moorage.gateway.pools import PEEK_AFTER_S, Pool

if TYPE_CHECKING:
    from moorage.gateway.exchange import Exchange
    from moorage.gateway.hub import Hub

_HEAD_BYTES_MAX = 256 * 1024
_INTERIMS_MAX = 64
"""1xx answers before the answer; a server that sends them without end keeps this process from all others."""


class Receiver(Protocol):
    """Whose request is on a connection: what it is told of the answer."""

    hub: "Hub"
    head: RequestHead

    @property
    def request_sent(self) -> bool:
        """Whether the whole request was passed on."""
        ...

    def unchunk(self, counter: ChunkCounter) -> None:
        """An answer in chunks begins."""
        ...

    def respond(self, head: ResponseHead, body: bytes) -> None:
        """The answer's head came, with a part of its body."""
        ...

    def forward(self, data: bytes) -> None:
        """More of the body came."""
        ...

    def response_done(self) -> None:
        """The answer ended as it should."""
        ...

    def switch(self, upstream: "UpstreamConnection", head: ResponseHead, rest: bytes) -> bool:
        """The replica switches to another protocol; False where that was not asked for."""
        ...

    def upstream_failed(self) -> None:
        """The replica closed or broke the protocol."""
        ...

    def pause_body(self) -> None:
        """The replica reads slower than the request comes."""
        ...

    def resume_body(self) -> None:
        """The replica has read what was waiting."""
        ...


class UpstreamConnection(Arriving):
    """One connection to a replica; serves one request at a time. An asyncio protocol, like `exchange.Exchange`."""

    __slots__ = (
        "_buffer",
        "_counter",
        "_in_head",
        "_interims",
        "_keep_alive",
        "_left",
        "_own",
        "_paused",
        "_responses",
        "client",
        "idle_since",
        "lost",
        "pool",
    )

    def __init__(self, pool: Pool, responses: ResponseReader) -> None:
        super().__init__()
        self.pool = pool
        self.client: Receiver | None = None
        self._own: Exchange | None = None
        """the same, until the first bytes of its answer, where it is told of an answer in one piece in one word"""
        self.idle_since = 0.0
        self.lost = False
        self._responses = responses
        self._buffer = b""
        self._in_head = True
        self._interims = 0
        self._counter: ChunkCounter | None = None
        self._left = 0
        self._keep_alive = False
        self._paused = False

    @property
    def was_stale(self) -> bool:
        """Whether it had been used before, and ended before a byte of the present answer."""
        return self.idle_since > 0 and self._in_head and not self._buffer

    # --- called by the pool and the client's side ----------------------------------------------------------------

    def usable(self, now: float, idle_s_max: float) -> bool:
        """Whether a request may be written to it: not closed, not about to be."""
        if self.lost or self.transport.is_closing():
            return False
        idle_s = now - self.idle_since
        if idle_s < PEEK_AFTER_S:
            return True
        return idle_s <= idle_s_max and not self._readable()

    def begin(self, client: Receiver, request: bytes, own: "Exchange | None" = None) -> None:
        """Send a request's head with what is there of its body.

        Args:
            own: the client, where it takes an answer in one piece by `answered`. The request is all there.
        """
        self.client = client
        self._own = own
        self.transport.write(request)

    def pause(self) -> None:
        """The client reads slower than the replica writes."""
        if not self._paused and not self.lost:
            self._paused = True
            self.transport.pause_reading()

    def unpause(self) -> None:
        """The client has read what was waiting."""
        if self._paused and not self.lost:
            self._paused = False
            self.transport.resume_reading()

    def abandon(self) -> None:
        """The client is gone: cancel at once, whatever the replica is doing."""
        self.client = self._own = None
        self.late = b""
        self.transport.abort()

    def discard(self) -> None:
        """Close an idle connection."""
        self.transport.close()

    # --- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer, or bytes that nobody asked for."""
        own = self._own
        if own is None:
            self._received(data)
        elif not self.late:
            own.hub.arrivals.add(self, data)
        else:
            # Together, lest what stands behind an answer be taken for the answer to the next request.
            late, self.late = self.late, b""
            self._begins(own, late + data)

    def arrived(self) -> None:
        """See `Arriving`."""
        data, self.late = self.late, b""
        own = self._own
        if data and own is not None:
            self._begins(own, data)

    def _begins(self, own: "Exchange", data: bytes) -> None:
        self._own = None
        end = data.find(b"\r\n\r\n") + 4
        if end == 3 or not self._is_whole(own, data, end):
            self._received(data)

    def _is_whole(self, own: "Exchange", data: bytes, end: int) -> bool:
        """An answer that came whole, with nothing after it, in few steps. False where it is another: of that nothing is
        known yet.
        """
        try:
            status, lines, length, keep_alive, _, events = self._responses.read(data[:end])
        except BadHead:
            return False
        if length != len(data) - end or status < 200 or events:
            return False
        # Free the connection before the next request may need it.
        self.client = None
        if self._paused:
            self.unpause()
        now = own.hub.time()
        pool = self.pool
        if keep_alive and not pool.retired:
            self.idle_since = now
            pool.idle.append(self)
        else:
            self.transport.close()
        own.answered(status, lines, pool.label, data[end:], now)
        return True

    def _received(self, data: bytes) -> None:
        client = self.client
        if client is None:
            self.transport.abort()
            return
        if self._in_head:
            self._head(client, data)
            return
        counter = self._counter
        if counter is None:
            end = self._consume(data)
        else:
            try:
                end = counter.feed(data)
            except FramingError:
                end = _BROKEN
        if end == _MORE:
            client.forward(data)
        elif end == _BROKEN:
            self._fail(client)
        else:
            client.forward(data if end == len(data) else data[:end])
            self._finish(client, clean=end == len(data))

    def eof_received(self) -> bool:
        """The replica says no more: that ends the connection."""
        self.lost = True  # before what waits is worked on, so that no request that this lets go gets this connection
        if self.late:
            self.arrived()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed by the replica, or by us."""
        self.lost = True
        if self.late:
            self.arrived()
        client = self.client
        if client is None:
            if self in self.pool.idle:
                self.pool.idle.remove(self)
            return
        self.client = self._own = None
        if not self._in_head and self._left == _UNTIL_CLOSE and exc is None:
            client.response_done()
        else:
            client.upstream_failed()

    def pause_writing(self) -> None:
        """The replica reads slower than the client writes."""
        if self.client is not None:
            self.client.pause_body()

    def resume_writing(self) -> None:
        """The replica has read what was waiting."""
        if self.client is not None:
            self.client.resume_body()

    # --- inside --------------------------------------------------------------------------------------------------

    def _head(self, client: Receiver, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        end = data.find(b"\r\n\r\n") + 4
        if end == 3:
            self._buffer = data
            if len(data) > _HEAD_BYTES_MAX:
                self._fail(client)
            return
        try:
            head = self._responses.read(data[:end])
        except BadHead:
            self._fail(client)
            return
        if client.head.line.method == "HEAD":
            head = head.bodiless()
        if head.status < 200:
            self._interim(client, head, data[end:])
        else:
            self._body_begins(client, head, data, end)

    def _interim(self, client: Receiver, head: ResponseHead, rest: bytes) -> None:
        """A 1xx answer is not the answer, unless it switches to what the client asked for."""
        self.idle_since = 0.0  # it answers, so it is not stale
        if head.status == 101:
            if not client.switch(self, head, rest):
                self._fail(client)
            return
        self._interims += 1
        if self._interims > _INTERIMS_MAX:
            self._fail(client)
        elif rest:
            self._head(client, rest)

    def _body_begins(self, client: Receiver, head: ResponseHead, data: bytes, start: int) -> None:
        self._in_head = False
        self._keep_alive = head.keep_alive
        length = self._left = head.length
        if length == -1:
            self._counter = ChunkCounter()
            client.unchunk(self._counter)
        else:
            self._counter = None
        end = self._consume(data, start)
        if end == _BROKEN:
            self._fail(client)
            return
        stop = len(data) if end == _MORE else end
        client.respond(head, data[start:stop])
        if end != _MORE:
            self._finish(client, clean=end == len(data))

    def _consume(self, data: bytes, start: int = 0) -> int:
        """Count body bytes: the index after the body's end, or _MORE, or _BROKEN."""
        counter = self._counter
        if counter is not None:
            try:
                return counter.feed(data, start)
            except FramingError:
                return _BROKEN
        left = self._left
        if left == _UNTIL_CLOSE:
            return _MORE
        have = len(data) - start
        if have < left:
            self._left = left - have
            return _MORE
        self._left = 0
        return start + left

    def _finish(self, client: Receiver, *, clean: bool) -> None:
        """The answer ended. Bytes after it make the connection unfit, since nobody asked for them."""
        self.client = None
        self._in_head = True
        self._interims = 0
        self.unpause()
        if clean and self._keep_alive and client.request_sent and not self.transport.is_closing():
            self.pool.give(self, client.hub.time())
        else:
            self.transport.close()
        client.response_done()

    def _fail(self, client: Receiver) -> None:
        self.client = self._own = None
        self.idle_since = 0.0
        self.transport.abort()
        client.upstream_failed()

    def _readable(self) -> bool:
        """Whether the kernel already has a close (or stray bytes) for us."""
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLRDHUP)
        return bool(poll.poll(0))


_MORE = -1
_BROKEN = -3
_UNTIL_CLOSE = -2
