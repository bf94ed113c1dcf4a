"""The first process of a container, where this machine sees it: its end at once, and whether memory was the cause.

A rootful engine on this machine shows the real pid; a remote one, or one in a virtual machine, does not, and then the
engine's events and the poll must do. Made by `hosted`.
"""

import asyncio
import os
from collections.abc import Callable

from moorage.runners.containers.memory import MemoryWatch, own_cgroup
from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import start_ticks


class FirstProcess:
    """One process, pinned.

    Args:
        pid: as the engine gives it.
        container: id of its container.
        on_end: called once when it has ended.

    Raises:
        OSError: this machine has no such process (any more), or nothing tells whose pids the engine's are.
    """

    def __init__(self, pid: int, container: str, on_end: Callable[[], object]) -> None:
        if procfs.depth() != 0:  # the engine may be of the namespace that /proc shows, or of ours: no way to tell
            raise ProcessLookupError("pids are counted differently here and in /proc")
        self._fd = os.pidfd_open(pid)
        self.pid = pid
        self.start_ticks = start_ticks(pid)
        self.cgroup = own_cgroup(pid, container)
        self._memory = MemoryWatch(pid, container)
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._ended)

    def killed_for_memory(self) -> bool:
        """Whether the kernel killed in its cgroup for memory, as far as anything still tells."""
        return self._memory.killed()

    def _ended(self) -> None:
        self.unwatch()
        self._on_end()

    def unwatch(self) -> None:
        """Wait for its end no more."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Let go of all of it."""
        self.unwatch()
        self._memory.close()
