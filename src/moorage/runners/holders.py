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

_LISTEN = "0A"
_CONTAINER = re.compile(r"(?:docker|libpod|libpod_pod|cri-containerd)[-/]([0-9a-f]{12,64})|/docker/([0-9a-f]{12,64})")


def require_free(port: int) -> None:
    """Nothing if nobody listens on the port, on any address.

    Raises:
        PortUnavailable: somebody does; says who, where that can be known.
    """
    if port_is_free(port):
        return
    who = holder_of(port)
    raise PortUnavailable(
        f"port {port} is already in use" + (f" by {who}" if who else ", by a program that this user cannot see"),
        remedy="stop what listens there, or choose another port",
    )


def holder_of(port: int) -> str | None:
    """`python3 (pid 41)`, with its container where it is in one; None when it cannot be told."""
    inodes = _listening(port)
    for number in procfs.numbers() if inodes else ():
        if _has_socket(number, inodes):
            return _describe(number)
    return None


def _listening(port: int) -> frozenset[str]:
    """Socket inodes that listen on the port."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
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
