"""The command itself: what to run, and the fork that waits at a gate until its identity is on disk."""

import _signal
import os

from .kernel import start_ticks

RESET_SIGNALS = (1, 2, 13, 15, 25)
"""SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGXFSZ: ignored or caught up to here, which the command must not inherit."""


class Launch:
    """What `launch` says: cookie, workdir, cgroup name, then argv and env, each list preceded by its length."""

    def __init__(self, raw: bytes) -> None:
        fields = raw.decode("utf-8", "surrogateescape").split("\0")
        self.cookie, self.workdir, self.cgroup, count = fields[:4]
        split = 4 + int(count)
        self.argv = fields[4:split]
        env_count = int(fields[split])
        pairs = fields[split + 1 : split + 1 + env_count]
        self.env = dict(pair.split("=", 1) for pair in pairs)


class Child:
    """The command: started behind a gate that opens only once its identity is on disk."""

    def __init__(self, launch: Launch, output: int) -> None:
        self.launch = launch
        gate_read, self._gate = os.pipe()
        self._error, error_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(gate_read, error_write, output)
        os.close(gate_read)
        os.close(error_write)
        self.ticks = start_ticks(self.pid)

    def release(self) -> tuple[int, str] | None:
        """Let it execute. None when it did; else (exit code, error text)."""
        os.write(self._gate, b"g")
        os.close(self._gate)
        error = b""
        while part := os.read(self._error, 4096):
            error += part
        os.close(self._error)
        if not error:
            return None
        code, _, text = error.decode("utf-8", "replace").partition(" ")
        return int(code), text

    def _run(self, gate: int, error: int, output: int) -> None:
        code = 126
        try:
            os.setsid()
            for number in RESET_SIGNALS:
                _signal.signal(number, _signal.SIG_DFL)
            _signal.set_wakeup_fd(-1)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            if os.read(gate, 1) != b"g":
                os._exit(125)
            if self.launch.workdir:
                os.chdir(self.launch.workdir)
            argv = self.launch.argv
            os.execvpe(argv[0], argv, self.launch.env)
        except OSError as cause:
            missing = isinstance(cause, FileNotFoundError | NotADirectoryError)
            code = 127 if missing else 126
            what = cause.filename or self.launch.argv[0]
            os.write(error, f"{code} {cause.strerror}: {os.fsdecode(what)}".encode())
        except BaseException as cause:
            os.write(error, f"{code} {type(cause).__name__}: {cause}".encode())
        finally:
            os._exit(code)
