"""The request side of a client connection: one object a connection, reused for every request on it.

Here: reading a request's head, acting on what the routing core decides, sending the request on. Not here: the decision
(the core, through `hub`), the body and the endpoint that it names (`intake`, the base of this class), the answer
(`exchange`, the base of that), parsing (`heads`, `framing`, `skim`).

A request passes these steps; `_phase` says how much of it was received, `target` and `upstream` where it is:

    1 head read        2 endpoint named (path, or `model` in the body)        3 decided: serve, hold or refuse
    4 connected        5 head and body sent, body as it comes        6 answer passed on        7 counted
"""

import asyncio
from math import inf
from typing import TYPE_CHECKING, Final, cast

from moorage.decide.serving.routes import Decision, EndpointState, Hold, Refuse, Serve, TargetState
from moorage.gateway import answers, comments
from moorage.gateway.fields import BadHead
from moorage.gateway.intake import WHOLE_BODY_BYTES_MAX
from moorage.gateway.mirror import Copy
from moorage.gateway.phases import BODY, CLOSED, IDLE, SENT
from moorage.gateway.straight import Straight
from moorage.gateway.toplevel import affinity_of

if TYPE_CHECKING:
    from moorage.gateway.limits import Limits
    from moorage.gateway.upstream import UpstreamConnection

_PIPELINED_BYTES_MAX = 64 * 1024
_TLS_HELLO: Final = b"\x16"
"""With which a client begins that means https."""
_HELD_BODY_BYTES_MAX = 1024 * 1024
"""Of a body whose endpoint is known but whose replica is not; more is left in the kernel's buffers."""
_IDEMPOTENT: Final = frozenset(("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"))
"""RFC 9110, 9.2.2: twice is as good as once."""


