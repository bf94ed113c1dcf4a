"""The access log: one JSON line a request, written off the requests' path.

Here: gathering what is known of an ended request, and a thread that writes batches to a file, rotates it by size and
begins it anew when somebody moved it (no signal is needed for that). Not here: what ends a request (`exchange`), counts
(`counting`). Never in a line: keys, bodies, queries, header lines.

A disk that is slow or full costs lines, which are counted, and never a request: the loop only appends to a list.
"""

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from errno import ENOSPC
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from moorage.gateway.hub import Log
    from moorage.gateway.measures import Record

BATCH_BYTES: Final = 64 * 1024
WAIT_S: Final = 1.0
_LINE_BYTES: Final = 400
"""About; the thread is woken before its second is over when so many lines lie there that they fill a batch."""
_WAITING_MAX: Final = 20_000
"""Lines that wait for a disk that does not take them; more are lost."""
_PATH_MAX: Final = 500


_Taken = tuple[float, Any, str, str, "Record"]
"""when, client's address, method, path, record"""


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
        self._waiting: deque[_Taken] = deque()
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

    def add(self, peer: Any, method: str, path: str, record: "Record") -> None:
        """A request ended.

        Args:
            peer: address of the client's side, as the socket tells it.
            path: without its query.
        """
        waiting = self._waiting
        if len(waiting) >= _WAITING_MAX:
            self.lost += 1
            return
        waiting.append((self._wall(), peer, method, path, record))
        if len(waiting) == BATCH_BYTES // _LINE_BYTES:
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
        try:
            self._put("".join(map(_line, taken)).encode("ascii"))
        except OSError as error:
            self.lost += len(taken)
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


def _line(taken: _Taken) -> str:
    """One line. What is not known is left out."""
    at, peer, method, path, record = taken
    told = record.to_wire().model_dump(exclude_none=True)
    told["id"] = told.pop("request_id")
    for name in ("queued_ms", "ttft_ms", "total_ms"):
        if name in told:
            told[name] = round(told[name], 3)
    if not told["endpoint"]:
        del told["endpoint"]
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    first = {"time": f"{stamp}.{int(at * 1000) % 1000:03d}Z", "id": told.pop("id"), "client": _client(peer)}
    line = {**first, "method": method, "path": path[:_PATH_MAX], **told}
    return json.dumps({k: v for k, v in line.items() if v != ""}, separators=(",", ":")) + "\n"


def _client(peer: Any) -> str:
    """`host:port`; an address of a Unix socket is none."""
    if isinstance(peer, tuple) and len(peer) >= 2:
        return f"[{peer[0]}]:{peer[1]}" if ":" in str(peer[0]) else f"{peer[0]}:{peer[1]}"
    return ""
