"""Processes by proven identity: pid, kernel start time and boot id together, so that a pid used again is never hit.

Starting a part, asking whether it still lives, signalling it, waiting for its end. No policy (when to restart, in which
order to stop) lives here; that is the supervisor's. Called by `supervisor`, `up` and `down`.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.app.disk import FULL
from moorage.domain.errors import Unavailable
from moorage.runners.shimming import procfs

PRIVATE_UMASK = 0o077


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, told apart from every later one of the same pid.

    Args:
        pid: process id.
        started: start time as the kernel gives it (ticks since boot on Linux).
        boot_id: the boot in which pid and start time mean something.
    """

    pid: int
    started: str
    boot_id: str

    def to_wire(self) -> dict[str, Any]:
        """For the record file."""
        return {"pid": self.pid, "started": self.started, "boot_id": self.boot_id}

    @staticmethod
    def from_wire(data: Mapping[str, Any] | None) -> "Identity | None":
        """The reverse; None for anything incomplete (an incomplete identity proves nothing)."""
        if not data or not all(k in data for k in ("pid", "started", "boot_id")):
            return None
        return Identity(int(data["pid"]), str(data["started"]), str(data["boot_id"]))


def identify(pid: int) -> Identity | None:
    """Who runs under this pid now; None when nobody does, or when it has ended and only waits to be collected."""
    if sys.platform.startswith("linux"):
        state, started = _linux_stat(pid)
        return None if state in ("", "Z", "X") else Identity(pid, started, boot_id())
    shown = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    words = shown.stdout.split(maxsplit=1)
    return None if len(words) < 2 or words[0].startswith("Z") else Identity(pid, words[1].strip(), boot_id())


def boot_id() -> str:
    """This boot of this machine (empty where the kernel does not tell)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return ""


def alive(identity: Identity | None) -> bool:
    """Whether exactly this process still runs."""
    return identity is not None and identify(identity.pid) == identity


def waits_for_disk(identity: Identity) -> bool:
    """Whether its main thread is in the kernel, where no signal reaches it (False where the system does not tell)."""
    return sys.platform.startswith("linux") and _linux_stat(identity.pid) == ("D", identity.started)


def watch(identity: Identity) -> int | None:
    """A file descriptor that becomes readable when the process ends; None where the system has none or it is gone.

    The identity is checked again after opening, so the descriptor is of that process or there is none.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        fd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    if alive(identity):
        return fd
    os.close(fd)
    return None


def send(identity: Identity, signum: int) -> bool:
    """Signal exactly this process; False when it is gone. Never reaches a later process of the same pid."""
    fd = watch(identity)
    try:
        if fd is not None:
            signal.pidfd_send_signal(fd, signum)
        elif alive(identity):  # no pidfd on this system: the check just before is the best there is
            os.kill(identity.pid, signum)
        else:
            return False
    except ProcessLookupError:
        return False
    finally:
        if fd is not None:
            os.close(fd)
    return True


def wait_gone(identity: Identity, timeout_s: float) -> bool:
    """Wait until it has ended.

    Args:
        identity: the process.
        timeout_s: seconds to wait at most.
    """
    deadline = time.monotonic() + timeout_s
    fd = watch(identity)
    try:
        while alive(identity):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            # with a pidfd this returns at the exit itself; without one it looks again ten times a second
            select.select([fd] if fd is not None else [], [], [], left if fd is not None else min(left, 0.1))
    finally:
        if fd is not None:
            os.close(fd)
    return True


def require_identities() -> None:
    """Nothing where processes can be told apart.

    Raises:
        Unavailable: they cannot, so that nothing could be stopped or adopted later.
    """
    if sys.platform.startswith("linux") and procfs.depth() is None:
        raise Unavailable(
            "/proc does not show this process, so no process could be told from another, and nothing is started",
            remedy="give this place a /proc of its own: mount -t proc proc /proc",
        )


def start(
    argv: Sequence[str], log: Path, cwd: Path, *, private: bool = False
) -> tuple[subprocess.Popen[bytes], Identity | None]:
    """Start a process in a session of its own that appends its output to `log`; it outlives the caller.

    Where the disk has no room for a new log, the output is lost and the process runs all the same.

    Args:
        argv: its command line.
        log: where its output goes.
        cwd: its working directory.
        private: what it writes is for this user only; else it has the caller's own umask.

    Returns:
        The child and its identity (None when it ended before it could be looked at: waiting for it ends at once).

    Raises:
        Unavailable: processes cannot be told apart here; nothing runs.
    """
    require_identities()
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    out = _open_log(log)
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=cwd,
            start_new_session=True,
            umask=PRIVATE_UMASK if private else -1,
        )
    finally:
        os.close(out)
    identity = identify(child.pid)
    if identity is None and child.poll() is None:
        child.kill()  # a child not waited for yet, so its pid is nobody else's
        child.wait()
        raise Unavailable(f"the system does not tell who process {child.pid} is, so it was ended again")
    return child, identity


def _open_log(log: Path) -> int:
    try:
        return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as cause:
        if cause.errno not in FULL:
            raise
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def python(module: str, *args: str) -> list[str]:
    """The command line of one of our modules under this very interpreter.

    `-P` keeps the working directory out of the import path: a folder that happens to be called like a module of ours
    must not be run in its place.
    """
    return [sys.executable, "-P", "-m", module, *args]


def find_by_command(argv: Sequence[str]) -> list[Identity]:
    """Our own processes (same user) whose command line is exactly this one. Empty where there is no /proc."""
    wanted = b"\0".join(os.fsencode(a) for a in argv) + b"\0"
    found = []
    for number in procfs.numbers():
        entry = Path(f"/proc/{number}")
        try:
            if entry.stat().st_uid == os.getuid() and (entry / "cmdline").read_bytes() == wanted:
                pid = procfs.ours(number)
                identity = identify(pid) if pid else None
                found += [identity] if identity else []
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended, or is not ours, while we looked
    return found


def any_with_variable(name: str, prefix: str) -> bool:
    """Whether a process of this user has an environment variable that begins so. False where there is no /proc."""
    wanted = os.fsencode(f"{name}={prefix}")
    for number in procfs.numbers():
        try:
            variables = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended, or is not ours, while we looked
        if any(variable.startswith(wanted) for variable in variables):
            pid = procfs.ours(number)
            if pid and identify(pid) is not None:
                return True
    return False


def catches(identity: Identity, signum: int) -> bool:
    """Whether the process has a handler of its own for a signal (True where the system does not tell)."""
    try:
        number = procfs.number(identity.pid)
        lines = Path(f"/proc/{number}/status").read_text().splitlines() if number else []
    except (FileNotFoundError, ProcessLookupError):
        return True
    mask = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(mask >> (signum - 1) & 1)


def tail(path: Path, lines: int = 20, limit_bytes: int = 16384, *, since: int = 0) -> str:
    """The last lines of a file (at most `limit_bytes` of it), or an empty text when there is none.

    Args:
        path: the file.
        lines, limit_bytes: how much at most.
        since: leave out what stands before this offset, bytes; a shorter file was begun anew and is taken whole.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit_bytes, since if since <= size else 0))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


def _linux_stat(pid: int) -> tuple[str, str]:
    number = procfs.number(pid)
    if number is None:
        return "", ""
    try:
        text = Path(f"/proc/{number}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    # the program's name stands in brackets and may itself hold spaces and brackets: count from the last one
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], fields[19]
