"""All that lives below a shim: found by descent in /proc, ended by pidfd.

Only the shim asks; what a reader of another process wants (strays of a dead shim) is in `runners/strays.py`.
"""

import _signal
import os

from . import procfs
from .kernel import shown_stat, slurp


def descendants(cookie: str, *, reaper: bool) -> list[int]:
    """Numbers (see `procfs`) of everything alive below this process.

    Args:
        cookie: of the worker; without the reaper flag an orphan is told by it alone.
        reaper: whether orphans become children of this process.
    """
    parents: dict[int, int] = {}
    for number in procfs.numbers():
        fields = shown_stat(number)
        if fields and fields[0] not in b"ZX":
            parents[number] = int(fields[1])
    me = procfs.number(os.getpid())
    if me is None:
        return []
    return [n for n in parents if n != me and (_below(n, me, parents) or (not reaper and _carries(n, cookie)))]


def kill(numbers: list[int], spared: int = 0) -> None:
    """SIGKILL to each, but not to members of the process group `spared` (a pid; 0: to all)."""
    for number in numbers:
        found = procfs.pin(number)
        if found is None:
            continue
        pid, fd = found
        try:
            if not spared or os.getpgid(pid) != spared:
                _signal.pidfd_send_signal(fd, 9)
        except OSError:
            continue  # it ended meanwhile
        finally:
            os.close(fd)


def _below(number: int, me: int, parents: dict[int, int]) -> bool:
    at, steps = number, 0
    while at in parents and steps < len(parents):
        at, steps = parents[at], steps + 1
        if at == me:
            return True
    return False


def _carries(number: int, cookie: str) -> bool:
    try:
        return b"MOORAGE_COOKIE=" + cookie.encode() in slurp(f"/proc/{number}/environ").split(b"\0")
    except OSError:
        return False
