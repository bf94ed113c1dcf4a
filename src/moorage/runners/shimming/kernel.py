"""What the shim asks of the kernel, with builtin modules only: small files, process stat lines, the reaper flag, a
birth inside of a cgroup, OOM.

The reaper flag needs prctl(2) and the birth clone3(2), for which Python has no calls. `_ctypes` alone loads in about
1 ms where `ctypes` takes 6 to 14, and its three functions used here have not changed for many releases; where they are
missing, `ctypes` is used for the flag, and where that fails too, the sweep finds orphans by the cookie in their
environment.
"""

import os
import sys

from . import procfs

PR_SET_CHILD_SUBREAPER = 36
SYS_CLONE3 = 435
"""The same number on every architecture: it is younger than their unification."""
CLONE_INTO_CGROUP, SIGCHLD = 0x200000000, 17
WALL = 0x40000000
"""For waitpid: also a child that is unseen (see `fork_into`)."""


def become_subreaper() -> bool:
    """Make orphaned descendants children of this process. False where the kernel or Python cannot."""
    try:
        import _ctypes

        program = _ctypes.dlopen(None, 2)  # type: ignore[arg-type]  # None means this program; the stub does not know
        prctl = _ctypes.dlsym(program, "prctl")
        return bool(_ctypes.call_function(prctl, (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0)
    except (ImportError, AttributeError, OSError):
        pass
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, AttributeError, OSError):
        return False


def fork_into(directory: int, *, unseen: bool = False) -> int | None:
    """As fork, the child being born in the cgroup of this open directory (-1: in this process's own).

    Moving a process after its birth makes the kernel wait for all its processors: 10 ms and more on a quiet machine.
    The child runs none of Python's own after-fork work, so it must execute something soon and start no thread.

    Args:
        directory: of a cgroup v2.
        unseen: until it executes something, a plain wait for any child passes it over (it has no exit signal, and
            execve gives it one). So a standby does not hide that the tree is empty but for itself; see `WALL`.

    Returns:
        As fork; None where it cannot be done (before Linux 5.7, or the cgroup refuses).
    """
    numbers = (CLONE_INTO_CGROUP if directory >= 0 else 0, 0, 0, 0, 0 if unseen else SIGCHLD, 0, 0, 0, 0, 0)
    arguments = b"".join(number.to_bytes(8, sys.byteorder) for number in (*numbers, max(directory, 0)))
    try:
        import _ctypes

        syscall = _ctypes.dlsym(_ctypes.dlopen(None, 2), "syscall")  # type: ignore[arg-type]  # as above
        born: int = _ctypes.call_function(syscall, (SYS_CLONE3, arguments, len(arguments)))
    except (ImportError, AttributeError, OSError):
        return None
    return born if born >= 0 else None


def slurp(path: str) -> bytes:
    """A small file whole, in one read where it can be."""
    fd = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while part := os.read(fd, 1 << 18):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def write_whole(path: str, text: str, *, sync: bool) -> None:
    """Make a file appear complete or not at all; with `sync`, on disk when this returns."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = text.encode("utf-8", "surrogateescape")
        while data:
            data = data[os.write(fd, data) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".new", path)
    if sync:
        _fsync(os.path.dirname(path) or ".")


def sync(path: str) -> None:
    """Have a file and its name on disk when this returns."""
    _fsync(path)
    _fsync(os.path.dirname(path) or ".")


def _fsync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def stat_fields(pid: int) -> list[bytes] | None:
    """Fields of a process's stat line from the third (state) on, or None when there is no such process.

    Parent, group and session are in them as /proc counts (see `procfs`).
    """
    number = procfs.number(pid)
    return None if number is None else shown_stat(number)


def shown_stat(number: int) -> list[bytes] | None:
    """As `stat_fields`, by the number in /proc: for whoever goes through all that /proc shows."""
    try:
        raw = slurp(f"/proc/{number}/stat")
    except OSError:
        return None
    return raw[raw.rindex(b")") + 2 :].split()


def start_ticks(pid: int) -> int:
    """Field 22 of /proc/pid/stat: start time in clock ticks since boot; with the boot id it names a process."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else 0


def machine_oom_kills() -> int:
    """OOM kills of the whole machine since boot (/proc/vmstat), 0 where it does not say."""
    try:
        lines = slurp("/proc/vmstat").split(b"\n")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(b"oom_kill ")), 0)


def kernel_log_names(pid: int) -> bool | None:
    """Whether the kernel log says that it killed this pid for memory; None when the log cannot be read."""
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    wanted = b"Killed process %d " % pid
    found = False
    try:
        while True:
            try:
                found = wanted in os.read(fd, 8192) or found
            except BrokenPipeError:
                continue  # the ring moved on under us; the next read is the oldest record left
            except OSError:
                return found
    finally:
        os.close(fd)
