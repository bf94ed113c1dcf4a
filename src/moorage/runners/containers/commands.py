"""A command in a container, through the engine's exec API. Called by `hosted`.

The engine does not end a command whose caller has gone, and sends it no signals: both are done by the pid that it
tells, or, where this user may not signal that, by a `kill` in the container itself.
"""

import asyncio
import os
import signal as signals
from pathlib import Path
from typing import Any

from moorage.domain.errors import RunnerError
from moorage.ports import Clock
from moorage.runners.containers.api import EngineApi, EngineError
from moorage.runners.port import CommandExit, CommandOrder
from moorage.runners.shimming import procfs

STDOUT = 1
FRAME_HEAD = 8
PIECE_BYTES = 32 << 10
ASK_S, ASK_MAX_S = 0.02, 1.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126
LAST_BYTES = 2048
FIRST_SIZE_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
BEGINNING_S = 10.0
"""how long an engine may take to tell the pid of a command whose output it passes on already"""


class ContainerCommand:
    """See `runners.port.Command`. Made by `start`."""

    def __init__(self, api: EngineApi, container: str, command: str, order: CommandOrder, clock: Clock) -> None:
        self._api = api
        self._container = container
        self._command = command
        self._tty = order.tty
        self._clock = clock
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._frame: tuple[int, int] = (STDOUT, 0)
        """stream and bytes left of the piece that the engine sends now"""
        self._failed: CommandExit | None = None
        self._program = order.argv[0]
        self._last = b""
        """what was said last: an engine may tell there why a command was not executed"""
        self._begun = False
        """whether the engine has told once that it runs"""
        self._is_over = False
        """whether its streams have ended, or its exit was told"""

    @staticmethod
    async def start(api: EngineApi, container: str, order: CommandOrder, clock: Clock) -> "ContainerCommand":
        """Have the engine start it.

        Raises:
            RunnerError: the engine does not answer, or refuses for another cause than the command itself.
        """
        body: dict[str, Any] = {
            "AttachStdin": order.stdin,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": order.tty,
            "Cmd": list(order.argv),
            "Env": [f"TERM={order.term}"] if order.tty and order.term else [],
        }
        command = ContainerCommand(api, container, "", order, clock)
        try:
            command._command = await api.exec_create(container, body)
            command._streams = await api.exec_start(
                command._command, (order.rows, order.columns) if order.tty else None
            )
        except EngineError as cause:
            command._failed = _not_executed(cause)
            if command._failed is None:
                raise RunnerError(f"{api.name} refuses the command: {cause.message}", code="exec_failed") from cause
            return command
        if order.tty:
            await command._give_size(order.rows, order.columns)
        return command

    async def _give_size(self, rows: int, columns: int) -> None:
        """The first size: an engine that does not take it at the start refuses it until the command has begun."""
        for pause_s in FIRST_SIZE_PAUSES_S:
            if await self._is_resized(rows, columns):
                return
            await self._clock.sleep(pause_s)

    # Streams

    async def read(self) -> tuple[int, bytes] | None:
        """See `Command`."""
        piece = await self._next_piece() if self._streams is not None else None
        self._is_over = self._is_over or piece is None
        return piece

    async def _next_piece(self) -> tuple[int, bytes] | None:
        assert self._streams is not None
        reader = self._streams[0]
        try:
            if self._tty:
                content = await reader.read(PIECE_BYTES)
                self._last = (self._last + content)[-LAST_BYTES:]
                return (STDOUT, content) if content else None
            stream, left = self._frame
            while not left:
                head = await reader.readexactly(FRAME_HEAD)
                stream, left = head[0] or STDOUT, int.from_bytes(head[4:], "big")
            content = await reader.read(min(left, PIECE_BYTES))
        except (OSError, asyncio.IncompleteReadError):
            return None
        self._frame = (stream, left - len(content))
        self._last = (self._last + content)[-LAST_BYTES:]
        return (stream, content) if content else None

    async def write(self, content: bytes) -> None:
        """See `Command`."""
        if self._streams is None:
            return
        writer = self._streams[1]
        try:
            writer.write(content)
            await writer.drain()
        except OSError:
            return  # it reads no more

    async def close_input(self) -> None:
        """See `Command`."""
        if self._tty:
            await self.write(b"\x04")
        elif self._streams is not None and self._streams[1].can_write_eof():
            try:
                self._streams[1].write_eof()
            except OSError:
                return  # it has ended

    async def resize(self, rows: int, columns: int) -> None:
        """See `Command`."""
        await self._is_resized(rows, columns)  # where it has ended meanwhile nothing needs a size

    async def _is_resized(self, rows: int, columns: int) -> bool:
        try:
            await self._api.exec_resize(self._command, rows, columns)
        except EngineError:
            return False
        return True

    # Its end

    async def signal(self, number: int) -> None:
        """See `Command`. Of a command in a container only the command itself can be reached."""
        pid = await self._pid()
        if pid is None:
            return
        try:
            os.kill(pid, number)
        except PermissionError:
            await self._kill_inside(pid, number)
        except ProcessLookupError:
            return  # it ended meanwhile

    async def _pid(self) -> int | None:
        """What the machine calls it; None once it has ended.

        An engine passes on what a command says before it notes that the command runs, and as what: a signal would be
        lost that is sent between the two, so its word that nothing runs counts only of a command that is known to have
        begun, and for the rest it is asked again for `BEGINNING_S`.
        """
        pause, until = ASK_S, self._clock.monotonic() + BEGINNING_S
        while self._failed is None:
            found = await self._inspect()
            pid = int(found.get("Pid") or 0)
            self._begun = self._begun or bool(pid)
            if found.get("Running") and pid:
                return pid
            if not found or self._begun or self._is_over or self._clock.monotonic() >= until:
                return None
            await self._clock.sleep(pause)
            pause = min(pause * 2, ASK_MAX_S)
        return None

    async def exit(self) -> CommandExit:
        """See `Command`. The engine closes the streams a moment before it knows the code."""
        pause = ASK_S
        while self._failed is None:
            found = await self._inspect()
            if not found:
                self._is_over = True
                return CommandExit(128 + signals.SIGKILL, "its container has ended")
            if not found.get("Running") and found.get("ExitCode") is not None:
                self._is_over = True
                return self._as_exit(int(found["ExitCode"]))
            await self._clock.sleep(pause)
            pause = min(pause * 2, ASK_MAX_S)
        return self._failed

    def _as_exit(self, code: int) -> CommandExit:
        """Engines tell that a command was not executed by its code, with their own words among its output."""
        engine_s = not self._last or b"OCI runtime" in self._last
        if code not in (NOT_FOUND, NOT_EXECUTABLE) or not engine_s:
            return CommandExit(code)
        missing = code == NOT_FOUND or b"not found" in self._last or b"o such file" in self._last
        why = "command not found" if missing else "it cannot be executed"
        return CommandExit(NOT_FOUND if missing else NOT_EXECUTABLE, f"{self._program}: {why}")

    async def end(self, grace_s: float) -> None:
        """See `Command`."""
        if self._streams is not None:
            self._streams[1].close()
        await self.signal(signals.SIGHUP)
        try:
            async with asyncio.timeout(grace_s):
                await self.exit()
        except TimeoutError:
            await self.signal(signals.SIGKILL)

    async def _inspect(self) -> dict[str, Any]:
        """What the engine knows; nothing once its container is gone."""
        try:
            return await self._api.exec_inspect(self._command)
        except EngineError as cause:
            if cause.unreachable:
                raise
            return {}

    async def _kill_inside(self, pid: int, number: int) -> None:
        """A `kill` in the container, which knows the process by another number."""
        inner = await asyncio.to_thread(_inner_pid, pid)
        if inner is None:
            return
        kill = {"Cmd": ["kill", f"-{number}", inner], "AttachStdout": True}
        try:
            _, writer = await self._api.exec_start(await self._api.exec_create(self._container, kill))
        except EngineError:
            return  # without a `kill` in its image it goes on until its streams or its container end
        writer.close()


def _inner_pid(pid: int) -> str | None:
    """What the innermost pid namespace calls a process; None once it has ended."""
    try:
        lines = Path(f"/proc/{procfs.number(pid)}/status").read_text().splitlines()
    except OSError:
        return None
    return next((line.split()[-1] for line in lines if line.startswith("NSpid:")), None)


def _not_executed(cause: EngineError) -> CommandExit | None:
    """The engine could not execute the command; None: it had another cause to refuse."""
    text = cause.message.lower()
    if ("not found" in text and ("executable" in text or "$path" in text)) or "no such file or directory" in text:
        return CommandExit(NOT_FOUND, cause.message)
    if "permission denied" in text and "exec" in text:
        return CommandExit(NOT_EXECUTABLE, cause.message)
    return None
