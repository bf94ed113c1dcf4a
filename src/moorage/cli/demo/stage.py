"""Where the demonstration plays: a home of its own in a temporary folder, free ports, and the proof that all is gone.

Nothing outside that folder is written and nothing but its own processes is ended.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moorage.domain.errors import MoorageError

_OWN = ("MOORAGE_",)
MODEL_PORTS = 8


@dataclass(slots=True)
class Stage:
    """A home, its environment and its addresses."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    api_port: int = 0
    gateway_port: int = 0

    @property
    def home(self) -> Path:
        """MOORAGE_HOME of the demonstration."""
        return self.root / "home"

    @property
    def gateway_url(self) -> str:
        """Where questions go."""
        return f"http://127.0.0.1:{self.gateway_port}"

    def moor(self, args: Sequence[str], tell: Callable[[str], None]) -> int:
        """Run a `moor` command in this home.

        Args:
            args: after `moor`.
            tell: called with each line of its output, as it comes.

        Returns:
            Its exit code.
        """
        argv = [sys.executable, "-P", "-m", "moorage.cli.main", *args]
        with subprocess.Popen(
            argv, env=self.env, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as child:
            for line in child.stdout or ():
                tell(line.rstrip("\n"))
        return child.returncode

    def processes(self) -> list[int]:
        """Every process that was started for this home, by its environment or command line, as /proc numbers it."""
        marks = (f"MOORAGE_HOME={self.home}".encode(), os.fsencode(self.root))
        found = []
        me = Path("/proc/self").readlink().name  # not getpid: this /proc may count for another pid namespace
        for entry in Path("/proc").glob("[0-9]*"):
            if entry.name == me:
                continue
            try:
                if (entry / "status").read_text().partition("State:\t")[2][:1] == "Z":
                    continue
                text = (entry / "environ").read_bytes() + b"\0" + (entry / "cmdline").read_bytes()
            except OSError:
                continue  # ended meanwhile, or not ours to look into
            if any(mark in text for mark in marks):
                found.append(int(entry.name))
        return sorted(found)

    def kill(self, number: int) -> None:
        """End a process that `processes` has just named.

        Its directory in /proc, held open, is as good as a pidfd: it never comes to mean another process, and the kernel
        refuses it for processes outside of our pid namespace.
        """
        try:
            fd = os.open(f"/proc/{number}", os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return
        try:
            if number in self.processes():  # it is still that one, now that the descriptor holds it
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            os.close(fd)

    def remove(self) -> None:
        """Take the folder away."""
        shutil.rmtree(self.root, ignore_errors=False)


def set_up(env: Mapping[str, str]) -> Stage:
    """Make the folder and choose free ports.

    Args:
        env: the caller's environment; what it says about another Moorage is left out.
    """
    stage = Stage(Path(tempfile.mkdtemp(prefix="moorage-demo-")))
    # held together, so that they differ from each other
    with _Ports(2) as pair:
        stage.api_port, stage.gateway_port = pair.ports
    low = _free_range(MODEL_PORTS)
    stage.env = {k: v for k, v in env.items() if not k.startswith(_OWN)} | {
        "MOORAGE_HOME": str(stage.home),
        "MOORAGE_API": f"127.0.0.1:{stage.api_port}",
        "MOORAGE_GATEWAY": f"127.0.0.1:{stage.gateway_port}",
        "MOORAGE_AGENT_PORTS": f"{low}-{low + MODEL_PORTS - 1}",
    }
    return stage


def kill_server(pid: int, mark: str) -> float:
    """`kill -9` a model server of this demonstration, once its command line proves that it is one.

    Returns:
        The time of it (seconds since the epoch).

    Raises:
        MoorageError: that process is not a model server of ours.
    """
    fd = os.pidfd_open(pid)  # from here on the pid cannot come to mean another process
    try:
        command = Path(f"/proc/{_shown(fd)}/cmdline").read_bytes().split(b"\0")
        if mark.encode() not in command:
            raise MoorageError(f"process {pid} is not the model server of this demonstration; it is left alone")
        at = time.time()
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return at
    finally:
        os.close(fd)


def _shown(pidfd: int) -> str:
    """What this /proc, which may be of another pid namespace, calls the process of a pidfd."""
    lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Pid:"))


class _Ports:
    """Free ports, held until they are all known."""

    def __init__(self, count: int) -> None:
        self.sockets = [socket.socket() for _ in range(count)]

    def __enter__(self) -> "_Ports":
        for one in self.sockets:
            one.bind(("127.0.0.1", 0))
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.sockets:
            one.close()

    @property
    def ports(self) -> list[int]:
        """Their numbers."""
        return [one.getsockname()[1] for one in self.sockets]


def _free_range(count: int) -> int:
    """The first of `count` free ports in a row."""
    for low in range(18100, 32000, count):
        taken = False
        for port in range(low, low + count):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    taken = True
                    break
        if not taken:
            return low
    raise MoorageError("no free ports on this machine", remedy="end what uses them, and try again")
