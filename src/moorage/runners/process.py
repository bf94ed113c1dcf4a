"""Plain processes: starting them through the shim, finding them again, stopping whole trees, hearing of exits at once.

`ProcessHost.start` and `ProcessHost.adopt` give a `HostedProcess`, which says through its futures what is known:
`running` (the command executes), `exited` (how it ended), `gone` (its whole tree is proven empty). Nothing here
restarts, reports or decides. Called by the agent; the runner library builds on the same class.

Proof of identity, before anything is signalled: the shim holds a record lock in the worker's own directory and is
spoken to through a FIFO there, so no pid is involved; without a shim every process is pinned by a pidfd and must carry
the worker's cookie.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from moorage.domain.errors import RunnerError
from moorage.ports import Clock
from moorage.runners.holders import require_free
from moorage.runners.hosted import HostedProcess
from moorage.runners.identity import COOKIE_VARIABLE
from moorage.runners.port import LaunchIntent, Prepared, PullProgress

__all__ = ["LaunchIntent", "Leash", "ProcessHost"]

SHIM = Path(__file__).with_name("shim.py")


@dataclass(frozen=True, slots=True)
class Leash:
    """How what is started ends when the process that started it does, however that happens.

    Args:
        signal: sent to the command's group.
        grace_s: seconds until the whole tree is killed.
    """

    signal: int
    grace_s: float


class ProcessHost:
    """Starts and adopts processes on this machine.

    Args:
        clock: for graces and pauses.
        python: interpreter that runs the shim.
        spare: keep one shim ready, so that a start does not wait for an interpreter.
        leash: what is started ends with this process (the runner library); None: it outlives it (the agent).
    """

    def __init__(
        self, clock: Clock, *, python: str = sys.executable, spare: bool = True, leash: Leash | None = None
    ) -> None:
        self._clock = clock
        self._leash = leash
        self._pipe = os.pipe() if leash else None
        self._python = python
        self._keep_spare = spare
        self._spare: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """As a spec's `runner` names it."""
        return "process"

    async def prepare(self, intent: LaunchIntent, on_pull: Callable[[PullProgress], None] | None = None) -> Prepared:
        """A process needs nothing fetched."""
        return Prepared()

    async def start(self, intent: LaunchIntent) -> HostedProcess:
        """Start a command. Returns once its shim has the order; the futures of the result tell the rest.

        The caller has written its own durable note of this attempt (folder and cookie) before.

        Raises:
            PortUnavailable: somebody listens on the intent's port.
            RunnerError: no shim could be started, or the directory cannot be written.
        """
        if intent.port is not None:
            require_free(intent.port)
        try:
            _prepare(intent, self._leash_numbers())
            shim = self._order(intent.folder)
        except OSError as cause:
            (intent.folder / "launch").unlink(missing_ok=True)  # it may hold secrets, and nobody is going to read it
            raise RunnerError(f"cannot start a process in {intent.folder}: {cause}", code="create_failed") from cause
        process = HostedProcess(intent.folder, intent.cookie, self._clock, shim=shim, leashed=self._leash is not None)
        process.watch()
        if self._keep_spare:
            # Not before this one runs: an interpreter that starts would take the CPU from it.
            process.running.add_done_callback(lambda _: self._fill_spare())
        return process

    async def adopt(self, folder: Path, cookie: str) -> HostedProcess | None:
        """Find again what was started in `folder`, whoever started it then.

        Returns:
            The process, alive or not, with what is proven about it; None when it is proven that nothing was ever
            executed there and, from now on, nothing can be.
        """
        process = HostedProcess(folder, cookie, self._clock)
        if not process.adopt():
            (folder / "launch").unlink(missing_ok=True)  # written and never read: it may hold secrets
            return None
        return process

    def close(self) -> None:
        """Let the spare shim go. What runs goes on running, unless it is on a leash: that ends now."""
        self._keep_spare = False
        if self._spare is not None:
            _dismiss(self._spare)
            self._spare = None
        if self._pipe is not None:
            for fd in self._pipe:
                os.close(fd)
            self._pipe = None

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def _leash_numbers(self) -> list[int]:
        if self._leash is None or self._pipe is None:
            return []
        return [os.getpid(), self._pipe[0], self._leash.signal, max(0, int(self._leash.grace_s * 1000))]

    def _order(self, folder: Path) -> subprocess.Popen[bytes]:
        """Give the order to the spare shim, or to a fresh one where there is none or it has died."""
        order = os.fsencode(folder.absolute()) + b"\n"
        spare, self._spare = self._spare, None
        if spare is not None and spare.poll() is None:
            try:
                _tell(spare, order)
            except BrokenPipeError:
                spare.wait()
            else:
                return spare
        fresh = self._spawn()
        _tell(fresh, order)
        return fresh

    def _fill_spare(self) -> None:
        if self._spare is None and self._keep_spare:
            self._spare = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self._python, "-I", "-S", str(SHIM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            close_fds=True,
            pass_fds=self._pipe[:1] if self._pipe else (),
            bufsize=0,
        )


def _tell(shim: subprocess.Popen[bytes], order: bytes) -> None:
    assert shim.stdin is not None
    shim.stdin.write(order)
    shim.stdin.close()


def _dismiss(shim: subprocess.Popen[bytes]) -> None:
    """A shim whose input ends before an order exits by itself."""
    assert shim.stdin is not None
    shim.stdin.close()
    shim.wait()


def _prepare(intent: LaunchIntent, leash: list[int]) -> None:
    folder = intent.folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("control", "events"):
        if not (folder / name).exists():
            os.mkfifo(folder / name, 0o600)
    env = {**intent.env, COOKIE_VARIABLE: intent.cookie}
    fields = [intent.cookie, intent.workdir or "", f"moorage-{intent.cookie}", str(len(intent.argv)), *intent.argv]
    fields += [str(len(env)), *(f"{k}={v}" for k, v in env.items()), str(len(intent.mounts))]
    fields += [text for m in intent.mounts for text in (m.source, m.target, "ro" if m.read_only else "")]
    fields += map(str, leash)
    if any("\0" in field for field in fields):  # which one is not said: it may be a secret
        raise RunnerError("an argument or variable has a NUL byte in it", code="start_invalid")
    fd = os.open(folder / "launch", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as out:
        out.write("\0".join(fields).encode("utf-8", "surrogateescape"))
