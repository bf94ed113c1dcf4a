"""What this machine is short of, so that nothing new is placed on it: memory by the kernel's own account, and disk.

Each condition begins at one level and ends at a better one, so that it does not come and go at its edge. Looked at
once a heartbeat, in a thread (a file system of the network may hang); kept by `inventory`.
"""

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

MEMORY, DISK = "memory", "disk"

STALLED_BEGIN, STALLED_END = 30.0, 5.0
"""Percent of the last ten seconds in which all work on the machine stood still for want of memory. A machine that swaps
a little has one or two; from a third on, new work would bring nothing forward."""

AVAILABLE_BEGIN, AVAILABLE_END = 0.02, 0.04
"""Share of the memory that the kernel can still give out, where it keeps no account of stalls (before Linux 4.20)."""

FREE_SHARE, FREE_BYTES = 0.05, 2 << 30
"""A disk is short of room below a twentieth, or 2 GiB where that is less: an agent's own ledger and logs still fit, a
model or an image does not. A share alone would close a large disk with hundreds of gigabytes free."""

FREE_END = 1.5
"""Times that much must be free before it is over."""


@dataclass(frozen=True, slots=True)
class Levels:
    """What was seen.

    Args:
        stalled: percent of time in which everything waited for memory; None where the kernel does not say.
        available: share of memory that can be given out.
        disks: free and all bytes of each place that is written to.
    """

    stalled: float | None
    available: float
    disks: tuple[tuple[int, int], ...]


def conditions(levels: Levels, before: Collection[str]) -> tuple[str, ...]:
    """What it is short of, by what was seen and what it was short of until now."""
    found = []
    if _short_of_memory(levels, MEMORY in before):
        found.append(MEMORY)
    if any(_short_of_room(free, total, DISK in before) for free, total in levels.disks):
        found.append(DISK)
    return tuple(found)


def _short_of_memory(levels: Levels, already: bool) -> bool:
    if levels.stalled is not None:
        return levels.stalled >= (STALLED_END if already else STALLED_BEGIN)
    return levels.available < (AVAILABLE_END if already else AVAILABLE_BEGIN)


def _short_of_room(free: int, total: int, already: bool) -> bool:
    return free < min(total * FREE_SHARE, FREE_BYTES) * (FREE_END if already else 1.0)


def look(places: Iterable[Path], proc: Path = Path("/proc")) -> Levels:
    """The levels now.

    Args:
        places: directories that are written to; one that is not there yet says nothing.
        proc: where the kernel shows them.
    """
    disks: dict[int, tuple[int, int]] = {}
    for place in places:
        try:
            device, room = place.stat().st_dev, os.statvfs(place)
        except FileNotFoundError:
            continue
        disks[device] = (room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize)
    return Levels(_stalled(proc / "pressure/memory"), _available(proc / "meminfo"), tuple(disks.values()))


def _stalled(file: Path) -> float | None:
    """`full avg10=…` of the kernel's account."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None  # not there, or switched off (reading then fails)
    fields = next((line.split() for line in lines if line.startswith("full ")), [])
    return next((float(field[6:]) for field in fields if field.startswith("avg10=")), None)


def _available(file: Path) -> float:
    known = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
    total, available = (int(known.get(name, "0").split()[0]) for name in ("MemTotal", "MemAvailable"))
    return available / total if total else 1.0
