"""Who listens on a port: whether we may take it, and whose it is when we may not. Called by `up`."""

import os
import socket
from pathlib import Path

from moorage.app.parsing import Address
from moorage.domain.errors import InvalidSpec
from moorage.runners.shimming import procfs


def is_free(address: Address) -> bool:
    """Whether a listener could be opened there now.

    Raises:
        InvalidSpec: the host is not an address of this machine, or the port needs rights that we lack.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except PermissionError as cause:
            raise InvalidSpec(
                f"port {address.port} may only be opened by root", remedy="choose a port from 1024 up"
            ) from cause
        except socket.gaierror as cause:
            raise InvalidSpec(
                f"{address.host} is not a host we know", remedy="use an address such as 127.0.0.1"
            ) from cause
        except OSError as cause:
            if cause.errno == 99:  # EADDRNOTAVAIL
                raise InvalidSpec(
                    f"{address.host} is not an address of this machine", remedy="use 127.0.0.1, or 0.0.0.0 for all"
                ) from cause
            return False
        return True


_ALL = frozenset({"0.0.0.0", "::"})


def require_apart(api: Address, gateway: Address) -> None:
    """Nothing where both can listen.

    Raises:
        InvalidSpec: the control API and the gateway were given the same address.
    """
    ours = {"localhost": "127.0.0.1"}
    hosts = {ours.get(address.host, address.host) for address in (api, gateway)}
    if api.port == gateway.port and (len(hosts) == 1 or hosts & _ALL):
        raise InvalidSpec(
            f"the control API ({api}) and the gateway ({gateway}) cannot listen on the same port",
            remedy="give each its own: --port and --gateway-port, or MOORAGE_API and MOORAGE_GATEWAY",
        )


def owner(port: int) -> str | None:
    """`nginx (pid 4242)`: the process that listens on a port; None when the kernel does not show it to us."""
    inodes = _listening_inodes(port)
    for number in procfs.numbers() if inodes else ():
        process = Path(f"/proc/{number}")
        try:
            for fd in (process / "fd").iterdir():
                if str(fd.readlink()) in inodes:
                    pid = procfs.ours(number)
                    who = f"pid {pid}" if pid else f"pid {number} of another pid namespace"
                    return f"{(process / 'comm').read_text().strip()} ({who})"
        except OSError:
            continue  # ended meanwhile, or not ours to look into
    return None


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    return inodes


def taken_by(port: int) -> str:
    """Words for the listener of a port."""
    who = owner(port)
    return who or ("another user's process" if os.getuid() else "a process that cannot be identified")
