"""How the supervisor of a home asks a part whether it still does anything, and how the part answers.

A datagram at a Unix socket beside the part's configuration (`run/server.alive`), which the part's own loop answers to
the supervisor's (`run/supervisor.alive`). Neither needs a connection, a free descriptor, a port or the disk, so that
a flood of requests, an address that another took or a full disk are never taken for a hang. Who may enter the folder
may ask. Not here: when silence is a hang (`domain.silence`), the loops. Standard library only: the gateway's master
uses it.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUPERVISOR: Final = "supervisor"
_SUFFIX: Final = ".alive"
_QUESTION: Final = b"?"
_ANSWER_BYTES_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Answer:
    """Of a part: its name, and who answered."""

    name: str
    pid: int


class _Place:
    """A folder with sockets in it, of which one is ours.

    Raises:
        OSError: there can be none here.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        try:
            (folder / (name + _SUFFIX)).unlink(missing_ok=True)  # of a former process
            self.socket.bind(self.path(name))
            (folder / (name + _SUFFIX)).chmod(0o600)
        except OSError:
            self.close()
            raise

    def path(self, name: str) -> str:
        """A socket's path may have about a hundred bytes, and a folder's more: so it is named by its descriptor."""
        if sys.platform.startswith("linux"):
            return f"/proc/self/fd/{self._number}/{name}{_SUFFIX}"
        return str(self._folder / (name + _SUFFIX))

    def close(self) -> None:
        self.socket.close()
        os.close(self._number)


class Answering:
    """What a part answers with. Its loop calls `hear` whenever `fileno` is readable.

    Args:
        config: the part's configuration, beside which the socket lies.

    Raises:
        OSError: there can be no socket here; then nobody judges this part.
    """

    def __init__(self, config: Path) -> None:
        self._place = _Place(config.absolute().parent, config.stem)
        self._said = f"{config.stem} {os.getpid()}".encode()

    def fileno(self) -> int:
        """For the loop."""
        return self._place.socket.fileno()

    def hear(self) -> None:
        """Answer all that was asked."""
        while True:
            try:
                self._place.socket.recv(_ANSWER_BYTES_MAX)
            except BlockingIOError:
                return
            with contextlib.suppress(OSError):  # it has gone, or has as many answers waiting as it may
                self._place.socket.sendto(self._said, self._place.path(SUPERVISOR))

    def close(self) -> None:
        """Answer nobody any more."""
        self._place.close()


class Asking:
    """What a supervisor asks with.

    Args:
        folder: where the configurations of its parts lie.

    Raises:
        OSError: there can be no socket here.
    """

    def __init__(self, folder: Path) -> None:
        self._place = _Place(folder, SUPERVISOR)

    def fileno(self) -> int:
        """Readable when there are answers."""
        return self._place.socket.fileno()

    def ask(self, name: str) -> bool:
        """Ask a part; False where nobody is there who could be asked."""
        try:
            self._place.socket.sendto(_QUESTION, self._place.path(name))
        except BlockingIOError:
            return True  # it has not taken the questions before
        except OSError:
            return False
        return True

    def answers(self) -> Iterator[Answer]:
        """What has come."""
        while True:
            try:
                said = self._place.socket.recv(_ANSWER_BYTES_MAX)
            except BlockingIOError:
                return
            name, _, pid = said.decode(errors="replace").partition(" ")
            if pid.isdigit():
                yield Answer(name, int(pid))

    def close(self) -> None:
        """Ask no more."""
        self._place.close()
