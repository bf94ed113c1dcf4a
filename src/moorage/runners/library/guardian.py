"""Removes a library's containers when the program that owns them ends, however that ends.

Run as a script (`python -I -S guardian.py SOCKET LABEL OWNER_PID`), one for each engine in use, never imported. The
engine is the parent of a container and knows nothing of the program that asked for it, so somebody must outlive that
program who does. It waits on its standard input, of which the owner has the other end, and on a pidfd of the owner
(see `shimming/leash.py` for why both), then force-removes what carries the label. A create call that was on its way
when the owner died may succeed a moment later, so it looks again for a while. `q` on its input is an orderly end: the
owner has stopped everything, and one look makes certain.
"""

import http.client
import json
import os
import select
import signal
import socket
import sys
import time
import urllib.parse

LATE_S = 20.0
"""A create call can take this long on a busy engine."""
PAUSE_S = 0.5


class Engine(http.client.HTTPConnection):
    """HTTP over the engine's Unix socket; podman and docker answer these two calls alike."""

    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=60)
        self._path = path

    def connect(self) -> None:
        """To the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(path: str, method: str, target: str) -> bytes:
    """One call on a connection of its own: an engine that was restarted is reached again."""
    engine = Engine(path)
    try:
        engine.request(method, target)
        return engine.getresponse().read()
    finally:
        engine.close()


def remove_all(path: str, label: str) -> bool:
    """Force-remove everything with the label. False when something may be left."""
    filters = urllib.parse.quote(json.dumps({"label": [label]}))
    try:
        found = json.loads(ask(path, "GET", f"/containers/json?all=true&filters={filters}"))
        for container in found:
            ask(path, "DELETE", f"/containers/{container['Id']}?force=true&v=true")
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return False
    return not found


def wait_for_end(owner: int) -> bool:
    """Until the owner is gone or says so; whether it said so."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    try:
        pidfd = os.pidfd_open(owner)
    except OSError:
        return False
    if os.getppid() != owner:
        return False
    poll.register(pidfd, select.POLLIN)
    ready = dict(poll.poll())
    return 0 in ready and os.read(0, 1) == b"q"


def main(path: str, label: str, owner: str) -> int:
    """Wait, then remove; again for a while when the owner did not end in order."""
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    orderly = wait_for_end(int(owner))
    deadline = time.monotonic() + LATE_S
    while True:
        done = remove_all(path, label)
        if (done and orderly) or time.monotonic() >= deadline:
            return 0 if done else 1
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
