"""What the shim asks of the kernel, with builtin modules only: small files, process stat lines, the reaper flag, OOM.

The reaper flag needs prctl(2), for which Python has no call. `_ctypes` alone loads in about 1 ms where `ctypes` takes
6 to 14, and its three functions used here have not changed for many releases; where they are missing, `ctypes` is
used, and where that fails too, the sweep finds orphans by the cookie in their environment.
"""

import os

PR_SET_CHILD_SUBREAPER = 36


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
    """Fields of /proc/pid/stat from the third (state) on, or None when there is no such process."""
    try:
        raw = slurp(f"/proc/{pid}/stat")
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
