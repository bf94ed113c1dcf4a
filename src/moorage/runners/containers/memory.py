"""Out of memory, told by the kernel: the counter of the container's cgroup, held open from the start.

An engine's own word is not enough: podman with cgroup v1 says `OOMKilled: false` after a kill for memory. The cgroup
goes with the container, so its file is opened while the container runs, and with cgroup v1 a notification is asked for
that stays readable when the file is not. Where neither can be had, the kernel's log is asked for the pid.
"""

import os
from pathlib import Path

from moorage.runners.shimming.kernel import kernel_log_names, slurp

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


def groups_of(pid: int) -> dict[str, str]:
    """Controller (`memory`, or empty for cgroup v2) → path, of one process; empty when it is gone."""
    try:
        lines = slurp(f"/proc/{pid}/cgroup").decode().splitlines()
    except OSError:
        return {}
    out: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        out |= dict.fromkeys(controllers.split(","), path)
    return out


def own_cgroup(pid: int, container: str) -> str:
    """Directory of the container's own cgroup, or empty where there is none that is only its own."""
    path = groups_of(pid).get("", "")
    if container not in path:
        return ""
    return next((f"{root}{path}" for root in _V2 if (root / path[1:] / "cgroup.procs").exists()), "")


class MemoryWatch:
    """Holds the counters of one container's cgroup.

    Args:
        pid: the container's first process, while it lives.
        container: id of the container; a cgroup that does not carry it is somebody else's too.
    """

    def __init__(self, pid: int, container: str) -> None:
        self._pid = pid
        self._counter = -1
        self._notices = -1
        groups = groups_of(pid)
        if container in groups.get("memory", ""):
            self._open_v1(_V1 / groups["memory"][1:])
        elif container in groups.get("", ""):
            self._open(*(root / groups[""][1:] / "memory.events" for root in _V2))

    def _open_v1(self, folder: Path) -> None:
        self._open(folder / "memory.oom_control")
        if self._counter < 0:
            return
        notices = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            (folder / "cgroup.event_control").write_text(f"{notices} {self._counter}")
        except OSError:
            os.close(notices)  # the kernel no longer has it: the counter alone must do
        else:
            self._notices = notices

    def _open(self, *paths: Path) -> None:
        for path in paths:
            try:
                self._counter = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            return

    def killed(self) -> bool:
        """Whether the kernel killed for memory in there, as far as anything still tells."""
        counted = self._count()
        if counted is not None:
            return counted > 0
        # The cgroup is gone, which is one notice by itself; a kill before that was another.
        return self._notice_count() > 1 or bool(kernel_log_names(self._pid))

    def _count(self) -> int | None:
        if self._counter < 0:
            return None
        try:
            lines = os.pread(self._counter, 4096, 0).split(b"\n")
        except OSError:
            return None
        return next((int(line.split()[1]) for line in lines if line.startswith(b"oom_kill ")), None)

    def _notice_count(self) -> int:
        if self._notices < 0:
            return 0
        try:
            return os.eventfd_read(self._notices)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Let go of the files."""
        for fd in (self._counter, self._notices):
            if fd >= 0:
                os.close(fd)
        self._counter = self._notices = -1
