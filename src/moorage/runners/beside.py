"""A command beside a plain process: made by `shimming/entering.py`, with pipes or a terminal of its own.

It is born in the worker's cgroup where there is one, so whatever ends the worker's tree ends it; where there is none it
carries the worker's cookie, by which its tree is found, and whoever made it here ends it with the worker. Called by
`hosted`.
"""

import asyncio
import fcntl
import os
import signal as signals
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage.domain.errors import RunnerError
from moorage.runners.identity import ProcessIdentity
from moorage.runners.port import CommandExit, CommandOrder
from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import shown_stat

ENTERING = Path(__file__).with_name("shimming") / "entering.py"
STDOUT, STDERR = 1, 2
PIECE_BYTES = 32 << 10
END_OF_INPUT = b"\x04"


class ProcessCommand:
    """See `runners.port.Command`.

    Args:
        identity: of the worker's process, seen alive.
        order: what to run.

    Raises:
        RunnerError: the worker's process cannot be found, or nothing can be started here.
    """

    def __init__(self, identity: ProcessIdentity, order: CommandOrder) -> None:
        number = procfs.number(identity.pid)
        if number is None:
            raise RunnerError("its process is not to be seen here", code="exec_failed")
        self._loop = asyncio.get_running_loop()
        self._tty = order.tty
        self._outputs: dict[int, int] = {}
        self._input = -1
        self._error, error = os.pipe()
        ours, theirs = self._terminal(order) if order.tty else self._pipes(order)
        words = [
            str(os.getpid()),
            str(number),
            identity.cgroup,
            str(int(order.tty)),
            order.term or "",
            str(error),
            *order.argv,
        ]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(ENTERING), *words],
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                env={},
                pass_fds=(error,),
            )
        except (OSError, ValueError) as cause:
            for fd in {self._error, *ours}:
                os.close(fd)
            raise RunnerError(f"cannot start a command beside it: {cause}", code="exec_failed") from cause
        finally:
            for fd in {error, *theirs}:
                os.close(fd)
        self._exit: asyncio.Future[CommandExit] = self._loop.create_future()
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._on_end)

        self._ending: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Of the command."""
        return self._process.pid

    def end_now(self, _: object = None) -> None:
        """The worker has ended, and this ends with it."""
        if not self._exit.done() and self._ending is None:
            self._ending = self._loop.create_task(self.end(0.0))

    def _terminal(self, order: CommandOrder) -> tuple[set[int], tuple[int, int, int]]:
        ours, theirs = os.openpty()
        _set_size(ours, order.rows, order.columns)
        os.set_blocking(ours, False)
        self._outputs, self._input = {STDOUT: ours}, ours
        return {ours}, (theirs, theirs, theirs)

    def _pipes(self, order: CommandOrder) -> tuple[set[int], tuple[int, int, int]]:
        (out, their_out), (err, their_err) = os.pipe(), os.pipe()
        self._outputs = {STDOUT: out, STDERR: err}
        if order.stdin:
            their_in, self._input = os.pipe()
        else:
            their_in = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        ours = {fd for fd in (out, err, self._input) if fd >= 0}
        for fd in ours:
            os.set_blocking(fd, False)
        return ours, (their_in, their_out, their_err)

    # Streams

    async def read(self) -> tuple[int, bytes] | None:
        """See `Command`. What outlives the command and keeps its output open is not waited for."""
        while True:
            ended = self._exit.done()
            for channel, fd in tuple(self._outputs.items()):
                try:
                    content = os.read(fd, PIECE_BYTES)
                except BlockingIOError:
                    continue
                except OSError:  # a terminal that nobody has open any more
                    content = b""
                if content:
                    return channel, content
                self._close_output(channel)
            if ended or not self._outputs:
                break
            await self._until(self._loop.add_reader, self._loop.remove_reader, *self._outputs.values())
        await asyncio.wait({self._exit})
        return None

    async def write(self, content: bytes) -> None:
        """See `Command`."""
        view = memoryview(content)
        while view and self._input >= 0 and not self._exit.done():
            try:
                view = view[os.write(self._input, view) :]
            except BlockingIOError:
                await self._until(self._loop.add_writer, self._loop.remove_writer, self._input)
            except OSError:
                self._close_input()  # it reads no more

    async def close_input(self) -> None:
        """See `Command`."""
        if self._tty:
            await self.write(END_OF_INPUT)
        else:
            self._close_input()

    async def _until(self, add: Callable[..., Any], remove: Callable[[int], Any], *fds: int) -> None:
        """Until one of them is ready, or the command has ended."""
        ready: asyncio.Future[None] = self._loop.create_future()
        for fd in fds:
            add(fd, _done, ready)
        try:
            facts: set[asyncio.Future[Any]] = {ready, self._exit}
            await asyncio.wait(facts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for fd in fds:
                remove(fd)

    def _close_output(self, channel: int) -> None:
        fd = self._outputs.pop(channel)
        if fd != self._input:
            os.close(fd)

    def _close_input(self) -> None:
        if self._input >= 0:
            if self._input not in self._outputs.values():
                os.close(self._input)
            self._input = -1

    async def resize(self, rows: int, columns: int) -> None:
        """See `Command`."""
        if self._tty and self._input >= 0:
            _set_size(self._input, rows, columns)

    # Its end

    async def signal(self, number: int) -> None:
        """See `Command`."""
        if not self._exit.done():
            group = self._process.pid
            try:
                group = os.tcgetpgrp(self._input) if self._tty and self._input >= 0 else group
                os.killpg(group, number)
            except OSError:
                return  # there is nobody in it (yet, or any more)

    async def exit(self) -> CommandExit:
        """See `Command`."""
        await asyncio.wait({self._exit})
        return self._exit.result()

    async def end(self, grace_s: float) -> None:
        """See `Command`."""
        if not self._exit.done():
            await self.signal(signals.SIGHUP)
            self._close_streams()
            if grace_s > 0:
                await asyncio.wait({self._exit}, timeout=grace_s)
        self._kill_session()
        await asyncio.wait({self._exit})
        self._close_streams()

    def _on_end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        code = self._process.wait()
        told = os.read(self._error, 4096).decode("utf-8", "replace")
        os.close(self._error)
        word, _, text = told.partition(" ")
        self._exit.set_result(CommandExit(int(word), text) if word else CommandExit(128 - code if code < 0 else code))

    def _kill_session(self) -> None:
        """SIGKILL to all that is still in the command's session."""
        leader = procfs.number(self._process.pid) if not self._exit.done() else None
        for number in procfs.numbers() if leader else ():
            fields = shown_stat(number)
            found = procfs.pin(number) if fields and int(fields[3]) == leader else None
            if found is None:
                continue
            try:
                signals.pidfd_send_signal(found[1], signals.SIGKILL)
            except OSError:
                continue  # it ended meanwhile
            finally:
                os.close(found[1])
        if not self._exit.done():
            self._process.kill()

    def _close_streams(self) -> None:
        self._close_input()
        fds = set(self._outputs.values())
        self._outputs.clear()
        for fd in fds:
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)
            os.close(fd)


def _done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
