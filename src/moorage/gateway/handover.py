"""Workers whose master was killed, and what they hand to the next one: their sockets, and the say over themselves.

Here: the offer of such a worker, which goes on serving meanwhile, and taking it up, both over a Unix socket in a folder
that only the gateway's user may enter. Not here: when a master is started (its supervisor's part), when workers retire
(`master`), how they serve. Called by `worker`, by `master`, and by who ends a gateway that has no master. Standard
library only.

Whoever takes an offer holds the worker's channel from then on, as the master did that started it: its end lets the
worker offer itself anew.
"""

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from moorage.gateway import orders
from moorage.gateway.holding import told

SOCKETS: Final = "workers"
"""Folder, in that of the state, of the sockets of workers."""
NOTICED_S: Final = 5.0
"""How long a worker may take to notice that its master is gone; one that is stopped may take for ever."""
_NAME = "orphan-"
_ASK_S = 2.0
_LOOK_S = 0.02
_PASSED_MAX: Final = 250
"""The kernel passes so many descriptors in one message."""


class Offer:
    """The offer of a worker, at a socket until somebody takes it.

    Args:
        folder: where the socket is made.
        said: what the worker tells of itself.
        sockets: those at which it accepts.
        taken: called with the channel to who took it.
    """

    def __init__(
        self,
        folder: Path,
        said: dict[str, Any],
        sockets: Sequence[socket.socket],
        taken: Callable[[socket.socket], None],
    ) -> None:
        self._said = said
        self._sockets = sockets
        self._taken = taken
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / f"{_NAME}{os.getpid()}.sock"
        self._path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        with _place(folder) as place:
            self.listener.bind(f"{place}/{self._path.name}")
        self.listener.listen(8)
        self.listener.setblocking(False)

    def accept(self) -> None:
        """Somebody may be there: hand over to them."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            channel, _ = self.listener.accept()
            try:
                numbers = [each.fileno() for each in self._sockets[:_PASSED_MAX]]
                socket.send_fds(channel, [orders.line(**self._said)], numbers)
            except OSError:
                channel.close()
                raise
            self._taken(channel)

    def close(self) -> None:
        """It is taken, or this process ends."""
        self.listener.close()
        self._path.unlink(missing_ok=True)


@dataclass(slots=True)
class Handed:
    """A worker that was handed over."""

    pid: int
    said: dict[str, Any]
    channel: socket.socket
    sockets: list[socket.socket] = field(default_factory=list)

    def end(self) -> None:
        """Have it finish what it has begun, and end."""
        with contextlib.suppress(OSError):  # it is gone already
            self.channel.send(orders.line(do=orders.END))

    def gone(self, limit_s: float) -> bool:
        """Wait until it has ended, which closes its channel."""
        until = time.monotonic() + limit_s
        while (left := until - time.monotonic()) > 0:
            self.channel.settimeout(left)
            try:
                if not self.channel.recv(4096):
                    return True
            except TimeoutError:
                return False
            except OSError:
                return True
        return False

    def kill(self) -> None:
        """End it at once. It holds the other end of the channel, so no other process can be hit."""
        kill(self.pid, self.channel)

    def close(self) -> None:
        """Let it go: it offers itself anew."""
        for each in (*self.sockets, self.channel):
            each.close()


def kill(pid: int, channel: socket.socket) -> None:
    """Kill the process that holds the other end of a channel, where the system has a way to hit no other."""
    with contextlib.suppress(OSError, AttributeError):
        handle = os.pidfd_open(pid)
        try:
            if not _ended(channel):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def take(state_dir: Path) -> list[Handed]:
    """Every worker of this folder whose master is gone.

    Those that the last master told of are waited for, for `NOTICED_S` at most.
    """
    folder = state_dir / SOCKETS
    found: list[Handed] = []
    until = time.monotonic() + NOTICED_S
    expected = set(_told_of(state_dir))
    while True:
        found += _offered(folder)
        expected = {pid for pid in expected - {each.pid for each in found} if _is_worker(pid)}
        if not expected or time.monotonic() > until:
            return found
        time.sleep(_LOOK_S)  # no event tells that another process has noticed


def waiting(state_dir: Path) -> Collection[int]:
    """Pids of the workers that offer themselves."""
    numbers = {path.stem.removeprefix(_NAME) for path in (state_dir / SOCKETS).glob(f"{_NAME}*.sock")}
    return {int(number) for number in numbers if number.isdigit() and _is_worker(int(number))}


def distinct(sockets: Sequence[socket.socket]) -> list[socket.socket]:
    """One of each: several workers may hand over the same. The others are closed."""
    kept: dict[int, socket.socket] = {}
    for each in sockets:
        first = kept.setdefault(os.fstat(each.fileno()).st_ino, each)
        if first is not each:
            each.close()
    return list(kept.values())


# --- inside ----------------------------------------------------------------------------------------------------------


def _told_of(state_dir: Path) -> Iterator[int]:
    said = told(state_dir)
    yield from said.get("workers", ())
    yield from said.get("inherited", ())
    yield from (each["pid"] for each in said.get("retiring", ()))


def _is_worker(pid: int) -> bool:
    """Whether it is worth waiting for this process."""
    try:
        return b"moorage.gateway.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return not Path("/proc/self").exists() and _lives(pid)
    except OSError:
        return False


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _offered(folder: Path) -> Iterator[Handed]:
    for path in folder.glob(f"{_NAME}*.sock"):
        channel = socket.socket(socket.AF_UNIX)
        channel.settimeout(_ASK_S)
        try:
            with _place(folder) as place:
                channel.connect(f"{place}/{path.name}")
            yield _received(channel)
        except ConnectionRefusedError:
            channel.close()
            path.unlink(missing_ok=True)  # whoever made it was killed
        except (OSError, ValueError, KeyError):
            channel.close()  # it ended just now, or is busy: it still offers itself then


def _received(channel: socket.socket) -> Handed:
    said, sockets = b"", []
    while not said.endswith(b"\n"):
        data, numbers, _, _ = socket.recv_fds(channel, 65536, _PASSED_MAX, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        sockets += [socket.socket(fileno=number) for number in numbers]
        if not data:
            raise ValueError("it ended meanwhile")
        said += data
    for each in sockets:
        each.setblocking(False)
        each.set_inheritable(False)
    read = json.loads(said)
    return Handed(_peer(channel) or int(read["pid"]), read, channel, sockets)


def _peer(channel: socket.socket) -> int:
    """The process at the other end, as the kernel knows it; 0 where it does not tell."""
    if not sys.platform.startswith("linux"):
        return 0
    pid: int = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return pid


def _ended(channel: socket.socket) -> bool:
    readable = select.select([channel], [], [], 0)[0]
    try:
        return bool(readable) and not channel.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


@contextlib.contextmanager
def _place(folder: Path) -> Iterator[str]:
    """A name of the folder that is short: the path of a socket may have about a hundred bytes, and a folder's more."""
    if not sys.platform.startswith("linux"):
        yield str(folder)
        return
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
