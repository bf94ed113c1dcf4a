"""Pids as /proc counts them, and pids as system calls do: the one place that knows how they differ.

They are the same wherever /proc was mounted for the pid namespace of this process. Where a namespace was made around
us without a /proc of its own (a chroot, a container with its host's /proc), getpid() may say 5 where /proc/self is
26570, and /proc/5 is a stranger. A *pid* is what getpid, fork, kill, pidfd_open and cgroup.procs mean and what is
recorded; a *number* is the name of a directory in /proc and what the files there say (parents, groups, sessions).

Nothing is guessed: a pid and a number are the same process when a pidfd of the pid says so, by the `Pid:` line of its
fdinfo. What cannot be proven is None, and nobody signals a None. Builtin modules only (the shim starts with it); called
by `kernel`, `tree`, the runners and `app`.
"""

import os

_seen: tuple[int, int | None] | None = None
"""Of which process, and its depth; a forked child may be in another namespace, and asks for itself."""


def depth() -> int | None:
    """How many pid namespaces this process is below the one that /proc shows.

    Returns:
        0 where pids and numbers are the same; None where /proc does not show this process, or cannot prove which it is.
    """
    global _seen
    me = os.getpid()
    if _seen is None or _seen[0] != me:
        _seen = (me, _measure(me))
    return _seen[1]


def number(pid: int) -> int | None:
    """The number of a process; None when there is no such process, or nothing proves which it is."""
    below = depth()
    if not below:
        return pid if below == 0 else None
    return _proven_number(pid)


def ours(number: int) -> int | None:
    """The pid of the process that /proc shows under this number; None where we have none for it, or it has ended."""
    if depth() == 0:
        return number
    found = pin(number)
    if found is None:
        return None
    os.close(found[1])
    return found[0]


def pin(number: int) -> tuple[int, int] | None:
    """The pid of the process that /proc shows under this number, and a pidfd that the caller closes.

    None when it has ended or is not of our namespace. What is read under the number afterwards, while the pidfd says
    that its process lives, is of that process.
    """
    below = depth()
    pid = number if below == 0 else _claimed_pid(number, below) if below else None
    if pid is None:
        return None
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    if below == 0 or shown(fd) == number:
        return pid, fd
    os.close(fd)
    return None


def shown(pidfd: int) -> int | None:
    """The number of the process that a pidfd is of; None once it is reaped, or where /proc does not show it."""
    for line in _read(f"/proc/self/fdinfo/{pidfd}").split(b"\n"):
        if line.startswith(b"Pid:"):
            found = int(line[4:])
            return found if found > 0 else None
    return None


def numbers() -> list[int]:
    """Of every process that /proc shows now; empty where there is no /proc."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return []


def _measure(me: int) -> int | None:
    try:
        levels = _levels("self")
        if not levels:  # a kernel without pid namespaces does not print them
            return 0 if os.readlink("/proc/self") == str(me) else None
    except OSError:
        return None
    below = len(levels) - 1
    if levels[-1] != me:
        return None
    return below if below == 0 or _proven_number(me) == levels[0] else None


def _proven_number(pid: int) -> int | None:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        return shown(fd)
    finally:
        os.close(fd)


def _claimed_pid(number: int, below: int) -> int | None:
    """What a process is called at our depth; in another namespace of that depth it may be called so too."""
    try:
        levels = _levels(str(number))
    except OSError:
        return None
    return levels[below] if len(levels) > below else None


def _levels(name: str) -> list[int]:
    """Its pid in each namespace, from the one that /proc shows down to its own."""
    for line in _read(f"/proc/{name}/status").split(b"\n"):
        if line.startswith(b"NSpid:"):
            return [int(word) for word in line[6:].split()]
    return []


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 1 << 14)
    finally:
        os.close(fd)