class ClientConnection(Straight):
    """One client connection."""

    __slots__ = ()

    # --- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self.transport = cast(asyncio.Transport, transport)
        self.hub.clients.add(self)
        if self.hub.config.forwarded:
            self._tail = answers.forwarded(self.transport) + self._tail
        self.deadline = self.hub.rest_until

    def data_received(self, data: bytes) -> None:
        """Bytes of a head, of a body, or of a request after this one."""
        if self._phase != IDLE:
            self._take_more(data)
        elif not self.late:
            self.hub.arrivals.add(self, data)
        else:
            late, self.late = self.late, b""
            self._take(late + data)

    def arrived(self) -> None:
        """See `Arriving`."""
        data, self.late = self.late, b""
        if data:
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Begin a request, unless the connection has ended meanwhile."""
        if self._phase != IDLE:
            self._take_more(data)
            return
        before = self._buffer
        if before:
            data = before + data
            self._buffer = b""
        if data[0] < 32:
            data = data.lstrip(b"\r\n")
        hub = self.hub
        end = data.find(b"\r\n\r\n") + 4
        if end == 3:
            self._partial_head(data, first=not before)
            return
        try:
            if end > hub.head_bytes_max:
                raise BadHead(431, "the request's head is too large")
            self.head = head = hub.requests.read(data[:end])
        except BadHead as error:
            self._refuse_head(error)
            return
        if not self._goes_straight(head, data, end):
            self.marked = True
            self.deadline = inf
            self._dispatch(head, self._body_begins(head, data, end))

    def _take_more(self, data: bytes) -> None:
        if self._phase == BODY:
            self._take_body(data)
        elif self._phase == SENT:
            self._buffer += data
            if len(self._buffer) > _PIPELINED_BYTES_MAX:
                self.pause_body()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: whatever runs for it ends now."""
        if self.late:
            self.arrived()
        self._phase = CLOSED
        self.hub.left(self)
        if self.endpoint is None:
            return
        if self.held:
            self.hub.router.cancelled(self.endpoint, self)
        self._drop_upstream()
        self._count("client_gone")

    # --- 1 head --------------------------------------------------------------------------------------------------

    def _partial_head(self, data: bytes, *, first: bool) -> None:
        if self._half_closed:
            self._close()  # the rest of it will not come
            return
        if data[:1] == _TLS_HELLO:  # its client waits for ours, and would until the head is late
            self._refuse_head(BadHead(400, "TLS came where this port speaks plain HTTP: use http://"))
            return
        if first and data:
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
        self.hub.counts.unread(self, error.status, error.code, 0.0)
        self._linger()

    # --- 3 decision ----------------------------------------------------------------------------------------------

    def _decide(self, endpoint: EndpointState, body: bytes) -> None:
        self.endpoint = endpoint
        self.tenant = self.key_name = ""
        if (self.hub.keys.active or self.head.asks is not None) and not self._let_in(endpoint):
            return
        self.held_until = self.started + endpoint.route.limits.queue_timeout_s
        waits = False
        if body and not self._pending:
            part = body if self._phase == SENT and self._counter is None else self._cut_or_refuse(body)
            if part is None:
                return
            self._pending.append(part)
            self._pending_bytes = len(part)
        elif self.head.expects_continue and self._phase == BODY and not self._pending:
            waits = True
        rule = endpoint.route.limits.affinity
        self.affinity = None if rule == "none" else affinity_of(rule, self.head, self._looked_at())
        limits = self.hub.limits
        if not limits.active or self._within(limits, endpoint):
            self.act(self._arrive(endpoint, self.started))
        if waits and self._phase == BODY:  # else it was refused, and need not send its body
            self.transport.write(answers.CONTINUE)

    def _let_in(self, endpoint: EndpointState) -> bool:
        """Whether its key, or that it shows none, lets it go on; else it is refused."""
        asks, binding = self.head.asks, self.binding
        shown = asks.credential if asks is not None and asks.credential else None
        name = endpoint.route.name if binding is None else binding.spec.name
        found = self.hub.keys.admit(shown, endpoint.route.namespace, name)
        if isinstance(found, Refuse):
            if found.status == 401:
                self.rate_lines = b"WWW-Authenticate: Bearer\r\n"
            self.refuse(found)
            return False
        self.tenant, self.key_name = ("", "") if found is None else (found.uid, found.name)
        return True

    def _arrive(self, endpoint: EndpointState, now: float) -> Decision:
        return self.hub.router.arrive(endpoint, self, now, self.head.revision, self.tenant, self.affinity, self.bound)

    @property
    def bound(self) -> str:
        """The name of the endpoint that people made by which it came, if it did."""
        return "" if self.binding is None else self.binding.public_id

    def _within(self, limits: "Limits", endpoint: EndpointState, whole: bytes | None = None) -> bool:
        """Whether the limits let it go on; else it is refused, or waits for `admitted` or `refuse`.

        Args:
            whole: its body, where that came whole and is not pending yet.
        """
        binding = self.binding
        account = limits.account(endpoint.route.namespace, self.tenant, "" if binding is None else binding.spec.uid)
        body = self._pending if whole is None else (whole,)
        refusal = limits.admit(self, account, self.head.length, body)
        if refusal is not None:
            self.refuse(refusal)
            return False
        permit = self.permit
        if permit is None or not permit.waiting:
            return True
        if whole is not None:
            self._pending = [whole]
            self._pending_bytes = len(whole)
        self.deadline = inf
        return False

    def admitted(self) -> None:
        """It waited for a share of a limit, and has it."""
        assert self.endpoint is not None
        self.held = True  # until now
        self.act(self._arrive(self.endpoint, self.hub.time()))

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
            if decision.displaced is not None:
                self.hub.carry_out((decision.displaced,))
            assert self.endpoint is not None
            every_s = self.endpoint.route.limits.hold_comments_s
            if every_s is not None and self.voice is None:
                comments.keep_alive(self, every_s, self._looked_at())
        elif type(decision) is Refuse:
            self.held = False
            self.refuse(decision)

    def _begin_copy(self, target: TargetState) -> None:
        assert self.endpoint is not None
        self.copy = Copy(self, self.endpoint, target)
        if self.head.asks is not None and self.head.asks.upgrade:
            self.copy.give_up()  # nobody would talk to it
        elif self._phase == SENT:
            self.copy.whole()

    # --- 4 and 5: sending ----------------------------------------------------------------------------------------

    def attach(self, upstream: "UpstreamConnection", stall_s: float) -> None:
        """A connection to the chosen replica: send what there is of the request. It may stay silent for `stall_s`."""
        self.upstream = upstream
        self._stall_s = stall_s
        pending = self._pending
        if self._payload:
            self._payload.clear()  # looked at, also by those that called this
        # What is large goes as it is: to join it would be one more copy.
        apart, joined = (pending, []) if self._pending_bytes > WHOLE_BODY_BYTES_MAX else ([], pending)
        upstream.begin(
            self if self.voice is None else self.voice,
            b"".join((self._forward, self.head.lines, self._tail, self.request_id, b"\r\n\r\n", *joined)),
            self if self.voice is None and self._phase == SENT and self.head.line.method != "HEAD" else None,
        )
        for part in apart:
            upstream.transport.write(part)
        endpoint = self.endpoint
        # most are a POST that is not repeated, which costs no call
        usual = self.head.line.method == "POST" and endpoint is not None and endpoint.route.limits.retry == "idempotent"
        if not usual and pending and self._phase == SENT and self._may_repeat():
            self._kept, self._pending = pending, []
        else:
            pending.clear()
        self._pending_bytes = 0
        if self._writing_paused:
            upstream.pause()
        if self._phase == BODY:
            self.deadline = self.hub.tick + self.hub.config.body_timeout_s
            self.resume_body()
        else:
            self.deadline = self.hub.tick + stall_s

    def _may_repeat(self) -> bool:
        """Whether the policy lets this request be sent once more."""
        assert self.endpoint is not None
        rule = self.endpoint.route.limits.retry
        return rule == "always" or (rule == "idempotent" and self.head.line.method in _IDEMPOTENT)

    def _again(self) -> bool:
        """Send a request once more, over a new connection, whose kept one ended before a byte of an answer."""
        endpoint, target = self.endpoint, self.target
        if self.retried or self._phase != SENT or endpoint is None or target is None or not self._may_repeat():
            return False
        if self.head.length:
            if not self._kept:
                return False  # it went on as it came
            self._pending, self._kept = self._kept, None
        self.retried = 1
        self.hub.connect(self, endpoint, target)
        return True

    def _take_body(self, data: bytes) -> None:
        self.deadline = self.hub.tick + self.hub.config.body_timeout_s
        if self._finder is not None:
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
        if self._phase == SENT or self._pending_bytes > _HELD_BODY_BYTES_MAX:
            self.deadline = inf  # it is ours now that the client has sent all, or cannot send more
            if self._phase == BODY:
                self.pause_body()

    # --- the next request --------------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Go on with a request that came while the one before it was answered."""
        if self._phase == IDLE and self._buffer:
            late, self.late = self.late, b""
            data, self._buffer = self._buffer + late, b""
            self._take(data)
            if self._half_closed and self._phase == BODY:
                self.transport.close()  # the rest of it will not come

    def close_if_idle(self) -> None:
        """Close a connection on which no request runs."""
        if self.late:
            self.arrived()
        if self._phase == IDLE and not self._buffer:
            self._end(close=True)
