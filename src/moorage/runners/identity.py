"""Who a process is: pid, kernel start ticks and boot id, and the cookie it carries; and how it ended.

A pid alone names nobody: it is given away again. Pid, start ticks (field 22 of /proc/pid/stat) and boot id together
name one process for ever. Used by `process.py`, `strays.py` and the agent's ledger; signals nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import slurp, start_ticks, stat_fields

COOKIE_VARIABLE = "MOORAGE_COOKIE"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of one boot, and the shim above it."""

    pid: int
    start_ticks: int
    boot_id: str
    shim_pid: int
    shim_ticks: int
    cgroup: str = ""

    def to_wire(self) -> dict[str, Any]:
        """As reports carry it."""
        return {"pid": self.pid, "start_ticks": self.start_ticks, "boot_id": self.boot_id, "shim_pid": self.shim_pid}


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended.

    Args:
        code: exit code as a shell shows it (128 + n for signal n); None when nothing says how it ended.
        signal: the signal that ended it, or 0.
        oom: the kernel killed it for memory.
        stopped: it was asked to stop before it ended.
        error: why it could not be executed (`code` is then 126 or 127), or why its end is unknown.
        at_ms: when, in milliseconds since the epoch; 0 when not known.
        missing: it was found removed from outside (a container), so that nothing can say how it ended.
    """

    code: int | None
    signal: int = 0
    oom: bool = False
    stopped: bool = False
    error: str = ""
    at_ms: int = 0
    missing: bool = False

    @property
    def executed(self) -> bool:
        """Whether the command ran at all."""
        return self.code is not None and not self.error


def read_fields(text: str) -> dict[str, str]:
    """`key=value` lines (or the same separated by spaces with `error` last) as a mapping."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def identity_from(fields: Mapping[str, str]) -> ProcessIdentity:
    """What the shim wrote into `identity`."""
    return ProcessIdentity(
        pid=int(fields["pid"]),
        start_ticks=int(fields["start_ticks"]),
        boot_id=fields["boot_id"],
        shim_pid=int(fields["shim_pid"]),
        shim_ticks=int(fields["shim_ticks"]),
        cgroup=fields.get("cgroup", ""),
    )


def exit_from(fields: Mapping[str, str]) -> Exit:
    """What the shim wrote into `exit`."""
    return Exit(
        code=int(fields["code"]),
        signal=int(fields["signal"]),
        oom=fields["oom"] == "1",
        stopped=fields["stopped"] == "1",
        error=fields.get("error", "").encode().decode("unicode_escape"),
        at_ms=int(fields["at_ms"]),
    )


def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def alive(pid: int, ticks: int) -> bool:
    """Whether exactly this process is there and not a zombie."""
    fields = stat_fields(pid)
    return bool(fields) and int(fields[19]) == ticks and fields[0] not in b"ZX" if fields else False


def exists(pid: int, ticks: int) -> bool:
    """Whether exactly this process is there, dead but not yet reaped included."""
    return ticks > 0 and start_ticks(pid) == ticks


def carries_cookie(pid: int, cookie: str) -> bool:
    """Whether the process was started with this cookie in its environment."""
    number = procfs.number(pid)
    return number is not None and shown_cookie(number, cookie)


def shown_cookie(number: int, cookie: str) -> bool:
    """As `carries_cookie`, by the number in /proc (see `shimming/procfs.py`)."""
    try:
        return f"{COOKIE_VARIABLE}={cookie}".encode() in slurp(f"/proc/{number}/environ").split(b"\0")
    except OSError:
        return False


def parent_of(pid: int) -> int:
    """Pid of the parent, 0 when there is no such process."""
    fields = stat_fields(pid)
    return (procfs.ours(int(fields[1])) or 0) if fields else 0
