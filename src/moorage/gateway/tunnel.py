"""An upgraded connection: bytes both ways, of whatever protocol the client and the replica agreed on.

Here: passing them on with back-pressure, the end of each way by itself, the end of both. Not here: the heads that began
it and its count (`exchange`), how long it may be idle (the sweep, by the client's deadline). A tunnel takes over the
two transports, so that requests that are none pay nothing for it; it counts as in flight until one side is gone.
"""

import asyncio
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from moorage.gateway.frontend import ClientConnection
    from moorage.gateway.upstream import UpstreamConnection

_FLUSH_S = 10.0
"""How long the side that stays may take to read what the other one left."""


def begin(client: "ClientConnection", upstream: "UpstreamConnection", ahead: bytes, rest: bytes) -> None:
    """Pass bytes on from now on.

    Args:
        ahead: what the client sent before it knew that it might.
        rest: what the replica sent with its head.
    """
    tunnel = _Tunnel(client)
    near = _Side(tunnel, client.transport, upstream.transport, is_client=True)
    far = _Side(tunnel, upstream.transport, client.transport, is_client=False)
    upstream.client = None
    client.transport.set_protocol(near)
    upstream.transport.set_protocol(far)
    upstream.transport.resume_reading()
    tunnel.touch()
    if rest:
        far.data_received(rest)
    if ahead:
        near.data_received(ahead)


class _Tunnel:
    """What the two sides share."""

    __slots__ = ("client", "ended", "idle_s", "over")

    def __init__(self, client: "ClientConnection") -> None:
        self.client = client
        self.idle_s = client.hub.config.tunnel_idle_s
        self.ended = 0
        self.over = False

    def touch(self) -> None:
        self.client.deadline = self.client.hub.tick + self.idle_s


class _Side(asyncio.Protocol):
    """One side's connection; hands on to the other's what it receives."""

    __slots__ = ("_is_client", "_other", "_own", "_tunnel")

    def __init__(self, tunnel: _Tunnel, own: asyncio.Transport, other: asyncio.Transport, *, is_client: bool) -> None:
        self._tunnel = tunnel
        self._own = own
        self._other = other
        self._is_client = is_client

    def data_received(self, data: bytes) -> None:
        """Bytes for the other side."""
        tunnel = self._tunnel
        tunnel.touch()
        if not self._is_client:
            tunnel.client.sent_bytes += len(data)
        self._other.write(data)

    def eof_received(self) -> bool:
        """This side says no more; the other one still may."""
        tunnel = self._tunnel
        tunnel.ended += 1
        if tunnel.ended == 2 or not self._other.can_write_eof():
            return False
        if not self._is_client:
            # A replica that says no more is seldom still listening: its client has this long to see that and to close.
            tunnel.idle_s = min(tunnel.idle_s, tunnel.client.hub.config.write_timeout_s)
            tunnel.touch()
        if not self._other.is_closing():
            self._other.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """This side is gone: so is the tunnel, once the other has read what is left."""
        tunnel, client = self._tunnel, self._tunnel.client
        if not tunnel.over:
            tunnel.over = True
            failed = "client_gone" if self._is_client else "cut"
            client.switched_off("ok" if exc is None else failed, gone=self._is_client)
            if not self._is_client:
                return
            self._other.close()
            client.hub.loop.call_later(_FLUSH_S, self._other.abort)
        elif self._is_client:
            client.switched_off("ok", gone=True)

    def pause_writing(self) -> None:
        """This side reads slower than the other one writes."""
        if not self._other.is_closing():
            self._other.pause_reading()

    def resume_writing(self) -> None:
        """It has read what was waiting."""
        if not self._other.is_closing():
            cast(asyncio.ReadTransport, self._other).resume_reading()
