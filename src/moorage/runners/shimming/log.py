"""The worker's output on disk, bounded, with line numbers that survive rotation.

A segment is named `log.N`, N being the number of its first line (from 1), so the number of any line kept can be
counted without an index.
"""

import os

SEGMENT_BYTES = 16 << 20
"""Two segments are kept, so a worker's log never takes more than 32 MiB of disk."""


class Log:
    """Output on disk: segments named by the number of their first line, the two newest kept."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.next_line = 1
        self.segments: list[str] = []
        self.fd = -1
        self.size = 0
        self._open()

    def write(self, data: bytes) -> None:
        """Append; a full disk loses output, never the worker."""
        try:
            os.write(self.fd, data)
        except OSError:
            return
        self.size += len(data)
        self.next_line += data.count(b"\n")
        if self.size >= SEGMENT_BYTES:
            self._rotate(data)

    def _rotate(self, last: bytes) -> None:
        if not last.endswith(b"\n"):
            os.write(self.fd, b"\n")
            self.next_line += 1
        os.close(self.fd)
        self._open()
        while len(self.segments) > 2:
            os.unlink(self.segments.pop(0))

    def _open(self) -> None:
        path = f"{self.folder}/log.{self.next_line}"
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.segments.append(path)
        self.size = 0
