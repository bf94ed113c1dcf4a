"""The command itself: what to run, and the fork that waits at a gate: until its identity is on disk or, as a standby,
until the one before it has ended.
"""

import _signal
import os

from .cgroup import Cgroup
from .kernel import WALL, start_ticks

RESET_SIGNALS = (1, 2, 3, 13, 15, 25)
"""SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGXFSZ: ignored or caught so far, which the command must not inherit."""


class Launch:
    """What `launch` says: cookie, workdir, cgroup name, then argv, env and mounts, each list preceded by its length.

    A mount is three fields: source, target and `ro` or nothing.

    Four numbers may follow: the leash (see `leash.py`). A leashed life is told, and never waits for the disk: whoever
    it is of any use to has ended before the machine is started again.
    """

    def __init__(self, raw: bytes) -> None:
        fields = raw.decode("utf-8", "surrogateescape").split("\0")
        self.cookie, self.workdir, self.cgroup, count = fields[:4]
        split = 4 + int(count)
        self.argv = fields[4:split]
        env_count = int(fields[split])
        pairs = fields[split + 1 : split + 1 + env_count]
        self.env = dict(pair.split("=", 1) for pair in pairs)
        split += 1 + env_count
        mount_end = split + 1 + 3 * int(fields[split])
        flat = fields[split + 1 : mount_end]
        self.mounts = [(flat[i], flat[i + 1], flat[i + 2] == "ro") for i in range(0, len(flat), 3)]
        self.leash = [int(number) for number in fields[mount_end:]]


class Child:
    """The command: started behind a gate that opens only once its identity is on disk.

    Args:
        launch: what to run.
        output: where its output goes.
        cgroup: where it is born.
        standby: it may wait long, beside the command that it will follow; see `kernel.fork_into`.
    """

    def __init__(self, launch: Launch, output: int, cgroup: Cgroup, *, standby: bool = False) -> None:
        self.launch = launch
        gate_read, self._gate = os.pipe()
        self._error, error_write = os.pipe()
        self.pid = cgroup.fork(unseen=standby)
        if self.pid == 0:
            self._run(gate_read, error_write, output)
        os.close(gate_read)
        os.close(error_write)
        self.ticks = start_ticks(self.pid)

    def release(self) -> None:
        """Let it execute."""
        try:
            os.write(self._gate, b"g")
        except BrokenPipeError:
            pass  # it met its error before the gate, and has said so
        os.close(self._gate)

    def failure(self) -> tuple[int, str] | None:
        """After `release`, once it has executed: None when it did; else it is gone, with (exit code, error text)."""
        error = b""
        while part := os.read(self._error, 4096):
            error += part
        os.close(self._error)
        if not error:
            return None
        os.waitpid(self.pid, WALL)
        code, _, text = error.decode("utf-8", "replace").partition(" ")
        return int(code), text

    def dismiss(self) -> None:
        """A standby that is not needed: it sees its gate closed and ends."""
        os.close(self._gate)
        os.close(self._error)
        os.waitpid(self.pid, WALL)

    def _run(self, gate: int, error: int, output: int) -> None:
        code = 126
        try:
            os.setsid()
            os.close(self._gate)  # so that the shim's death closes it
            for number in RESET_SIGNALS:
                _signal.signal(number, _signal.SIG_DFL)
            _signal.set_wakeup_fd(-1)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            if self.launch.mounts:
                from . import mounts

                mounts.enter(self.launch.mounts)
            if self.launch.workdir:
                enter(self.launch.workdir)
            argv, env = [os.fsencode(word) for word in self.launch.argv], _encoded(self.launch.env)
            path = os.fsencode(which(self.launch))
            try:
                os.execve(b"/", argv, env)
            except OSError:
                pass  # as it must: what the real one touches was copied for this process before the gate, not after it
            if os.read(gate, 1) != b"g":
                os._exit(125)
            os.execve(path, argv, env)
        except NoWorkdir as cause:
            os.write(error, f"{code} {cause}".encode("utf-8", "replace"))
        except OSError as cause:
            missing = isinstance(cause, FileNotFoundError | NotADirectoryError)
            code = 127 if missing else 126
            what = cause.filename or self.launch.argv[0]
            os.write(error, f"{code} {cause.strerror}: {os.fsdecode(what)}".encode())
        except BaseException as cause:
            os.write(error, f"{code} {type(cause).__name__}: {cause}".encode())
        finally:
            os._exit(code)


class NoWorkdir(Exception):
    """The command's working directory cannot be entered; the text says why."""


def enter(workdir: str) -> None:
    """Go to the command's working directory.

    Raises:
        NoWorkdir: said apart from a command that is missing, for which the system has the same words.
    """
    try:
        os.chdir(workdir)
    except FileNotFoundError:
        raise NoWorkdir(f"its working directory {workdir} does not exist on this machine") from None
    except NotADirectoryError:
        raise NoWorkdir(f"its working directory {workdir} is not a directory on this machine") from None
    except OSError as cause:
        why = (cause.strerror or str(cause)).lower()
        raise NoWorkdir(f"its working directory {workdir} cannot be entered: {why}") from None


def which(launch: Launch) -> str:
    """The program's path by the command's own PATH; without one that is executable, one that is there."""
    name = launch.argv[0]
    if "/" in name:
        return name
    found = [f"{folder or '.'}/{name}" for folder in launch.env.get("PATH", os.defpath).split(":")]
    found = [path for path in found if os.path.isfile(path)]
    if not found:
        raise FileNotFoundError(2, "No such file or directory", name)
    return next((path for path in found if os.access(path, os.X_OK)), found[0])


def _encoded(env: dict[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
