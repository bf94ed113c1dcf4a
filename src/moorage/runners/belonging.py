"""Whether a process is part of something hosted here: by its cgroup, its cookie, or its parents.

For somebody who saw a pid elsewhere (on a GPU) and must know whose it is. Reads /proc, which may hang on a process that
hangs in the kernel: called in a thread that may hang too. Signals nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moorage.runners.identity import shown_cookie
from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import shown_stat, slurp

PARENTS_MAX = 64
"""Generations looked at. Deeper trees are found by their cgroup or cookie."""


@dataclass(frozen=True, slots=True)
class Mark:
    """By what the processes of one hosted thing are known.

    Args:
        cookie: in the environment of all that it starts and does not clean.
        pid: of its first process; 0: not known.
        cgroup: directory of its own cgroup, or empty.
    """

    cookie: str
    pid: int = 0
    cgroup: str = ""


def belonging(numbers: Iterable[int], marks: Sequence[Mark]) -> frozenset[int]:
    """Those of the processes that are part of something marked.

    Args:
        numbers: as /proc shows them.
        marks: of all that is hosted.
    """
    roots = {number for mark in marks if mark.pid and (number := procfs.number(mark.pid)) is not None}
    members = {number for mark in marks for number in _members(mark.cgroup)}
    cookies = [mark.cookie for mark in marks if mark.cookie]
    return frozenset(
        n for n in numbers if n in members or _below(n, roots) or any(shown_cookie(n, cookie) for cookie in cookies)
    )


def visible(number: int) -> bool:
    """Whether /proc shows a process of that number at all."""
    return shown_stat(number) is not None


def _members(cgroup: str) -> Iterable[int]:
    if not cgroup:
        return ()
    try:
        pids = [int(pid) for pid in slurp(f"{cgroup}/cgroup.procs").split()]
    except OSError:
        return ()  # it ended, and its cgroup with it
    return [number for pid in pids if (number := procfs.number(pid)) is not None]


def _below(number: int, roots: set[int]) -> bool:
    at = number
    for _ in range(PARENTS_MAX):
        if at in roots:
            return True
        fields = shown_stat(at)
        if not fields:
            return False
        at = int(fields[1])
    return False
