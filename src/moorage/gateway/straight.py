"""The usual request, from its head to its replica in few steps.

Here: a request that came whole and names its endpoint in its body, by a name and a key that are known (`ways`). What
it leaves to others is all that it has not begun: `frontend` takes any request the long way, and `act` what the core
decides where no replica is free. Both ways say the same to replicas, clients and counts, which a property test holds
them to. Not here: the answer (`exchange`, which has short ways of its own).
"""

from math import inf
from typing import TYPE_CHECKING, cast

from moorage.decide.serving.routes import Decision, EndpointState, Refuse
from moorage.gateway.heads import RequestHead
from moorage.gateway.intake import Intake
from moorage.gateway.phases import SENT
from moorage.gateway.rewriting import renamed
from moorage.gateway.skim import sole_model
from moorage.gateway.toplevel import affinity_of
from moorage.gateway.ways import Way

if TYPE_CHECKING:
    from moorage.gateway.frontend import ClientConnection
    from moorage.gateway.hub import Hub
    from moorage.gateway.limits import Limits


class Straight(Intake):
    """One client connection, seen from a request that came whole."""

    __slots__ = ("_tail",)

    def __init__(self, hub: "Hub") -> None:
        super().__init__(hub)
        self._tail = b"X-Request-Id: "
        """header lines that each request on this connection gets from us, up to the request's id"""

    def _goes_straight(self, head: RequestHead, data: bytes, end: int) -> bool:
        """Begin a request whose head was read: all of it, or False where it is to go the long way.

        Args:
            end: where its body begins in what came.
        """
        hub = self.hub
        line, lines, length, self.keeps, _, request_id, revision, asks, _ = head
        self.request_id = request_id or hub.id_form % next(hub.id_numbers)
        self.started = hub.time()
        forward = line[5]  # `usual`, by place, which is quicker than by name
        if not forward or length != len(data) - end or length > hub.usual_bytes_max or revision is not None:
            return False
        credential = b""
        if asks is not None:
            endpoint, form, upgrade, credential = asks
            if endpoint or form or upgrade:
                return False
        body = data[end:]
        name = sole_model(body)
        if name is None:
            return False
        way = hub.ways.known.get((credential, name))
        if way is None or way.expiring is not None:
            way = hub.ways.of(credential, name)
            if way is None:
                return False
        self._phase = SENT
        self.tenant = way.tenant
        self.key_name = way.key_name
        straight = way.straight
        if straight is not None and not hub.limits.active:
            self._send(straight, forward, lines, body)
        else:
            self._by_way(way, name, head, body)
        return True

    def _by_way(self, way: Way, name: str, head: RequestHead, body: bytes) -> None:
        """The same where there is more to it: limits, another name, replicas that it keeps to."""
        endpoint = way.endpoint
        if endpoint is None:
            self.binding = binding = way.binding
            assert binding is not None
            drawn = binding.draw()
            if type(drawn) is Refuse:
                self.asked = name
                self.refuse(drawn)
                return
            assert isinstance(drawn, EndpointState)
            endpoint = drawn
        self.endpoint = endpoint
        if endpoint.called is not None and name not in endpoint.called:
            assert endpoint.route.model is not None
            head, body = renamed(head, body, endpoint.route.model)
            self.head = head
        rule = endpoint.route.limits.affinity
        affinity = None if rule == "none" else affinity_of(rule, head, body)
        limits = self.hub.limits
        if limits.active and not self._within(limits, endpoint, body):
            self.marked = True
            self._wait(endpoint, head.line.usual, affinity)  # where it was refused, that changes nothing
            return
        self._send(endpoint, head[0][5], head[1], body, affinity)

    def _send(
        self, endpoint: EndpointState, forward: bytes, lines: bytes, body: bytes, affinity: bytes | None = None
    ) -> None:
        """To a replica that is free, over a connection that is; where there is none of either, as `act` does it."""
        hub = self.hub
        now = self.started
        self.endpoint = endpoint
        target = hub.router.picks.at_once(endpoint, now, self.tenant, affinity)
        if target is not None:
            self.target = target
            self.sent_at = now
            connection = hub.idle(target, now) if endpoint.plain else None
            if connection is not None:
                self.upstream = connection
                self._stall_s = stall_s = endpoint.route.limits.first_byte_timeout_s
                self.deadline = hub.tick + stall_s
                parts = (forward, lines, self._tail, self.request_id, b"\r\n\r\n", body)
                connection.begin(self, b"".join(parts), self)
                if self._writing_paused:
                    connection.pause()
                return
        self.marked = True
        self._wait(endpoint, forward, affinity)
        self._pending = [body]
        self._pending_bytes = len(body)
        self.deadline = inf
        if target is not None:
            hub.serve(cast("ClientConnection", self), target)
        else:
            self.act(self._arrive(endpoint, now))

    def _wait(self, endpoint: EndpointState, forward: bytes, affinity: bytes | None) -> None:
        """What is to be known of it until it is sent."""
        self._counter = self._finder = None
        self._forward = forward
        self.affinity = affinity
        self.held_until = self.started + endpoint.route.limits.queue_timeout_s

    # --- of `frontend` -------------------------------------------------------------------------------------------

    def act(self, decision: Decision) -> None:
        """See there."""
        raise NotImplementedError

    def _arrive(self, endpoint: EndpointState, now: float) -> Decision:
        raise NotImplementedError

    def _within(self, limits: "Limits", endpoint: EndpointState, whole: bytes | None = None) -> bool:
        raise NotImplementedError
