"""The sockets at which a gateway's worker processes accept: bound by the master, inherited by the workers.

Here: binding, and which sockets a worker gets. Not here: accepting, TLS. Called by `master`. Standard library only.

Each worker has a socket of its own at the same address (SO_REUSEPORT), and the kernel spreads connections over them.
The master keeps all of them open, so that what arrives while a worker is replaced waits in its socket's queue.
"""

import errno
import socket
import sys
import time
from collections.abc import Sequence

BACKLOG = 4096
"""A burst of a thousand connections at a cold endpoint must not meet a full accept queue."""
TAKEN_S = 1.0
"""How long an address that is taken is tried: workers whose master was killed leave it in moments."""
_STEP_S = 0.05
_SPREADS = sys.platform.startswith("linux")
"""Elsewhere the kernel does not spread connections over sockets of one address: there all workers share one."""


class Listeners:
    """The listening sockets of one address.

    Args:
        host, port: where; port 0 takes a free one.
        count: of worker processes.
        handed: those of this address that are open already; none: they are bound now.

    Raises:
        OSError: it cannot be listened on.
    """

    def __init__(self, host: str, port: int, count: int, handed: Sequence[socket.socket] = ()) -> None:
        self.asked = (host, port)
        self._groups: list[list[socket.socket]] = _groups_of(handed)
        try:
            for family, place in () if handed else _places(host, port):
                self._groups.append([_first(family, place)])
            self.grow(count)
        except OSError:
            self.close()
            raise

    @property
    def address(self) -> str:
        """`host:port` of the first, as the system names it."""
        host, port = self._groups[0][0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def grow(self, count: int) -> None:
        """Have at least as many as there are workers. None is ever closed alone: connections may wait in its queue."""
        for group in self._groups:
            while _SPREADS and len(group) < count:
                group.append(_another(group[0]))
            for each in group:
                each.listen(BACKLOG)

    def of(self, slot: int, many: int) -> list[socket.socket]:
        """Those of one worker.

        Args:
            slot: which worker, from 0.
            many: how many there are.
        """
        return [
            each
            for group in self._groups
            for number, each in enumerate(group)
            if len(group) == 1 or number % many == slot
        ]

    def others(self, slot: int, many: int) -> list[socket.socket]:
        """Those of all other workers: it accepts there while one of them is gone."""
        own = self.of(slot, many)
        return [each for group in self._groups for each in group if each not in own]

    def close(self) -> None:
        """Accept no more here; workers have their own hold on the sockets."""
        for group in self._groups:
            for each in group:
                each.close()
        self._groups.clear()


def _groups_of(handed: Sequence[socket.socket]) -> list[list[socket.socket]]:
    groups: dict[object, list[socket.socket]] = {}
    for each in handed:
        groups.setdefault((each.family, each.getsockname()), []).append(each)
    return list(groups.values())


def _places(host: str, port: int) -> Sequence[tuple[int, tuple[str, int]]]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, place) for family, _, _, _, place in found))  # type: ignore[misc]  # of TCP


def _first(family: int, place: tuple[str, int]) -> socket.socket:
    """Bound while it shares the address with nobody, so that a second gateway here is told that it is taken."""
    until = time.monotonic() + TAKEN_S
    while True:
        made = _socket(family)
        try:
            made.bind(place)
            made.listen(BACKLOG)
        except OSError as error:
            made.close()
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
            time.sleep(_STEP_S)  # no event tells that an address is free
            continue
        if _SPREADS:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        return made


def _another(first: socket.socket) -> socket.socket:
    made = _socket(first.family)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(first.getsockname())
    except OSError:
        made.close()
        raise
    return made


def _socket(family: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.setblocking(False)
    return made
