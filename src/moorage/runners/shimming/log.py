"""The worker's output on disk, bounded, with line numbers that survive rotation, and the time at which lines came.

A segment is named `log.N`, N being the number of its first line (from 1), so the number of any line kept can be
counted without an index. Beside each lies `times.N`: records of fixed width, (bytes, lines, milliseconds since the
epoch), each saying that what follows these bytes and lines of the segment came at that time or later. One is written
for each burst of output, at most one in `TICK_MS` unless much came, and never more than a share of the log itself; so
it also leads a reader near any line without reading the lines before it (`runners/logfile.py`).
"""

import os
import time

SEGMENT_BYTES = 16 << 20
"""Two segments are kept: a worker's log takes about 32 MiB of disk at most, and its times 10 MiB, mostly far less."""
LINE_BYTES_MAX = 1 << 20
"""A line that goes on for longer than this past a full segment is broken in two."""

RECORD_BYTES = 16
TICK_MS = 10
"""Bursts closer together than this share a time: nobody reads a log to the millisecond."""
STRIDE_BYTES = 64 << 10
"""So much output is a record in any case: what a reader has to skip at most."""
TIMES_BYTES, TIMES_SHARE = 1 << 20, 4
"""The records of a segment take at most this, and a quarter of the segment: times get coarser then, not larger."""


class Log:
    """Output on disk: segments named by the number of their first line, the two newest kept."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.next_line = 1
        self.first_line = 1
        self.mid_line = False
        self.segments: list[str] = []
        self.fd = self.times = -1
        self.size = self.records = 0
        self.told_ms, self.told_bytes = 0, 0
        self._open()

    def write(self, data: bytes, at_ms: int = 0) -> None:
        """Append, going on in a new segment at a line's end once this one is full.

        Args:
            data: what came.
            at_ms: when, in milliseconds since the epoch; 0: now.
        """
        at_ms = at_ms or int(time.time() * 1000)
        if self.size + len(data) < SEGMENT_BYTES:
            self._append(data, at_ms)
            return
        cut = data.rfind(b"\n") + 1
        if cut:
            self._append(data[:cut], at_ms)
            self._rotate()
            self._append(data[cut:], at_ms)
        else:
            self._append(data, at_ms)
            if self.size >= SEGMENT_BYTES + LINE_BYTES_MAX:
                self._append(b"\n", at_ms)
                self._rotate()

    def end_line(self) -> None:
        """What is written next belongs to another process and begins a line of its own."""
        if self.mid_line:
            self._append(b"\n", int(time.time() * 1000))

    def _append(self, data: bytes, at_ms: int) -> None:
        """What a full disk does not take is lost; the worker goes on."""
        if not data:
            return
        bytes_before, lines_before = self.size, self.next_line - self.first_line
        try:
            written = os.write(self.fd, data)
        except OSError:
            return
        self.size += written
        self.mid_line = data[written - 1] != 10 if written else self.mid_line
        self.next_line += data.count(b"\n", 0, written)
        if abs(at_ms - self.told_ms) >= TICK_MS or bytes_before - self.told_bytes >= STRIDE_BYTES:
            self._note_time(bytes_before, lines_before, at_ms)

    def _note_time(self, bytes_before: int, lines_before: int, at_ms: int) -> None:
        """One record. It is written where it belongs, so that one which a full disk cut is written over."""
        place = self.records * RECORD_BYTES
        if place >= TIMES_BYTES + self.size // TIMES_SHARE:
            return
        try:
            if self.times < 0:
                self.times = os.open(self._times_path(), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            record = bytes_before.to_bytes(4, "little") + lines_before.to_bytes(4, "little")
            if os.pwrite(self.times, record + at_ms.to_bytes(8, "little"), place) != RECORD_BYTES:
                return
        except OSError:
            return
        self.records += 1
        self.told_ms, self.told_bytes = at_ms, bytes_before

    def _times_path(self) -> str:
        return f"{self.folder}/times.{self.first_line}"

    def _rotate(self) -> None:
        self._let_go()
        self._open()
        while len(self.segments) > 2:
            gone = self.segments.pop(0)
            os.unlink(gone)
            try:
                os.unlink(f"{self.folder}/times.{gone.rpartition('.')[2]}")
            except FileNotFoundError:
                pass  # nothing was ever noted of it: the disk was full

    def _let_go(self) -> None:
        for fd in (self.fd, self.times):
            if fd >= 0:
                os.close(fd)
        self.fd = self.times = -1

    def _open(self) -> None:
        path = f"{self.folder}/log.{self.next_line}"
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.segments.append(path)
        self.size = self.records = self.told_ms = self.told_bytes = 0
        self.first_line = self.next_line
