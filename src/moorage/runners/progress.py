"""Visible progress of a server that is not ready yet: its log, its I/O, its memory.

A time-out in all kills loads that are slow and sound; a stall does not (the lifecycle contract §6). Called by the
readiness check every few seconds; reads /proc only.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from moorage.runners import logfile
from moorage.runners.port import Hosted
from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import shown_stat

STEP_BYTES = 1 << 20
"""Less I/O or memory than this is idling: wake-ups, timers, the answer to a probe."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Three numbers that grow while a server loads."""

    log: int = 0
    io_bytes: int = 0
    memory_bytes: int = 0

    def moved_since(self, before: "Progress") -> bool:
        """Whether something worth the name happened in between."""
        return (
            self.log != before.log
            or self.io_bytes - before.io_bytes >= STEP_BYTES
            or abs(self.memory_bytes - before.memory_bytes) >= STEP_BYTES
        )


def observe(process: Hosted) -> Progress:
    """Look now, at the command and all in its cgroup or, without one, its session."""
    io_bytes = memory = 0
    for number in _numbers(process):
        read, resident = _io_bytes(number), _resident_bytes(number)
        io_bytes, memory = io_bytes + read, memory + resident
    return Progress(logfile.size(process.folder), io_bytes, memory)


def _numbers(process: Hosted) -> list[int]:
    """What /proc calls them."""
    known = process.identity
    if known is None or not known.pid:
        return []
    if known.cgroup:
        try:
            pids = [int(p) for p in (Path(known.cgroup) / "cgroup.procs").read_text().split()]
        except OSError:
            pids = [known.pid]
        return [number for pid in pids if (number := procfs.number(pid))]
    leader = procfs.number(known.pid)
    found = []
    for number in procfs.numbers() if leader else ():
        fields = shown_stat(number)
        if fields and int(fields[3]) == leader:  # session id: the command leads its own
            found.append(number)
    return found


def _io_bytes(number: int) -> int:
    try:
        lines = Path(f"/proc/{number}/io").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:")))


def _resident_bytes(number: int) -> int:
    fields = shown_stat(number)
    return int(fields[21]) * os.sysconf("SC_PAGE_SIZE") if fields else 0
