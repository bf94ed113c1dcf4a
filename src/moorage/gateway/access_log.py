"""The access log: one JSON line a request, written off the requests' path.

Here: a thread that writes batches of lines to a file, rotates it by size and begins it anew when somebody moved it (no
signal is needed for that). Not here: what a line says (`access_lines`), what ends a request (`exchange`) and when that
is told (`counting`, which tells many at once).

A disk that is slow or full costs lines, which are counted, and never a request: the loop only makes lines and appends
them to a list. A batch is one write to the end of the file, so lines of several processes never stand within each
other. A line is in the file two seconds after its request's end at the latest, so a process that is killed loses the
lines of its last two seconds; one that ends writes all of them.
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from errno import ENOSPC
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moorage.gateway.access_lines import AccessLines

if TYPE_CHECKING:
    from moorage.gateway.heads import RequestLine
    from moorage.gateway.hub import Log
    from moorage.gateway.records import Batch

WAIT_S: Final = 1.0
BATCH_BYTES: Final = 256 * 1024
"""The thread is woken before its time is over when so much lies there."""
_WAITING_MAX: Final = 20_000
"""Lines that wait for a disk that does not take them; more are lost."""


class AccessLog:
    """The access log of one gateway process.

    Args:
        path: the file. Several processes of one gateway may share it: a batch is one write at its end.
        bytes_max: when it has grown to so much, it becomes `path.1`, that one `path.2` and so on.
        keep: how many such are kept.
        wall: the wall clock, in seconds.
    """

    def __init__(
        self, path: Path, *, bytes_max: int, keep: int, log: "Log", wall: Callable[[], float] = time.time
    ) -> None:
        self.lost = 0
        self._path = path
        self._bytes_max = bytes_max
        self._keep = keep
        self._log = log
        self._wall = wall
        self._lines = AccessLines()
        self._waiting: deque[tuple[int, bytes]] = deque()
        """numbers of lines, and their text"""
        self._added = 0
        """lines that were made, which the loop counts"""
        self._taken = 0
        """of these, which the thread counts"""
        self._unwoken = 0
        """bytes since the thread was woken"""
        self._wake = threading.Event()
        self._closing = False
        self._failing = False
        self._file: FileIO | None = None
        self._torn = False
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)

    # --- on the loop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def now(self) -> float:
        """The wall clock, in seconds."""
        return self._wall()

    def takes(self, number: int) -> bool:
        """Whether so many lines more may wait; they are lost where not, and need not be made."""
        if self._added - self._taken + number <= _WAITING_MAX:
            return True
        self.lost += number
        return False

    def add(self, batches: "Sequence[Batch]", at_ms: list[int], asked: "Sequence[tuple[str, RequestLine]]") -> None:
        """Requests ended; see `AccessLines.lines`."""
        lines = self._lines.lines(batches, at_ms, asked)
        text = b"".join(lines)
        self._waiting.append((len(lines), text))
        self._added += len(lines)
        self._unwoken += len(text)
        if self._unwoken >= BATCH_BYTES:
            self._unwoken = 0
            self._wake.set()

    def close(self) -> None:
        """Write what waits, and end. Blocks for as long as the disk does, at most some seconds."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    # --- in the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(WAIT_S)
            self._wake.clear()
            self.write()
        self.write()
        self._shut()

    def write(self) -> None:
        """Write what waits, in one go."""
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not taken:
            return
        number = sum([each for each, _ in taken])
        self._taken += number
        try:
            self._put(b"".join([text for _, text in taken]))
        except OSError as error:
            self.lost += number
            self._torn = True
            self._shut()
            if not self._failing:
                self._failing = True
                self._log.warning("access_log.failing", path=str(self._path), error=str(error))
            return
        if self._failing:
            self._failing = False
            self._log.info("access_log.works_again", path=str(self._path), lost=self.lost)

    def _put(self, batch: bytes) -> None:
        file = self._file
        if file is not None and self._moved(file):
            self._shut()
            file = None
        if file is None:
            file = self._file = FileIO(self._path, "a")
        if self._torn:
            batch = b"\n" + batch  # what a full disk took of the last batch may have ended within a line
        if file.write(batch) != len(batch):
            raise OSError(ENOSPC, "the disk took a part only")
        self._torn = False
        if file.tell() >= self._bytes_max:
            self._rotate()

    def _moved(self, file: FileIO) -> bool:
        """Whether the name is another file's by now: a tool moved the log away, or another process rotated it."""
        try:
            return not os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except FileNotFoundError:
            return True

    def _rotate(self) -> None:
        """Move the files one number on; another process that had the same thought has done it already."""
        self._shut()
        if self._path.stat().st_size < self._bytes_max:
            return
        for number in range(self._keep, 1, -1):
            with contextlib.suppress(FileNotFoundError):
                self._numbered(number - 1).replace(self._numbered(number))
        if self._keep:
            self._path.replace(self._numbered(1))
        else:
            self._path.unlink()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _shut(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
