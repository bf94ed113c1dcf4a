"""Answers of other kinds: a tunnel in place of one, and a stream that began before there was one.

Here: the client's side of both, from beginning to end. Not here: the tunnel's bytes (`tunnel`), the comments
(`comments`), ordinary answers (`exchange`, the base). `intake` builds on this.
"""

from typing import TYPE_CHECKING, cast

from moorage.gateway import tunnel
from moorage.gateway.exchange import Exchange
from moorage.gateway.heads import ResponseHead
from moorage.gateway.phases import CLOSED, SENT, TUNNEL
from moorage.gateway.watching import watch_of

if TYPE_CHECKING:
    from moorage.gateway.frontend import ClientConnection
    from moorage.gateway.upstream import UpstreamConnection


class Switching(Exchange):
    """One client connection, seen from an answer that is no ordinary one."""

    __slots__ = ()

    def switch(self, upstream: "UpstreamConnection", head: ResponseHead, rest: bytes) -> bool:
        """The replica switches to another protocol (101); False where nobody asked it to.

        Args:
            rest: what came after its head.
        """
        asks = self.head.asks
        if asks is None or not asks.upgrade or head.upgrade != asks.upgrade or self._phase != SENT:
            return False
        self.status = head.status
        self.first_at = self.hub.time()
        self._phase = TUNNEL
        self._measured = False
        ahead, self._buffer = self._buffer, b""
        own = b"Connection: Upgrade\r\nUpgrade: %b\r\n\r\n" % asks.upgrade
        lines = (head.head, upstream.pool.label, self.rate_lines, b"X-Request-Id: ", self.request_id, b"\r\n", own)
        self.transport.write(b"".join(lines))
        self.resume_body()
        tunnel.begin(cast("ClientConnection", self), upstream, ahead, rest)
        return True

    def switched_off(self, outcome: str, *, gone: bool) -> None:
        """The tunnel ended.

        Args:
            gone: the client's connection is closed; else it closes once the client has read what is left.
        """
        if self.endpoint is not None:
            self._count(outcome)
        self.upstream = None
        if gone:
            self._phase = CLOSED
            self.hub.left(cast("ClientConnection", self))
        else:
            self._close()

    # --- an answer that began before there was one (`comments`) ----------------------------------------------------

    def goes_on(self, head: ResponseHead) -> None:
        """The stream that has begun gets its events; each is told to `forward`."""
        self.status = head.status
        self.first_at = self.hub.time()
        self._measured = self._unframed = False
        self._closes = True
        target = self.target
        if target is not None and target.revision.comparison is not None:
            self.watch = watch_of(head)
        self.stream = self.hub.counts.watch_stream(self)

    def end_without_stream(self, status: int) -> None:
        """The replica's answer ended and is no stream: count it by its own status."""
        self.upstream = None
        self.status = status
        self.first_at = self.hub.time()
        self._count("ok")

    def end_stream(self) -> None:
        """What is to be said is said."""
        self._end(close=True)
