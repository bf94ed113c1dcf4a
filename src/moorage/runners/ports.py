"""The pool of ports that a machine gives to its model servers.

A port is given out only when nobody at all listens on it (checked by binding), and is held by its holder until given
back: a crash and restart of the same worker keeps its port. Called by the agent and the runner library.
"""

import socket
from collections.abc import Callable, Iterable

from moorage.domain.errors import PortUnavailable

DEFAULT_PORTS = range(18000, 18032)


class PortPool:
    """Leases over a range of ports.

    Args:
        ports: the range.
        free: tells whether nobody uses a port now; a real bind by default, a fact of the test in tests.
    """

    def __init__(self, ports: Iterable[int] = DEFAULT_PORTS, free: Callable[[int], bool] | None = None) -> None:
        self._ports = tuple(ports)
        self._free = free or port_is_free
        self._held: dict[int, str] = {}
        self._next = 0

    def lease(self, holder: str) -> int:
        """A free port for `holder`; the one it holds already, if it does.

        Ports are given out round robin, so that one just given back rests for a while: a client with an old address
        then meets a refused connection and not another model.

        Raises:
            PortUnavailable: every port of the pool is held or used by a stranger; says which is which.
        """
        for port, who in self._held.items():
            if who == holder:
                return port
        for step in range(len(self._ports)):
            index = (self._next + step) % len(self._ports)
            port = self._ports[index]
            if port not in self._held and self._free(port):
                self._next = index + 1
                self._held[port] = holder
                return port
        strangers = [p for p in self._ports if p not in self._held]
        raise PortUnavailable(
            f"no free port among {len(self._ports)}: {len(self._held)} held by workers here, "
            f"{len(strangers)} used by other programs",
            remedy="widen the pool (MOORAGE_AGENT_PORTS), or stop what else listens there",
        )

    def hold(self, port: int, holder: str) -> None:
        """Take note of a port that an adopted process has, in the pool or not."""
        self._held[port] = holder

    def give_back(self, holder: str) -> None:
        """Forget what `holder` has, and what it has beside under `HOLDER/…`."""
        self._held = {p: h for p, h in self._held.items() if h != holder and not h.startswith(f"{holder}/")}

    @property
    def held(self) -> dict[int, str]:
        """Port → holder."""
        return dict(self._held)


def port_is_free(port: int, *, protocol: str = "tcp") -> bool:
    """Whether nobody listens on the port, on any address of this machine.

    Binding the wildcard address collides with every listener on any address; SO_REUSEADDR lets connections that are
    only dying (TIME_WAIT) pass, never a listener.
    """
    families = [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
    return all(_can_bind(family, kind, host, port) for family, host in families)


def _can_bind(family: socket.AddressFamily, kind: socket.SocketKind, host: str, port: int) -> bool:
    try:
        sock = socket.socket(family, kind)
    except OSError:
        return True  # the machine has no such address family, so nobody listens in it
    with sock:
        if kind == socket.SOCK_STREAM:  # of datagrams it would let two share the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            sock.bind((host, port))
        except OSError as cause:
            return family == socket.AF_INET6 and cause.errno == 99  # EADDRNOTAVAIL: IPv6 is off here
        return True
