"""The answer side of a client connection: what the client is sent, and how each request is ended and counted.

Here: passing an upstream's answer on, the gateway's own answers, failure before and after the first byte, the end of
a request. Not here: the client's side of the wire (`link`, the base), reading requests (`frontend`, which builds on
this), routing, HTTP parsing.
"""

import socket
import struct
from math import inf
from typing import TYPE_CHECKING

from moorage.decide.serving.binding import BindingState
from moorage.decide.serving.routes import OK, EndpointState, Refuse, TargetState
from moorage.gateway import answers
from moorage.gateway.framing import ChunkCounter
from moorage.gateway.heads import ResponseHead
from moorage.gateway.link import Link
from moorage.gateway.outcomes import SERVER_ERRORS, Refused
from moorage.gateway.phases import BODY, IDLE, LINGER, SENT, TUNNEL
from moorage.gateway.spending import Permit
from moorage.gateway.tokens import LATER_BYTES_MAX, Stream, Tokens, tail_of
from moorage.gateway.watching import StreamWatch, watch_of

if TYPE_CHECKING:
    from moorage.gateway.hub import Hub
    from moorage.gateway.mirror import Copy

_LINGER_S = 2.0
"""After an early answer: how long the rest of a body is read and dropped, so that the client sees the answer."""


