"""Who listens on a port of this machine, as far as the kernel tells: for the sentence of an error.

Read from /proc only. Other users' processes show no descriptors to an ordinary user, and then nobody is named.
Called by the hosts before a start and by whoever explains a port that is taken.
"""

import os
import re
from pathlib import Path

from moorage.domain.errors import PortUnavailable
from moorage.runners.ports import port_is_free
from moorage.runners.shimming import procfs

_LISTEN = {"tcp": "0A", "udp": "07"}
"""States of a socket that waits for what comes, as the kernel writes them."""
_CONTAINER = re.compile(r"(?:docker|libpod|libpod_pod|cri-containerd)[-/]([0-9a-f]{12,64})|/docker/([0-9a-f]{12,64})")


def require_free(port: int, *, protocol: str = "tcp") -> None:
    """Nothing if nobody listens on the port, on any address.

    Args:
        port: its number.
        protocol: `tcp` or `udp`.

    Raises:
        PortUnavailable: somebody does; says who, where that can be known.
    """
    if port_is_free(port, protocol=protocol):
        return
    who = holder_of(port, protocol=protocol)
    raise PortUnavailable(
        f"port {port} is already in use" + (f" by {who}" if who else ", by a program that this user cannot see"),
        remedy="stop what listens there, or choose another port",
    )


def holder_of(port: int, *, protocol: str = "tcp") -> str | None:
    """`python3 (pid 41)`, with its container where it is in one; None when it cannot be told."""
    inodes = _listening(port, protocol)
    for number in procfs.numbers() if inodes else ():
        if _has_socket(number, inodes):
            return _describe(number)
    return None


def listens_on(pid: int, port: int) -> bool:
    """Whether exactly this process has a TCP socket that listens on the port."""
    number, inodes = procfs.number(pid), _listening(port, "tcp")
    return number is not None and bool(inodes) and _has_socket(number, inodes)


def _listening(port: int, protocol: str) -> frozenset[str]:
    """Socket inodes that listen on the port."""
    found = set()
    for table in (f"/proc/net/{protocol}", f"/proc/net/{protocol}6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTEN[protocol] and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return frozenset(found)


def _has_socket(number: int, inodes: frozenset[str]) -> bool:
    folder = f"/proc/{number}/fd"
    try:
        descriptors = os.listdir(folder)  # noqa: PTH208  # pathlib would build an object for each of them
        return any(os.readlink(f"{folder}/{fd}") in inodes for fd in descriptors)  # noqa: PTH115  # likewise
    except OSError:
        return False  # it ended meanwhile, or belongs to somebody else


def _describe(number: int) -> str:
    pid = procfs.ours(number)
    who = f"pid {pid}" if pid else f"pid {number} of another pid namespace"
    try:
        command = Path(f"/proc/{number}/comm").read_text().strip()
        groups = Path(f"/proc/{number}/cgroup").read_text()
    except OSError:
        return who
    found = _CONTAINER.search(groups)
    inside = f", in the container {(found[1] or found[2])[:12]}" if found else ""
    return f"{command} ({who}{inside})"
