"""Held requests that stream: their answer begins before there is one, with comments that keep the connection alive.

Here: when a held request gets its head and its comments, and how what then comes is told inside of the stream that has
begun: the replica's events, or a refusal as an event. Not here: why it is held (the routing core). Off unless
`gateway.hold_comments` is set, since a client then sees status 200 whatever becomes of its request.

A `HeldStream` stands where the client's connection stands else between replica and client (`upstream.Receiver`).
"""

import json
from typing import TYPE_CHECKING, Final

from moorage.gateway import answers
from moorage.gateway.framing import ChunkCounter
from moorage.gateway.heads import RequestHead, ResponseHead
from moorage.gateway.toplevel import asks_for_stream

if TYPE_CHECKING:
    from moorage.gateway.frontend import ClientConnection
    from moorage.gateway.hub import Hub
    from moorage.gateway.upstream import UpstreamConnection

_ERROR_BYTES_MAX: Final = 64 * 1024
_APART: Final = 64
"""A thousand that came in one moment must not be commented on in one: the first comment comes up to half a pause
sooner, by the place in the queue."""
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n"
)
_END: Final = b"0\r\n\r\n"
_WHY: Final = {
    "serve": "all replicas are busy",
    "asleep": "it is being woken",
    "starting": "no replica is ready yet",
    "hold": "paused for a moment",
}


def keep_alive(client: "ClientConnection", every_s: float, body: bytes | bytearray) -> None:
    """A request is held: comment on it from now on, if it asks for a stream.

    Args:
        body: what there is of it.
    """
    line = client.head.line
    endpoint = client.endpoint
    if endpoint is not None and not line.http10 and line.method == "POST" and asks_for_stream(body):
        sooner = (len(endpoint.waiting) - 1) % _APART / (2 * _APART)
        client.hub.loop.call_later(every_s * (1.0 - sooner), _comment, client, client.request_id, every_s)


def _comment(client: "ClientConnection", request_id: bytes, every_s: float) -> None:
    """Say that it still waits. Stops by itself: this is about one request, while it is held."""
    endpoint = client.endpoint
    if client.request_id is not request_id or not client.held or endpoint is None or client.transport.is_closing():
        return
    if client.voice is None:
        client.voice = HeldStream(client)
        client.transport.write(b"%bX-Request-Id: %b\r\n\r\n" % (_HEAD, request_id))
    why = _WHY.get(endpoint.route.mode, "held")
    client.transport.write(_chunk(f": waiting for {endpoint.public_id} ({why})\n\n".encode()))
    client.hub.loop.call_later(every_s, _comment, client, request_id, every_s)


class HeldStream:
    """One answer that began as a stream of comments.

    Args:
        client: whose; its head has been written.
    """

    __slots__ = ("_answer", "_client", "_payload", "_status", "head", "hub")

    def __init__(self, client: "ClientConnection") -> None:
        self.hub: Hub = client.hub
        self.head: RequestHead = client.head
        self._client = client
        self._payload: list[bytes] | None = None
        self._status = 0
        self._answer = bytearray()
        """of one that is no stream"""

    @property
    def request_sent(self) -> bool:
        """Whether the whole request was passed on."""
        return self._client.request_sent

    def unchunk(self, counter: ChunkCounter) -> None:
        """An answer in chunks begins; its data is what goes on, in chunks of ours."""
        self._payload = counter.payload = []

    def respond(self, head: ResponseHead, body: bytes) -> None:
        """The answer's head came, with a part of its body."""
        data = self._data(body)
        if head.status == 200 and head.events:
            self._client.goes_on(head)
            self._pass(data)
        else:
            self._status = head.status
            self._answer += data

    def forward(self, data: bytes) -> None:
        """More of the body came."""
        data = self._data(data)
        if not self._status:
            self._pass(data)
        elif len(self._answer) < _ERROR_BYTES_MAX:
            self._answer += data

    def response_done(self) -> None:
        """The answer ended as it should."""
        if not self._status:
            self._client.transport.write(_END)
            self._leave().response_done()
            return
        self._client.end_without_stream(self._status)
        self.refuse(_as_error(self._status, bytes(self._answer)))

    def upstream_failed(self) -> None:
        """The replica closed or broke the protocol."""
        self._status = 0
        self._answer.clear()
        self._payload = None
        self._client.upstream_failed()

    def switch(self, upstream: "UpstreamConnection", head: ResponseHead, rest: bytes) -> bool:
        """A stream of events has begun already."""
        return False

    def pause_body(self) -> None:
        """The replica reads slower than the request comes."""
        self._client.pause_body()

    def resume_body(self) -> None:
        """The replica has read what was waiting."""
        self._client.resume_body()

    def refuse(self, body: bytes) -> None:
        """Tell an error as an event, and end the stream."""
        self._client.transport.write(_chunk(b"data: %b\n\ndata: [DONE]\n\n" % body) + _END)
        self._leave().end_stream()

    def _data(self, data: bytes) -> bytes:
        payload = self._payload
        if payload is None:
            return data
        data = b"".join(payload)
        payload.clear()
        return data

    def _pass(self, data: bytes) -> None:
        if data:
            self._client.forward(_chunk(data))

    def _leave(self) -> "ClientConnection":
        self._client.voice = None
        return self._client


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _as_error(status: int, body: bytes) -> bytes:
    """The replica's own error in one line, or that it answered with no stream."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if status >= 400 and isinstance(told, dict) and "error" in told:
        return json.dumps(told).encode()
    message = f"the model server answered {status} and no stream of events"
    return answers.error_body(status if status >= 400 else 502, "no_stream", message)
