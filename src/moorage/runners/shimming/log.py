"""The worker's output on disk, bounded, with line numbers that survive rotation.

A segment is named `log.N`, N being the number of its first line (from 1), so the number of any line kept can be
counted without an index.
"""

import os

SEGMENT_BYTES = 16 << 20
"""Two segments are kept, so a worker's log takes about 32 MiB of disk at most."""
LINE_BYTES_MAX = 1 << 20
"""A line that goes on for longer than this past a full segment is broken in two."""


class Log:
    """Output on disk: segments named by the number of their first line, the two newest kept."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.next_line = 1
        self.mid_line = False
        self.segments: list[str] = []
        self.fd = -1
        self.size = 0
        self._open()

    def write(self, data: bytes) -> None:
        """Append, going on in a new segment at a line's end once this one is full."""
        if self.size + len(data) < SEGMENT_BYTES:
            self._append(data)
            return
        cut = data.rfind(b"\n") + 1
        if cut:
            self._append(data[:cut])
            self._rotate()
            self._append(data[cut:])
        else:
            self._append(data)
            if self.size >= SEGMENT_BYTES + LINE_BYTES_MAX:
                self._append(b"\n")
                self._rotate()

    def end_line(self) -> None:
        """What is written next belongs to another process and begins a line of its own."""
        if self.mid_line:
            self._append(b"\n")

    def _append(self, data: bytes) -> None:
        """What a full disk does not take is lost; the worker goes on."""
        try:
            written = os.write(self.fd, data) if data else 0
        except OSError:
            return
        self.size += written
        self.mid_line = data[written - 1] != 10 if written else self.mid_line
        self.next_line += data.count(b"\n", 0, written)

    def _rotate(self) -> None:
        os.close(self.fd)
        self._open()
        while len(self.segments) > 2:
            os.unlink(self.segments.pop(0))

    def _open(self) -> None:
        path = f"{self.folder}/log.{self.next_line}"
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.segments.append(path)
        self.size = 0
