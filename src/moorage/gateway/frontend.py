"""The request side of a client connection: one object a connection, reused for every request on it.

Here: reading a request from its head to its body's end, naming its endpoint, and acting on what the routing core
decides. Not here: the decision (the core, through `hub`), the answer (`exchange`, the base of this class), parsing
(`heads`, `framing`, `skim`).

A request passes these steps; `_phase` says how much of it was received, `target` and `upstream` where it is:

    1 head read        2 endpoint named (path, or `model` in the body)        3 decided: serve, hold or refuse
    4 connected        5 head and body sent, body as it comes        6 answer passed on        7 counted
"""

import asyncio
from math import inf
from typing import TYPE_CHECKING, cast

from moorage.decide.serving.routes import Decision, EndpointState, Hold, Refuse, Serve, TargetState
from moorage.gateway import answers
from moorage.gateway.exchange import BODY, CLOSED, IDLE, SENT, Exchange
from moorage.gateway.fields import BadHead
from moorage.gateway.framing import ChunkCounter, FramingError
from moorage.gateway.heads import ENDPOINT, MODEL, OWN, RequestHead
from moorage.gateway.mirror import Copy
from moorage.gateway.skim import ModelSkimmer, Skimmed, leading_model, names_twice

if TYPE_CHECKING:
    from moorage.gateway.hub import Hub
    from moorage.gateway.limits import Limits
    from moorage.gateway.upstream import UpstreamConnection

_PIPELINED_BYTES_MAX = 64 * 1024
_HELD_BODY_BYTES_MAX = 1024 * 1024
"""Of a body whose endpoint is known but whose replica is not; more is left in the kernel's buffers."""
_WHOLE_BODY_BYTES_MAX = 256 * 1024
"""A body up to this size is looked at whole, so that a second `model` is seen wherever it stands and however the body
was cut on its way. In a longer one the first `model` counts: it goes on while it still comes."""


