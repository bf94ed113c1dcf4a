"""The client's side of a connection: how fast it reads and sends, and whether one that says no more is still there.

Here: back-pressure in both directions, the end of a client's bytes. Not here: requests and answers (`exchange`, which
builds on this).
"""

import select
from math import inf
from typing import TYPE_CHECKING, Final

from moorage.gateway import answers
from moorage.gateway.arrivals import Arriving
from moorage.gateway.heads import RequestHead
from moorage.gateway.phases import IDLE, SENT

if TYPE_CHECKING:
    from moorage.gateway.comments import HeldStream
    from moorage.gateway.hub import Hub
    from moorage.gateway.upstream import UpstreamConnection

_PEER_LOOK_S: Final = 0.02
_PEER_LOOK_S_MAX: Final = 1.0


class Link(Arriving):
    """One client connection, seen from its transport.

    With what builds on it an asyncio protocol, without the name: a compiled class is quicker where its bases are too.
    """

    __slots__ = (
        "_buffer",
        "_half_closed",
        "_measured",
        "_phase",
        "_reading_paused",
        "_stall_s",
        "_writing_paused",
        "address",
        "deadline",
        "first_at",
        "head",
        "hub",
        "upstream",
        "voice",
    )

    def __init__(self, hub: "Hub") -> None:
        super().__init__()
        self.hub = hub
        self.head: RequestHead
        self.upstream: UpstreamConnection | None = None
        self.voice: HeldStream | None = None
        """while the answer is a stream that began before there was one"""
        self.address = ""
        """as the access log tells it; empty until that asks"""
        self.deadline = inf
        self.first_at = 0.0
        """when the answer began; 0: not yet"""
        self._phase: int = IDLE
        self._buffer = b""
        self._reading_paused = False
        self._writing_paused = False
        self._half_closed = False
        self._measured = False
        """whether the answer's end is known by its length"""
        self._stall_s = inf

    # --- a client that says no more ------------------------------------------------------------------------------

    def eof_received(self) -> bool:
        """The client sends no more. Whether the connection stays open for its answer.

        A client that only shut its side down cannot be told from one that left until something is written to it: the
        one reads it, the other's kernel answers with a reset. So a `100 Continue`, which every client of HTTP/1.1 must
        bear, is written while there is no answer yet. In the middle of a stream nothing can be written, and there a
        client that sends no more is taken for one that left, whose replica must not go on for nobody.
        """
        if self.late:
            self.arrived()
        if self._phase == IDLE and self._buffer:
            self._next()  # which came before the end
        if self._half_closed:
            return True
        if not self.transport.can_write_eof():
            return False  # nobody half-closes TLS
        if self._phase != SENT or (self.first_at and not self._measured):
            return False
        self._half_closed = True
        if not self.first_at and not self.head.line.http10 and self.voice is None:
            self.transport.write(answers.CONTINUE)
        self.hub.loop.call_later(_PEER_LOOK_S, self._look_for_peer, _PEER_LOOK_S)
        return True

    def _look_for_peer(self, waited_s: float) -> None:
        """After the end of its bytes: whether a client has left, which reading cannot tell any more."""
        if (self._phase != SENT and not self._buffer) or self.transport.is_closing():
            return
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), 0)
        if poll.poll(0):
            self.transport.abort()
            return
        wait_s = min(2 * waited_s, _PEER_LOOK_S_MAX)
        self.hub.loop.call_later(wait_s, self._look_for_peer, wait_s)

    def _next(self) -> None:
        """Go on with a request that came while the one before it was answered."""
        raise NotImplementedError

    # --- pressure ------------------------------------------------------------------------------------------------

    def pause_body(self) -> None:
        """Read no more from the client until `resume_body`."""
        if not self._reading_paused and not self.transport.is_closing():
            self._reading_paused = True
            self.transport.pause_reading()

    def resume_body(self) -> None:
        """Read from the client again."""
        if self._reading_paused and not self.transport.is_closing():
            self._reading_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """The client reads slower than the replica writes."""
        self._writing_paused = True
        if self.upstream is not None:
            self.upstream.pause()
            if self.first_at:
                self.deadline = self.hub.tick + self.hub.config.write_timeout_s

    def resume_writing(self) -> None:
        """The client has read what was waiting."""
        self._writing_paused = False
        if self.upstream is not None:
            self.upstream.unpause()
            if self.first_at:
                self.deadline = self.hub.tick + self._stall_s
