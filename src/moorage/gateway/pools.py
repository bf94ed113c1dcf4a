"""Idle connections to model servers: a last-in-first-out pool for each replica.

Here: which of them a request gets, and when one is closed. Not here: what goes over them (`upstream`). Owned by `hub`.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from moorage.gateway.upstream import UpstreamConnection

PEEK_AFTER_S: Final = 0.25
"""A connection idle for longer is asked for a pending close before use; sooner, the loop would have told."""


class Pool:
    """Idle connections to one replica, and the header lines that name it in answers."""

    __slots__ = ("idle", "label", "retired")

    def __init__(self, label: bytes = b"") -> None:
        self.label = label
        self.idle: list[UpstreamConnection] = []
        self.retired = False

    def take(self, now: float, idle_s_max: float) -> "UpstreamConnection | None":
        """The connection used last, if it can still be used."""
        idle = self.idle
        while idle:
            connection = idle.pop()
            # first as `usable` says it of a connection that is in use all the time
            if now - connection.idle_since < PEEK_AFTER_S:
                if not connection.lost and not connection.transport.is_closing():
                    return connection
            elif connection.usable(now, idle_s_max):
                return connection
            connection.discard()
        return None

    def give(self, connection: "UpstreamConnection", now: float) -> None:
        """Put a connection back after a whole answer."""
        if self.retired:
            connection.discard()
            return
        connection.idle_since = now
        self.idle.append(connection)

    def prune(self, now: float, idle_s_max: float) -> None:
        """Close what was idle for too long; the oldest lie first."""
        keep_from = 0
        for connection in self.idle:
            if now - connection.idle_since <= idle_s_max:
                break
            keep_from += 1
            connection.discard()
        del self.idle[:keep_from]

    def retire(self) -> None:
        """The replica left the table: nothing is kept for it any more."""
        self.retired = True
        for connection in self.idle:
            connection.discard()
        self.idle.clear()
