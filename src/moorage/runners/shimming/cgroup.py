"""A cgroup v2 of the worker's own, where this user may make one."""

import os

from .kernel import fork_into, slurp


class Cgroup:
    """A cgroup v2 of the worker's own where this user may make one: kills a whole tree at once, forks included."""

    def __init__(self, name: str) -> None:
        self.path: str | None = None
        self.directory, self.holds = -1, 0
        parent = self._parent()
        if not parent or not name:
            return
        self._make(f"{parent}/{name}")

    def _make(self, path: str) -> None:
        try:
            os.mkdir(path)
        except FileExistsError:
            pass
        except OSError:
            return
        self.path = path
        self.directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def renew(self) -> None:
        """Make an empty one anew after a kill: some kernels (6.18 among them) kill whatever is born in one later."""
        path = self.path
        if path and self.remove():
            os.close(self.directory)
            self.path, self.directory = None, -1
            self._make(path)

    @staticmethod
    def _parent() -> str | None:
        try:
            own = [line[3:] for line in slurp("/proc/self/cgroup").decode().splitlines() if line.startswith("0::")]
        except OSError:
            return None
        if not own:
            return None
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
            if os.path.exists(f"{root}/cgroup.procs"):
                path = (root + own[0]).rstrip("/")
                return path if os.access(path, os.W_OK) else None
        return None

    def fork(self, *, unseen: bool = False) -> int:
        """As fork, the child being in the cgroup from its first instruction where the kernel can do that.

        Args:
            unseen: see `kernel.fork_into`.

        Raises:
            OSError: it cannot be unseen on this kernel.
        """
        born = fork_into(self.directory, unseen=unseen) if self.path or unseen else None
        if born is None:
            if unseen:
                raise OSError(38, "clone3 is not usable here")
            return os.fork()
        self.holds = born
        return born

    def add(self, pid: int) -> None:
        """Put a process in that was not born there; where that is refused, do without the cgroup."""
        if pid == self.holds:
            return
        if self.path and not self._put("cgroup.procs", str(pid)):
            self.remove()
            self.path, self.directory = None, -1

    def kill(self) -> None:
        """SIGKILL to every member (Linux 5.14 and later; older kernels: the sweep does it)."""
        if self.path:
            self._put("cgroup.kill", "1")

    def members(self) -> list[int]:
        """Pids inside now."""
        try:
            return [int(p) for p in slurp(f"{self.path}/cgroup.procs").split()] if self.path else []
        except OSError:
            return []

    def oom_kills(self) -> int | None:
        """How often the kernel killed for memory in here; None where the memory controller does not say."""
        try:
            lines = slurp(f"{self.path}/memory.events").split(b"\n") if self.path else []
        except OSError:
            return None
        return next((int(line.split()[1]) for line in lines if line.startswith(b"oom_kill ")), None)

    def remove(self) -> bool:
        """Remove it; False while something is inside."""
        if not self.path:
            return True
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def _put(self, name: str, value: str) -> bool:
        try:
            fd = os.open(f"{self.path}/{name}", os.O_WRONLY)
        except OSError:
            return False
        try:
            os.write(fd, value.encode())
        except OSError:
            return False
        finally:
            os.close(fd)
        return True
