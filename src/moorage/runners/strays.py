"""Processes of a worker whose shim is dead: found by proof, watched and ended by pidfd.

A process belongs to a worker when its environment holds the worker's cookie (128 random bits) or when it sits in the
cgroup named after it. It is pinned by a pidfd first and checked then, so that a signal can never reach another process
which was given the same pid in between.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from moorage.ports import Clock
from moorage.runners.identity import shown_cookie
from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import shown_stat

SWEEP_PAUSE_S, SWEEP_PAUSE_MAX_S = 0.02, 2.0


def pinned(cookie: str, cgroup: str) -> dict[int, int]:
    """Pid → open pidfd of each living process of the worker; the caller closes them."""
    members = _members(cgroup)
    found: dict[int, int] = {}
    for number in procfs.numbers():
        held = procfs.pin(number)
        if held is None:
            continue
        pid, fd = held
        fields = shown_stat(number)
        living = fields is not None and fields[0] not in b"ZX"
        if living and pid != os.getpid() and (pid in members or shown_cookie(number, cookie)):
            found[pid] = fd
        else:
            os.close(fd)
    return found


def signal_all(cookie: str, cgroup: str, number: int) -> int:
    """Send a signal to each living process of the worker; how many there were."""
    found = pinned(cookie, cgroup)
    for fd in found.values():
        try:
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            continue
        finally:
            os.close(fd)
    return len(found)


async def end(cookie: str, cgroup: str, number: int, grace_s: float, clock: Clock) -> None:
    """Signal, wait for the grace, kill, and return when no process of the worker is left."""
    deadline = clock.monotonic() + grace_s
    left = await asyncio.to_thread(signal_all, cookie, cgroup, number)
    pause = SWEEP_PAUSE_S
    while left:
        await clock.sleep(pause)
        late = clock.monotonic() >= deadline
        left = await asyncio.to_thread(signal_all, cookie, cgroup, signal.SIGKILL if late else 0)
        pause = min(pause * 1.5, SWEEP_PAUSE_MAX_S if late else 0.2)


def remove_cgroup(cgroup: str) -> None:
    """Remove the worker's empty cgroup; one that cannot be removed costs nothing and is left."""
    if cgroup:
        with contextlib.suppress(OSError):
            Path(cgroup).rmdir()


def _members(cgroup: str) -> frozenset[int]:
    if not cgroup:
        return frozenset()
    try:
        return frozenset(int(p) for p in (Path(cgroup) / "cgroup.procs").read_text().split())
    except OSError:
        return frozenset()
