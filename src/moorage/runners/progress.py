"""Visible progress of a server that is not ready yet: its log, its I/O, its memory.

A time-out in all kills loads that are slow and sound; a stall does not (the lifecycle contract §6). Called by the
readiness check every few seconds; reads /proc only.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from moorage.runners import logfile
from moorage.runners.port import Hosted
from moorage.runners.shimming.kernel import stat_fields

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
    for pid in _pids(process):
        read, resident = _io_bytes(pid), _resident_bytes(pid)
        io_bytes, memory = io_bytes + read, memory + resident
    return Progress(logfile.size(process.folder), io_bytes, memory)


def _pids(process: Hosted) -> list[int]:
    known = process.identity
    if known is None or not known.pid:
        return []
    if known.cgroup:
        try:
            return [int(p) for p in (Path(known.cgroup) / "cgroup.procs").read_text().split()]
        except OSError:
            return [known.pid]
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 # pathlib would build an object for each process of the machine
        fields = stat_fields(int(name)) if name.isdigit() else None
        if fields and int(fields[3]) == known.pid:  # session id: the command leads its own
            found.append(int(name))
    return found


def _io_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:")))


def _resident_bytes(pid: int) -> int:
    fields = stat_fields(pid)
    return int(fields[21]) * os.sysconf("SC_PAGE_SIZE") if fields else 0
