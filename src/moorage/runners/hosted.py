"""One hosted process: what is known of it, from its shim's files and FIFO, or from the kernel when the shim is dead.

Made by `process.ProcessHost`. Files are the truth and the FIFO only says that there is news, so a reader that comes
late (a restarted agent) learns the same. See `shimming/life.py` for the files.
"""

import asyncio
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from moorage.domain.errors import RunnerError
from moorage.ports import Clock
from moorage.runners import logfile, strays
from moorage.runners.beside import ProcessCommand
from moorage.runners.identity import (
    Exit,
    ProcessIdentity,
    alive,
    boot_id,
    carries_cookie,
    exists,
    exit_from,
    identity_from,
    parent_of,
    read_fields,
)
from moorage.runners.port import CommandOrder
from moorage.runners.shimming.kernel import write_whole

DIED = "its shim died before it could write down how the command ended"
REBOOTED = "the machine was restarted while it ran"


class HostedProcess:
    """A command under a shim.

    Attributes:
        running: done once the command executes (or it is known that it never will: then `exited` is done too).
        exited: how the command ended; done at once when it does.
        gone: done when no process of the tree is left, proven.
        evidence: lines that say why this is believed to be what it is; for the log.
        successor: what its shim started in its place under a grant; set before `exited` and `gone` are done.
        first_line: number of the first line of the log that is its own.
        end_line: number after its last line, once it has a successor in the same log.
    """

    def __init__(
        self,
        folder: Path,
        cookie: str,
        clock: Clock,
        *,
        shim: subprocess.Popen[bytes] | None = None,
        leashed: bool = False,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.folder = folder
        self.cookie = cookie
        self.identity: ProcessIdentity | None = None
        self.running: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[Exit] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.evidence: list[str] = []
        self.successor: HostedProcess | None = None
        self.first_line = 1
        self.end_line: int | None = None
        self._leashed = leashed
        self._clock = clock
        self._loop = loop
        self._shim = shim
        self._fds: dict[str, int] = {}
        self._buffer = b""
        self._sweep: asyncio.Task[None] | None = None
        self._collected = asyncio.Event()
        self._untold: list[bytes] = []

    # What is known

    @property
    def alive(self) -> bool:
        """Whether the command itself was not seen to end."""
        return not self.exited.done()

    @property
    def rebooted(self) -> bool:
        """Whether it was started before the machine's last start."""
        return self.identity is not None and self.identity.boot_id != boot_id()

    def seen_alive(self) -> bool:
        """Look at the kernel now: is exactly this process there?"""
        known = self.identity
        return known is not None and not self.rebooted and alive(known.pid, known.start_ticks)

    async def lines(self, *, lines: int = 200, after: int | None = None) -> logfile.LogSlice:
        """Lines of its log, read in a thread; see `logfile.read`."""
        ended = self.gone.done()
        return await asyncio.to_thread(logfile.read, self.folder, lines=lines, after=after, partial=ended)

    async def beside(self, order: CommandOrder) -> ProcessCommand:
        """Run a command beside it; see `runners.port.Hosted`."""
        known = self.identity
        if known is None or self.exited.done() or not self.seen_alive():
            raise RunnerError("it does not run any more", code="not_running")
        command = ProcessCommand(known, order)
        self.exited.add_done_callback(command.end_now)
        return command

    # Stopping

    async def stop(self, signal: int, grace_s: float) -> None:
        """Ask for the end: the signal to the command's group, SIGKILL to the whole tree after the grace.

        Returns when that is under way; `gone` tells the end. Calling again can only shorten the grace.
        """
        if self.gone.done():
            return
        if not self._tell(f"stop {signal} {max(0, int(grace_s * 1000))}\n".encode()):
            self.evidence.append("the shim is dead: its processes are ended one by one, by cookie")
            self._end_strays(signal, grace_s)

    def grant(self, restarts: int, *, always: bool = False) -> None:
        """Let the shim start the command again by itself, at once, so many times; the latest grant counts.

        Args:
            restarts: how often; 0 takes an earlier grant back.
            always: also after exit 0.
        """
        self._tell(f"grant {restarts} {int(always)}\n".encode())

    def _tell(self, line: bytes) -> bool:
        """An order for the shim, kept for it where it has only just been started and does not read yet."""
        if self._order(line):
            return True
        if self.identity is None and not self.exited.done():
            self._untold.append(line)
            return True
        return False

    def _order(self, line: bytes) -> bool:
        """Write to the shim. False when no shim reads there."""
        try:
            fd = os.open(self.folder / "control", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            os.write(fd, line)
        finally:
            os.close(fd)
        return True

    # Watching a live shim

    def watch(self) -> None:
        """Hear of news at once: the shim's FIFO, and the shim's own end."""
        fd = os.open(self.folder / "events", os.O_RDONLY | os.O_NONBLOCK)
        self._fds["events"] = fd
        self._loop.add_reader(fd, self._on_events)
        pid = self._shim.pid if self._shim is not None else self.identity.shim_pid if self.identity else 0
        self._watch_pid("shim", pid, self._on_shim_end)

    def _watch_pid(self, name: str, pid: int, then: Callable[[], None]) -> bool:
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            self._loop.call_soon(then)
            return False
        self._fds[name] = fd
        self._loop.add_reader(fd, then)
        return True

    def _unwatch(self, *names: str) -> None:
        for name in names:
            fd = self._fds.pop(name, None)
            if fd is not None:
                self._loop.remove_reader(fd)
                os.close(fd)

    def _on_events(self) -> None:
        try:
            data = os.read(self._fds["events"], 1 << 16)
        except BlockingIOError:
            return
        if not data:  # no writer: the shim is gone
            self._unwatch("events")
            if "shim" not in self._fds and not self.gone.done():
                self._on_shim_end()
            return
        self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for at, line in enumerate(lines):
            if line.startswith(b"again "):
                self._on_again(line.decode("utf-8", "replace"), lines[at + 1 :])
                return
            self._on_event(line.decode("utf-8", "replace"))

    def _on_event(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "identity":
            self._read_identity()
        elif word == "running":
            self._done_running()
        elif word == "exit":
            fields = dict(pair.split("=", 1) for pair in rest.split(" ", 5))
            self._done_exited(exit_from({**fields, "error": fields.get("error", "").rstrip()}))
        elif word == "exited":
            self._read_exit()
        elif word == "gone":
            self._done_gone()

    def _on_again(self, line: str, rest: list[bytes]) -> None:
        """The shim has started the command again: the next one watches from here on, and reads the rest."""
        fields = dict(pair.split("=", 1) for pair in line.split(" ", 9)[1:])
        known = self.identity
        after = HostedProcess(self.folder, self.cookie, self._clock, shim=self._shim, leashed=self._leashed)
        if known is not None:
            after.identity = replace(known, pid=int(fields["next_pid"]), start_ticks=int(fields["next_ticks"]))
        self.end_line = after.first_line = int(fields["line"])
        after._buffer = b"".join(part + b"\n" for part in rest) + self._buffer
        self.successor, self._shim, self._buffer = after, None, b""
        self._unwatch(*self._fds)
        after.watch()
        after._done_running()
        self._done_exited(exit_from({**fields, "error": fields.get("error", "").rstrip()}))
        self._done_gone()
        after._take_in(b"")

    def _on_shim_end(self) -> None:
        """The shim has ended: after its work, or by violence."""
        self._unwatch(*self._fds)
        if self._shim is not None:
            self._shim.wait()
            self._collected.set()
        if self.gone.done():
            return  # what its files say is known, and they may be removed by now
        self._read_identity()
        self._read_exit()
        if (self.folder / "gone").exists():
            if not self.exited.done():
                self._done_exited(Exit(None, error=DIED))
            self._done_gone()
        else:
            self._without_shim()

    # Without a shim

    def _without_shim(self) -> None:
        """Go on without the shim: watch the command by its proven identity; its exit code is lost."""
        known = self.identity
        if self.exited.done() or known is None or self._leashed:
            self._on_unknown_end()  # without its shim nothing would end it with its owner, so it ends now
        elif not exists(known.pid, known.start_ticks):
            self.evidence.append(f"pid {known.pid} is gone or another process (start ticks differ)")
            self._on_unknown_end()
        elif self._watch_pid("command", known.pid, self._on_unknown_end):
            proof = "cookie" if carries_cookie(known.pid, self.cookie) else "start ticks only: watched, never signalled"
            self.evidence.append(f"pid {known.pid} is alive without its shim, known by {proof}")
            self._done_running()

    def _on_unknown_end(self) -> None:
        self._unwatch(*self._fds)
        if not self.exited.done():
            self._done_exited(Exit(None, error=self._shim_error() or DIED))
        self._end_strays(9, 0.0)

    def _shim_error(self) -> str:
        """Last line of what the shim itself complained of, if it did."""
        try:
            lines = (self.folder / "shim.err").read_text(errors="replace").strip().splitlines()
        except FileNotFoundError:
            return ""
        return f"{DIED} ({lines[-1][:500]})" if lines else ""

    def _end_strays(self, signal: int, grace_s: float) -> None:
        if self._sweep is None or self._sweep.done():
            self._sweep = self._loop.create_task(self._sweep_strays(signal, grace_s))

    async def _sweep_strays(self, signal: int, grace_s: float) -> None:
        cgroup = self.identity.cgroup if self.identity else ""
        await strays.end(self.cookie, cgroup, signal, grace_s, self._clock)
        known = self.identity
        if known is not None and not self.rebooted and alive(known.pid, known.start_ticks):
            self.evidence.append(f"pid {known.pid} does not carry the cookie any more: left alone until it ends")
            return  # `_on_unknown_end` comes here again once it does
        strays.remove_cgroup(cgroup)
        write_whole(str(self.folder / "gone"), "", sync=True)
        self._done_gone()

    # Finding it again

    def adopt(self) -> bool:
        """Read what is on disk, and watch what is alive. False: nothing ever ran here, and nothing will."""
        self._read_identity()
        self._read_exit()
        if (self.folder / "gone").exists():
            self.evidence.append("its tree was proven empty before")
            self._on_shim_end()
        elif self.rebooted:
            self.evidence.append("boot id differs: everything it had is gone")
            self._done_exited(self.exited.result() if self.exited.done() else Exit(None, error=REBOOTED))
            self._done_gone()
        elif self.identity is None:
            return self._adopt_unborn()
        elif self._shim_is_proven():
            self.evidence.append(f"shim {self.identity.shim_pid} is alive and reads its control FIFO")
            self.watch()
            if not self.exited.done():
                self._done_running()
        else:
            self._without_shim()
        return True

    def _adopt_unborn(self) -> bool:
        """An attempt without an identity: a shim on its way, or nothing at all, which is then made certain."""
        if not (self.folder / "events").exists() or self._fence():
            self.evidence.append("never started: fenced off")
            return False
        self.evidence.append("its shim is alive and about to start it")
        self._fds["events"] = fd = os.open(self.folder / "events", os.O_RDONLY | os.O_NONBLOCK)
        self._loop.add_reader(fd, self._on_events)
        return True

    def _fence(self) -> bool:
        """Take the shim's lock for good. False when a shim has it."""
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.lockf(fd, os.F_TLOCK, 0)
            write_whole(str(self.folder / "fenced"), "", sync=True)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def _shim_is_proven(self) -> bool:
        known = self.identity
        if known is None or not alive(known.shim_pid, known.shim_ticks):
            return False
        if not self._order(b"\n"):
            return False
        if self.exited.done() or not exists(known.pid, known.start_ticks):
            return True
        return parent_of(known.pid) == known.shim_pid or carries_cookie(known.pid, self.cookie)

    # Facts

    def _read_identity(self) -> None:
        if self.identity is None:
            try:
                self.identity = identity_from(read_fields((self.folder / "identity").read_text()))
            except FileNotFoundError:
                return
            untold, self._untold = self._untold, []
            for line in untold:
                self._order(line)

    def _read_exit(self) -> None:
        if not self.exited.done():
            try:
                self._done_exited(exit_from(read_fields((self.folder / "exit").read_text())))
            except FileNotFoundError:
                return

    def _done_running(self) -> None:
        if not self.running.done():
            self.running.set_result(None)

    def _done_exited(self, how: Exit) -> None:
        if not self.exited.done():
            self.exited.set_result(how)
        self._done_running()

    def _done_gone(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)

    async def collect(self) -> None:
        """After `gone`: wait until our shim, if it is ours, has ended too and was reaped. It has only to exit."""
        if self._shim is not None:
            await self._collected.wait()

    def close(self) -> None:
        """Stop watching. What runs goes on running; a shim of ours that is about to end is still collected."""
        ending = self._shim is not None and self.gone.done()
        self._unwatch(*(name for name in tuple(self._fds) if not (ending and name == "shim")))
        if self._sweep is not None:
            self._sweep.cancel()
