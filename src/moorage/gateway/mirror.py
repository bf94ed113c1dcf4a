"""Copies of requests for a revision that is only watched: sent beside the client's own, answered to nobody.

Here: gathering a request, sending it, counting how it ended. Not here: which requests are copied and how many at once
(the routing core). A copy costs its client nothing: it is sent after the client's own request, keeps back no byte of
it, and is dropped when the request is long or does not come whole.
"""

import asyncio
from math import inf
from typing import TYPE_CHECKING, Final

from moorage.decide.serving.routes import EndpointState, TargetState
from moorage.gateway.framing import ChunkCounter
from moorage.gateway.heads import RequestHead, ResponseHead
from moorage.gateway.watching import StreamWatch, compare, watch_of

if TYPE_CHECKING:
    from moorage.gateway.frontend import ClientConnection
    from moorage.gateway.hub import Hub
    from moorage.gateway.upstream import UpstreamConnection

COPY_BYTES_MAX = 256 * 1024
"""Of a request that is copied; with the bound on copies at once this bounds their memory."""

_GATHERING: Final = 0
_SENT: Final = 1
_OVER: Final = 2


class Copy:
    """One copy. Towards the replica it stands where a client would.

    Args:
        client: whose request it is; nothing of it is kept but its bytes.
        target: where it goes; it counts there as in flight.
    """

    __slots__ = (
        "_endpoint",
        "_first_at",
        "_parts",
        "_size",
        "_state",
        "_status",
        "_upstream",
        "_watch",
        "deadline",
        "head",
        "hub",
        "sent_at",
        "target",
    )

    def __init__(self, client: "ClientConnection", endpoint: EndpointState, target: TargetState) -> None:
        self.hub: Hub = client.hub
        self.head: RequestHead = client.head
        self.deadline = inf
        self._endpoint = endpoint
        self.target = target
        self._parts: list[bytes] = []
        self._size = 0
        self._state: int = _GATHERING
        self._status = 0
        self.sent_at = 0.0
        self._first_at = 0.0
        self._watch: StreamWatch | None = None
        self._upstream: UpstreamConnection | None = None
        line, *body = client.so_far
        self._gather((line, self.head.lines, b"X-Request-Id: ", client.request_id, b"-copy\r\n\r\n", *body))

    # --- gathering -----------------------------------------------------------------------------------------------

    def add(self, part: bytes) -> None:
        """More of the body."""
        if self._state == _GATHERING:
            self._gather((part,))

    def whole(self) -> None:
        """The request came whole: send it once the client's own was."""
        if self._state == _GATHERING:
            self._state = _SENT
            self.hub.loop.call_soon(self._send)

    def give_up(self) -> None:
        """The client's request ended; what did not come whole is not sent."""
        if self._state == _GATHERING:
            self._drop()

    def _gather(self, parts: tuple[bytes, ...]) -> None:
        self._parts.extend(parts)
        self._size += sum(map(len, parts))
        if self._size > COPY_BYTES_MAX:
            self._drop()

    def _drop(self) -> None:
        self.target.revision.traffic.copies_dropped += 1
        self._leave()

    # --- sending -------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        hub, target = self.hub, self.target
        hub.copies.add(self)
        target.revision.traffic.copies += 1
        self.sent_at = hub.time()
        pool = hub.pool(target)
        connection = None if target.failures else pool.take(self.sent_at, hub.config.upstream_idle_s)
        if connection is not None:
            self._begin(connection)
        else:
            hub.spawn(self._connect())

    async def _connect(self) -> None:
        hub, endpoint, target = self.hub, self._endpoint, self.target
        try:
            connection = await hub.dial(endpoint, target)
        except (OSError, TimeoutError) as error:
            hub.unreachable(endpoint, target, error)
            self._leave()
            return
        except asyncio.CancelledError:
            self._leave()
            raise
        hub.reached(endpoint, target)
        if self._state == _OVER:
            connection.pool.give(connection, hub.time())
        else:
            self._begin(connection)

    def _begin(self, connection: "UpstreamConnection") -> None:
        self._upstream = connection
        self.deadline = self.hub.tick + self._endpoint.route.limits.first_byte_timeout_s
        connection.begin(self, b"".join(self._parts))
        self._parts.clear()

    def expire(self) -> None:
        """It was silent for as long as a client's request may be; called by the sweep."""
        self._end("upstream_error")

    def abandon(self) -> None:
        """Its replica left the table, or the process ends: nobody wants to know any more."""
        self._end("refused")

    # --- where a client would stand (`upstream.Receiver`) ---------------------------------------------------------

    @property
    def request_sent(self) -> bool:
        """Always: a copy is sent at once or not at all."""
        return True

    def unchunk(self, counter: ChunkCounter) -> None:
        """Chunks are as good as any bytes."""

    def respond(self, head: ResponseHead, body: bytes) -> None:
        """The answer's head came, with a part of its body."""
        self._status = head.status
        self._first_at = self.hub.time()
        self._watch = watch_of(head)
        self.forward(body)

    def forward(self, data: bytes) -> None:
        """More of the body came, for nobody."""
        self.deadline = self.hub.tick + self._endpoint.route.limits.first_byte_timeout_s
        if self._watch is not None:
            self._watch.feed(data, self.hub.time())

    def response_done(self) -> None:
        """The answer ended as it should."""
        self._upstream = None
        self._end("ok")

    def upstream_failed(self) -> None:
        """The replica closed or broke the protocol."""
        self._upstream = None
        self._end("cut" if self._first_at else "upstream_error")

    def switch(self, upstream: "UpstreamConnection", head: ResponseHead, rest: bytes) -> bool:
        """A copy asks for nothing of the kind."""
        return False

    def pause_body(self) -> None:
        """The whole request lies in the connection's buffer already."""

    def resume_body(self) -> None:
        """As `pause_body`."""

    # --- the end -------------------------------------------------------------------------------------------------

    def _end(self, outcome: str) -> None:
        if self._state == _OVER:
            return
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abandon()
        compare(
            self.target.revision,
            outcome,
            self._status,
            sent_at=self.sent_at,
            first_at=self._first_at,
            ended_at=self.hub.time(),
            watch=self._watch,
        )
        self._leave()

    def _leave(self) -> None:
        if self._state == _OVER:
            return
        self._state = _OVER
        self._parts.clear()
        self.hub.copies.discard(self)
        self.hub.router.copy_ended(self._endpoint, self.target)
