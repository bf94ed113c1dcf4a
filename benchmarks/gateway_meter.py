"""What processes use: CPU of a process and its children, their memory, and which cores they may run on.

Here: reading the kernel's counts, cores. Not here: loads (`gateway_load`), what is made of the figures
(`gateway_report`). Called by the gateway's benchmark.
"""

import contextlib
import os
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_CPUCLOCK_SCHED = 2
"""<linux/posix-timers.h>: of a process's clocks the one that counts what the scheduler gave it, in nanoseconds."""


@dataclass(frozen=True)
class Cores:
    """Who runs where: `gateway` for the one under test, `load` for all around it; the same where there is but one."""

    gateway: frozenset[int]
    load: frozenset[int]

    @classmethod
    def of_this_machine(cls) -> "Cores":
        """The first core that this process may use for the gateway, the others for the load."""
        first, *others = sorted(os.sched_getaffinity(0))
        return cls(frozenset({first}), frozenset(others or {first}))

    def __str__(self) -> str:
        if self.gateway == self.load:
            return "one core for all"
        return f"each gateway alone on core {min(self.gateway)}, clients and upstreams on {sorted(self.load)}"


@contextlib.contextmanager
def on(cores: frozenset[int]) -> Iterator[None]:
    """Processes that are started within run there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def tree_of(pid: int) -> list[int]:
    """The process and all that came of it."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += tree_of(int(child))
    return found


@dataclass(frozen=True)
class Used:
    """CPU used by a process and its children.

    Args:
        cpu_s: seconds, in nanosecond steps; threads that ended are counted.
        user_ticks, kernel_ticks: the same by where it was spent, in steps of 10 ms.
    """

    cpu_s: float = 0.0
    user_ticks: int = 0
    kernel_ticks: int = 0

    @classmethod
    def of(cls, pid: int | None) -> "Used":
        """Until now. None: of nobody."""
        seconds, user, kernel = 0.0, 0, 0
        for each in tree_of(pid) if pid is not None else ():
            seconds += time.clock_gettime((~each << 3) | _CPUCLOCK_SCHED)
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            user, kernel = user + int(fields[11]), kernel + int(fields[12])
        return cls(seconds, user, kernel)

    def since(self, before: "Used") -> "Used":
        """What was used between the two."""
        return Used(
            self.cpu_s - before.cpu_s, self.user_ticks - before.user_ticks, self.kernel_ticks - before.kernel_ticks
        )

    @property
    def kernel_percent(self) -> float:
        """Of the CPU time, what was spent in the kernel."""
        return 100 * self.kernel_ticks / max(1, self.user_ticks + self.kernel_ticks)


def core_s(core: int) -> float:
    """Seconds that a core was not idle, since the machine began."""
    line = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(f"cpu{core} "))
    user, nice, system, _, _, interrupts, soft_interrupts, *_ = map(int, line.split()[1:])
    return (user + nice + system + interrupts + soft_interrupts) / os.sysconf("SC_CLK_TCK")


class Strangers:
    """How much of a core was used by others than those known.

    Args:
        core: which.
        pids: of those known.
    """

    def __init__(self, core: int, pids: Sequence[int]) -> None:
        self._core, self._pids = core, pids
        self._before = (0.0, 0.0, 0.0)
        self.percent()

    def percent(self) -> float:
        """Of the time since this was asked last."""
        now = time.monotonic(), core_s(self._core), sum(Used.of(pid).cpu_s for pid in self._pids)
        wall_s, busy_s, known_s = (after - before for after, before in zip(now, self._before, strict=True))
        self._before = now
        return max(0.0, 100 * (busy_s - known_s) / wall_s)


def pss_bytes(pid: int) -> int:
    """Memory of a process and its children; a page that some share is counted once. Sockets' buffers are not in it."""
    total = 0
    for each in tree_of(pid):
        for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def prefer(nice: int) -> None:
    """Let this process, and those that it starts, come before others by so much (a negative number of `nice`).

    Where the kernel shares cores by sessions first (autogroups), that of this session is set as well.
    """
    os.nice(nice)
    group = Path("/proc/self/autogroup")
    if nice and group.exists():
        group.write_text(str(nice))


def raise_file_limit() -> int:
    """Let this process, and those that it starts, have as many files open as they may.

    Returns:
        How many.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