class ClientConnection(Exchange):
    """One client connection."""

    __slots__ = ("_counter", "_forward", "_found", "_left", "_payload", "_pending", "_pending_bytes", "_skimmer")

    def __init__(self, hub: "Hub") -> None:
        super().__init__(hub)
        self._forward = b""
        self._found: str | Skimmed = Skimmed.MORE
        self._left = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._payload = bytearray()
        self._counter: ChunkCounter | None = None
        self._skimmer: ModelSkimmer | None = None

    @property
    def so_far(self) -> tuple[bytes, ...]:
        """The first line that goes on, and what there is of the body."""
        return (self._forward, *self._pending)

    # --- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self.transport = cast(asyncio.Transport, transport)
        self.hub.clients.add(self)
        self.deadline = self.hub.tick + self.hub.config.keepalive_s

    def data_received(self, data: bytes) -> None:
        """Bytes of a head, of a body, or of a request after this one."""
        phase = self._phase
        if phase == IDLE:
            self._take(self._buffer + data if self._buffer else data)
        elif phase == BODY:
            self._take_body(data)
        elif phase == SENT:
            self._buffer += data
            if len(self._buffer) > _PIPELINED_BYTES_MAX:
                self.pause_body()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: whatever runs for it ends now."""
        self._phase = CLOSED
        self.hub.left(self)
        if self.endpoint is None:
            return
        if self.held:
            self.hub.router.cancelled(self.endpoint, self)
        self._drop_upstream()
        self._count("client_gone")

    # --- 1 head --------------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        if data[0] < 32:
            data = data.lstrip(b"\r\n")
        hub = self.hub
        end = data.find(b"\r\n\r\n") + 4
        if end == 3:
            self._partial_head(data)
            return
        try:
            if end > hub.config.head_bytes_max:
                raise BadHead(431, "the request's head is too large")
            head = hub.requests.read(data[:end])
        except BadHead as error:
            self._refuse_head(error)
            return
        self._buffer = b""
        self.head = head
        self.request_id = head.request_id or hub.next_id()
        self.started = hub.time()
        self.deadline = inf
        self._dispatch(head, self._body_begins(head, data, end))

    def _partial_head(self, data: bytes) -> None:
        if self._half_closed:
            self._close()  # the rest of it will not come
            return
        if not self._buffer and data:
            # Set once a head: a client that sends a byte now and then does not prolong it.
            self.deadline = self.hub.tick + self.hub.config.head_timeout_s
        self._buffer = data
        if len(data) > self.hub.config.head_bytes_max:
            self._refuse_head(BadHead(431, "the request's head is too large"))

    def _refuse_head(self, error: BadHead) -> None:
        """Nothing after a bad head is read: where the next request begins is unknown."""
        self.request_id = self.hub.next_id()
        body = answers.error_body(error.status, error.code, error.message)
        self.transport.write(answers.document(error.status, body, request_id=self.request_id, close=True))
        self._linger()

    def _body_begins(self, head: RequestHead, data: bytes, start: int) -> bytes:
        """Set up the count of the body; the part of it that came with the head."""
        self._counter = self._skimmer = None
        self._pending.clear()
        self._pending_bytes = 0
        length = head.length
        have = len(data) - start
        if length < 0:
            self._counter = ChunkCounter()
            self._phase = BODY
        elif have >= length:
            self._phase = SENT
            if have == length:
                return data[start:] if length else b""
            self._buffer = data[start + length :]
            return data[start : start + length]
        else:
            self._left = length
            self._phase = BODY
        if self._phase == BODY:
            self.deadline = self.hub.tick + self.hub.config.body_timeout_s
        return data[start:]

    # --- 2 endpoint ----------------------------------------------------------------------------------------------

    def _dispatch(self, head: RequestHead, body: bytes) -> None:
        router = self.hub.router
        line = head.line
        if head.length > self.hub.config.body_bytes_max:
            self.refuse(Refuse(413, "body_too_large", "the request's body is too large for this gateway"))
        elif line.kind == MODEL:
            self._forward = line.forwards[0].line
            self._skim(body)
        elif line.kind == ENDPOINT:
            for forward in line.forwards:
                endpoint = router.find(forward.name)
                if endpoint is not None:
                    self._forward = forward.line
                    self._decide(endpoint, body)
                    return
            self.refuse(router.unknown(line.forwards[0].name))
        elif line.kind == OWN:
            status, content_type, document = self.hub.own.answer(head)
            self._own_answer(status, document, content_type, None)
        else:
            self.refuse(Refuse(404, "unknown_path", f"nothing is served at {line.path}"))

    def _skim(self, body: bytes) -> None:
        """Look for the model's name in what has come of the body."""
        if self._phase == SENT and self._counter is None:
            found = leading_model(body) or ModelSkimmer().feed(body, True)
            if len(body) > _WHOLE_BODY_BYTES_MAX or not self._refuse_twice(body):
                self._named(found, body)
            return
        if not self._gather(body):
            return
        found, whole = self._found, self._phase == SENT
        if found is Skimmed.MORE:
            if self._pending_bytes > self.hub.config.skim_bytes_max:
                message = "no top-level `model` within the body's first bytes; put it before the large fields"
                self.refuse(Refuse(413, "model_not_found_early", message))
            return
        if type(found) is str and self._pending_bytes <= _WHOLE_BODY_BYTES_MAX and not whole:
            return
        payload, self._payload, self._skimmer = self._payload, bytearray(), None
        if self._counter is not None:
            self._counter.payload = None
        if self._pending_bytes > _WHOLE_BODY_BYTES_MAX or not self._refuse_twice(payload):
            self._named(found, b"")

    def _gather(self, body: bytes) -> bool:
        """Keep a part of the body, and look on in it; False when it was refused."""
        if self._skimmer is None:
            self._skimmer = ModelSkimmer()
            self._found = Skimmed.MORE
            self._payload = bytearray()
            if self._counter is not None:
                self._counter.payload = []
            if self.head.expects_continue and not body:
                self.transport.write(answers.CONTINUE)
        part = self._cut_or_refuse(body)
        if part is None:
            return False
        self._pending.append(part)
        self._pending_bytes += len(part)
        if self._counter is None:
            self._payload += part
        elif self._counter.payload:
            self._payload += b"".join(self._counter.payload)
            self._counter.payload.clear()
        if self._found is Skimmed.MORE:
            self._found = self._skimmer.feed(self._payload, self._phase == SENT)
        return True

    def _refuse_twice(self, body: bytes | bytearray) -> bool:
        if not names_twice(body):
            return False
        self.refuse(Refuse(400, "model_twice", "the body has more than one top-level `model`; send it once"))
        return True

    def _named(self, found: str | Skimmed, body: bytes) -> None:
        router = self.hub.router
        if type(found) is not str:
            message = "the body must be a JSON object with a top-level string `model`, the endpoint's name"
            self.refuse(Refuse(400, "model_missing", message))
            return
        endpoint = router.find(found)
        if endpoint is None:
            self.refuse(router.unknown(found[:200]))
            return
        self._decide(endpoint, body)

    # --- 3 decision ----------------------------------------------------------------------------------------------

    def _decide(self, endpoint: EndpointState, body: bytes) -> None:
        self.endpoint = endpoint
        self.held_until = self.started + endpoint.route.limits.queue_timeout_s
        if body and not self._pending:
            part = body if self._phase == SENT and self._counter is None else self._cut_or_refuse(body)
            if part is None:
                return
            self._pending.append(part)
            self._pending_bytes = len(part)
        elif self.head.expects_continue and self._phase == BODY and not self._pending:
            self.transport.write(answers.CONTINUE)
        limits = self.hub.limits
        if not limits.active or self._within(limits, endpoint):
            self.act(self.hub.router.arrive(endpoint, self, self.started, self.head.revision))

    def _within(self, limits: "Limits", endpoint: EndpointState) -> bool:
        """Whether the limits let it go on; else it is refused, or waits for `admitted` or `refuse`."""
        account = limits.account(endpoint.route.namespace, "", "")
        refusal = limits.admit(self, account, self.head.length, self._pending)
        if refusal is not None:
            self.refuse(refusal)
            return False
        return self.permit is None or not self.permit.waiting

    def admitted(self) -> None:
        """It waited for a share of a limit, and has it."""
        assert self.endpoint is not None
        self.held = True  # until now
        self.act(self.hub.router.arrive(self.endpoint, self, self.hub.time(), self.head.revision))

    def act(self, decision: Decision) -> None:
        """Do what the routing core decided, now or when a held request is let go."""
        if type(decision) is Serve:
            self.sent_at = self.hub.time() if self.held else self.started
            self.held = False
            self.target = decision.target
            if decision.copy is not None:
                self._begin_copy(decision.copy)
            self.hub.serve(self, decision.target)
        elif type(decision) is Hold:
            self.held = True
            self.deadline = inf
            if decision.first:
                self.hub.demand()
        elif type(decision) is Refuse:
            self.held = False
            self.refuse(decision)

    def _begin_copy(self, target: TargetState) -> None:
        assert self.endpoint is not None
        self.copy = Copy(self, self.endpoint, target)
        if self._phase == SENT:
            self.copy.whole()

    # --- 4 and 5: sending ----------------------------------------------------------------------------------------

    def attach(self, upstream: "UpstreamConnection", stall_s: float) -> None:
        """A connection to the chosen replica: send what there is of the request.

        Args:
            stall_s: how long the replica may stay silent, before its answer and within it.
        """
        self.upstream = upstream
        self._stall_s = stall_s
        pending = self._pending
        upstream.begin(
            self, b"".join((self._forward, self.head.lines, b"X-Request-Id: ", self.request_id, b"\r\n\r\n", *pending))
        )
        pending.clear()
        self._pending_bytes = 0
        if self._writing_paused:
            upstream.pause()
        if self._phase == BODY:
            self.deadline = self.hub.tick + self.hub.config.body_timeout_s
            self.resume_body()
        else:
            self.deadline = self.hub.tick + stall_s

    def _take_body(self, data: bytes) -> None:
        self.deadline = self.hub.tick + self.hub.config.body_timeout_s
        if self._skimmer is not None:
            self._skim(data)
            return
        part = self._cut_or_refuse(data)
        if part is None:
            return
        if self.copy is not None:
            self.copy.add(part)
            if self._phase == SENT:
                self.copy.whole()
        if self.upstream is not None:
            self.upstream.transport.write(part)
            if self._phase == SENT:
                self.deadline = self.hub.tick + self._stall_s
            return
        self._pending.append(part)
        self._pending_bytes += len(part)
        if self._pending_bytes > _HELD_BODY_BYTES_MAX and self._phase == BODY:
            self.pause_body()
            self.deadline = inf  # it is ours now that the client cannot send more

    def _cut_or_refuse(self, data: bytes) -> bytes | None:
        """The part of `data` that belongs to this body; None when it was refused."""
        try:
            end = self._body_end(data)
        except FramingError as error:
            if self.first_at:
                self._drop_upstream()
                self._cut()
            else:
                self.refuse(Refuse(400, "bad_request", f"malformed chunked body: {error}"))
            return None
        if end < 0:
            return data
        self._phase = SENT
        if end == len(data):
            return data
        self._buffer = data[end:]
        return data[:end]

    def _body_end(self, data: bytes) -> int:
        if self._counter is not None:
            return self._counter.feed(data)
        if len(data) < self._left:
            self._left -= len(data)
            return -1
        end, self._left = self._left, 0
        return end

    def _next(self) -> None:
        """Go on with a request that came while the one before it was answered."""
        if self._phase == IDLE and self._buffer:
            data, self._buffer = self._buffer, b""
            self._take(data)
            if self._half_closed and self._phase == BODY:
                self.transport.close()  # the rest of it will not come

    def close_if_idle(self) -> None:
        """Close a connection on which no request runs."""
        if self._phase == IDLE and not self._buffer:
            self._end(close=True)