class Exchange(Link):
    """One client connection and its request, seen from the answer."""

    __slots__ = (
        "_closes",
        "_kept",
        "_out_payload",
        "_unframed",
        "affinity",
        "asked",
        "binding",
        "copy",
        "endpoint",
        "front",
        "held",
        "held_until",
        "keeps",
        "key_name",
        "marked",
        "permit",
        "rate_lines",
        "request_id",
        "retried",
        "sent_at",
        "sent_bytes",
        "started",
        "status",
        "stream",
        "tail",
        "target",
        "tenant",
        "tokens",
        "watch",
    )

    def __init__(self, hub: "Hub") -> None:
        super().__init__(hub)
        self.keeps = True
        """whether the request leaves the connection open"""
        self.request_id = b""
        self.started = 0.0
        self.held_until = inf
        self.endpoint: EndpointState | None = None
        self.target: TargetState | None = None
        self.tenant = ""
        """whose request it is (a key's uid), from before its arrival at the core until its end"""
        self.key_name = ""
        self.copy: Copy | None = None
        self.watch: StreamWatch | None = None
        self.stream: Stream | None = None
        """an answer of events as it passes, for its tokens and gaps"""
        self.front = b""
        self.tail = b""
        """first part and last bytes of any other answer"""
        self.tokens: Tokens | None = None
        self.retried = 0
        self.permit: Permit | None = None
        self.rate_lines = b""
        """header lines that tell a limited client what is left"""
        self.binding: BindingState | None = None
        """the endpoint that people made by which the request came, if it did"""
        self.affinity: bytes | None = None
        """what it has in common with others of its kind, where the endpoint keeps those together"""
        self.asked = ""
        """the name that it asked for, once no endpoint goes by it"""
        self.held = False
        self.status = 0
        self.sent_bytes = 0
        self.sent_at = 0.0
        self.marked = False
        """whether the request left more on this connection than one does that went straight to its replica"""
        self._out_payload: list[bytes] | None = None
        self._closes = False
        self._unframed = False
        self._kept: list[bytes] | None = None
        """the body, while it may be sent once more"""

    @property
    def request_sent(self) -> bool:
        """Whether the whole request was passed on."""
        return self._phase == SENT

    # --- called by the upstream's side ---------------------------------------------------------------------------

    def unchunk(self, counter: ChunkCounter) -> None:
        """An answer in chunks begins; a client of HTTP/1.0 gets their data only."""
        if self.head.line.http10:
            self._out_payload = counter.payload = []

    def respond(self, head: ResponseHead, body: bytes) -> None:
        """The answer's head came, with a part of its body."""
        self.status = head.status
        self.first_at = self.hub.time()
        self.deadline = self.hub.tick + self._stall_s
        own = head.head
        if self._out_payload is not None:
            own, body = head.unchunked(), b"".join(self._out_payload)
            self._out_payload.clear()
        self._unframed = head.length == -2 or self._out_payload is not None
        self._measured = head.length >= 0
        self._closes = self._unframed or self._phase == BODY or self._last()
        target = self.target
        if target is not None and target.revision.comparison is not None:
            self.watch = watch_of(head)
            if self.watch is not None:
                self.watch.feed(body, self.first_at)
        if head.events:
            self.stream = self.hub.counts.watch_stream(self)
            if body:
                self.stream.feed(body)
        else:
            self.front = self.tail = body
        label = self.upstream.pool.label if self.upstream is not None else b""
        end = b"\r\nConnection: close\r\n\r\n" if self._closes else b"\r\n\r\n"
        self.sent_bytes = len(body)
        self.transport.write(b"".join((own, label, self.rate_lines, b"X-Request-Id: ", self.request_id, end, body)))

    def forward(self, data: bytes) -> None:
        """More of the body came: pass it on as it is."""
        payload = self._out_payload
        if payload is not None:
            data = b"".join(payload)
            payload.clear()
        if self.watch is not None:
            self.watch.feed(data, self.hub.time())
        if self.stream is not None:
            self.stream.feed(data)
        else:
            self.tail = tail_of(self.tail, data)
        self.sent_bytes += len(data)
        self.deadline = self.hub.tick + self._stall_s
        self.transport.write(data)

    def answered(self, status: int, lines: bytes, label: bytes, body: bytes, now: float) -> None:
        """The whole answer to a whole request came in one piece, no stream and not to HEAD: as `respond` and
        `response_done`, and where there is no more to it than that, as `Hub.finished` and `_end`, in few steps.

        Args:
            lines: its head, up to its last line.
            label: header lines that name the replica.
        """
        hub = self.hub
        # as `_last` says it
        closes = not self.keeps or hub.draining or (self._half_closed and not self._buffer)
        end = b"\r\nConnection: close\r\n\r\n" if closes else b"\r\n\r\n"
        self.transport.write(b"".join((lines, label, self.rate_lines, b"X-Request-Id: ", self.request_id, end, body)))
        self.upstream = None
        endpoint, target = self.endpoint, self.target
        assert endpoint is not None
        assert target is not None
        if (
            status >= SERVER_ERRORS
            or self.copy is not None
            or target.revision.comparison is not None
            or endpoint.leaving
            or len(body) > LATER_BYTES_MAX
        ):
            self.status = status
            self.first_at = now
            self.front = self.tail = body
            self.sent_bytes = len(body)
            self._count("ok", now)
            self._end(closes)
            return
        self.endpoint = self.target = None
        tenant = self.tenant
        permit = self.permit
        hub.counts.answered(self, endpoint, target, status, body, now)
        if tenant:
            hub.usage.ended(self, endpoint, "ok")
        if permit is not None:
            hub.limits.ended(self, permit, "ok", sent=True)
        releases = hub.router.done(endpoint, target, now, OK, self.sent_at, tenant)
        if releases:
            hub.carry_out(releases)
        if closes or self.marked or self._reading_paused:
            self._end(closes)
            return
        if tenant or permit is not None or self.binding is not None:
            self.status = 0
            self.tokens = self.binding = None
            self.rate_lines = b""
        self._phase = IDLE
        self.deadline = hub.rest_until
        if self._buffer:
            hub.loop.call_soon(self._next)

    def response_done(self) -> None:
        """The answer ended as it should."""
        self.upstream = None
        self._count("ok")
        self._end(self._closes or self._phase == BODY)

    def upstream_failed(self) -> None:
        """The replica closed or broke the protocol. Its request was sent, so it is not tried elsewhere."""
        upstream, self.upstream = self.upstream, None
        if not self.first_at:
            if upstream is not None and upstream.was_stale and self._again():
                return
            message = "the model server closed the connection before it answered; the request was not repeated"
            self.refuse(Refuse(502, "upstream_closed", message), "upstream_error")
            return
        self._cut()

    # --- ends ----------------------------------------------------------------------------------------------------

    def refuse(self, refusal: Refuse, outcome: str = "refused") -> None:
        """Answer an error, and stop whatever runs for the request."""
        body = answers.error_body(refusal.status, refusal.code, refusal.message)
        if self.held and self.endpoint is not None:  # not the core's doing: its body was late, malformed or too large
            self.held = False
            self.hub.router.cancelled(self.endpoint, self)
        self._drop_upstream()
        self.status = refusal.status
        self._count(Refused(outcome, refusal.code, self.asked))
        self.asked = ""
        if self.voice is not None:
            self.voice.refuse(body)
            return
        self._own_answer(refusal.status, body, "application/json", refusal.retry_after_s)

    def expire(self, now: float) -> None:
        """The current step took too long; called by the sweep."""
        phase = self._phase
        if phase == LINGER:
            self.transport.abort()
        elif phase == IDLE and not self._buffer:
            self._end(close=True)
        elif phase == IDLE:
            self.request_id = self.hub.next_id()
            body = answers.error_body(408, "request_timeout", "the request's head did not arrive in time")
            self.transport.write(answers.document(408, body, request_id=self.request_id, close=True))
            self.hub.counts.unread(self, 408, "request_timeout", self.hub.config.head_timeout_s)
            self._linger()
        elif self.first_at:
            self._drop_upstream()
            # a client that reads no more, and a tunnel in which nobody speaks, are no failures of the replica
            self._cut("client_gone" if self._writing_paused or phase == TUNNEL else "cut")
        elif phase == BODY:
            self.refuse(Refuse(408, "request_timeout", "the request's body did not arrive in time"))
        else:
            message = f"the model server did not answer within {self._stall_s:g} s"
            self.refuse(Refuse(504, "upstream_timeout", message), "upstream_error")

    def own_answer(self, status: int, content_type: str, document: bytes) -> None:
        """The answer of a path of the gateway's own, for which others may have been asked: a client may have left."""
        if self._phase in (BODY, SENT):
            self._own_answer(status, document, content_type, None)

    def _own_answer(self, status: int, body: bytes, content_type: str, retry_after_s: float | None) -> None:
        close = self._phase == BODY or self._last()
        self.transport.write(
            answers.document(
                status,
                body,
                content_type=content_type,
                request_id=self.request_id,
                retry_after_s=retry_after_s,
                lines=self.rate_lines,
                close=close,
                head_only=self.head.line.method == "HEAD",
            )
        )
        self._end(close)

    def _last(self) -> bool:
        """Whether nothing more is taken from this client after the present answer."""
        return not self.keeps or self.hub.draining or (self._half_closed and not self._buffer)

    def _cut(self, outcome: str = "cut") -> None:
        """End an answer that is not whole so that it cannot be taken for a whole one."""
        self._count(outcome)
        self._phase = LINGER
        if self._unframed:
            # A reset: here even an abort, which closes as usual when nothing is unread, would be a clean end.
            own = self.transport.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        else:
            self.transport.close()

    def _drop_upstream(self) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.abandon()

    def _count(self, outcome: str, now: float = 0.0) -> None:
        endpoint, target = self.endpoint, self.target
        self.endpoint = self.target = None
        if self.copy is not None:
            self.copy.give_up()
            self.copy = None
        if endpoint is None:
            self.hub.refused(self, outcome)
            return
        self.hub.finished(self, endpoint, target, outcome, now or self.hub.time())

    def _end(self, close: bool) -> None:
        """The request is over: wait for the next one, or close."""
        if close or (self._half_closed and not self._buffer):
            # more may come, and a close on bytes that nobody reads would take the answer's end from the client
            self._linger() if self._phase == BODY or self._buffer else self._close()
            return
        self._phase = IDLE
        self.deadline = self.hub.rest_until
        self.status = self.sent_bytes = 0
        self.first_at = 0.0
        self.rate_lines = b""
        self.front = self.tail = b""
        self.stream = self.tokens = self.binding = None
        self.retried = 0
        self._out_payload = self._kept = None
        self.marked = False
        if self._reading_paused:
            self.resume_body()
        if self._buffer:
            self.hub.loop.call_soon(self._next)

    def _again(self) -> bool:
        raise NotImplementedError

    def _close(self) -> None:
        self._phase = LINGER
        self.deadline = self.hub.tick + _LINGER_S
        self.transport.close()

    def _linger(self) -> None:
        """Say that nothing more comes, and drop what still arrives for a moment."""
        self._phase = LINGER
        self.deadline = self.hub.tick + _LINGER_S
        if self._reading_paused:
            self.resume_body()
        if self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()  # TLS has an end of its own, and drops what arrives until the client's
