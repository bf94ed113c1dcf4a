"""Commands that somebody wants run beside a worker: this agent connects out to the control plane, runs each there and
carries its streams.

A connection that is lost hangs up on the command and kills it after `GRACE_S`: nobody could see or end it any more.
Called by the session with each `Work`.
"""

import asyncio
import signal as signals
from collections.abc import Callable
from typing import Any

import structlog

from moorage.agent.asked import Asked
from moorage.agent.roster import Roster
from moorage.domain.errors import Conflict, MoorageError, NotFound
from moorage.runners.port import Command, CommandOrder
from moorage.wire import exec as wire
from moorage.wire.agent import ExecRequest

GRACE_S = 5.0
OPEN_S = 30.0
PING_S = 10.0
"""A peer that is gone without a word is noticed after two of these."""
FAREWELL_S = 10.0
"""So long the other side may take to have read the end."""


class ExecDesk:
    """Serves what the control plane asks.

    Args:
        roster: knows what runs.
        url: of the control plane.
        bearer: this agent's credential now.
        log: told what is run for whom, and what failed.
    """

    def __init__(
        self, roster: Roster, url: str, bearer: Callable[[], str | None], log: structlog.stdlib.BoundLogger
    ) -> None:
        self._roster = roster
        self._base = f"ws{url.removeprefix('http')}/api/v1/agent/exec"
        self._bearer = bearer
        self._log = log
        self.take = Asked(self._serve, log).take

    async def _serve(self, request: ExecRequest) -> None:
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException

        try:
            async with connect(
                f"{self._base}/{request.id}",
                additional_headers={"Authorization": f"Bearer {self._bearer()}"},
                compression=None,
                proxy=None,
                open_timeout=OPEN_S,
                ping_interval=PING_S,
                ping_timeout=PING_S,
                max_size=wire.MESSAGE_BYTES_MAX,
            ) as socket:
                await self._run(request, socket)
        except (OSError, TimeoutError, WebSocketException) as cause:
            self._log.info("a command beside a worker was cut off", exec=request.id, why=str(cause))

    async def _run(self, request: ExecRequest, socket: Any) -> None:
        try:
            command = await self._begin(request)
        except MoorageError as cause:
            await socket.send(wire.told(error=cause.to_wire()))
            return
        self._log.info("running a command beside a worker", worker=request.worker, command=request.command[0])
        try:
            await _Carrier(command, socket).carry()
        finally:
            await command.end(GRACE_S)

    async def _begin(self, request: ExecRequest) -> Command:
        hosted, state = self._roster.hosted(request.worker, request.epoch)
        if state is None:
            raise NotFound(
                f"this machine has no worker {request.worker} of epoch {request.epoch}",
                remedy="see where it runs now: `moor get worker`",
                code="not_here",
            )
        if hosted is None or not hosted.alive:
            raise Conflict(f"the worker is {state}: nothing of it runs now", code="not_running")
        order = CommandOrder(request.command, request.tty, request.stdin, request.rows, request.columns, request.term)
        return await hosted.beside(order)


class _Carrier:
    """Carries one command's streams.

    Args:
        command: that runs.
        socket: to the control plane.
    """

    def __init__(self, command: Command, socket: Any) -> None:
        self._command = command
        self._socket = socket
        self._room = wire.WINDOW_BYTES
        self._more_room = asyncio.Event()
        self._unfed = 0
        self._input: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def carry(self) -> None:
        """Until the command has ended and its end is told, or the connection is lost."""
        hearing = asyncio.create_task(self._hear())
        feeding = asyncio.create_task(self._feed())
        telling = asyncio.create_task(self._tell())
        try:
            await asyncio.wait({hearing, telling}, return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
                await asyncio.wait({hearing}, timeout=FAREWELL_S)  # the other side closes once it has read all
        finally:
            for task in (hearing, feeding, telling):
                task.cancel()
            await asyncio.gather(hearing, feeding, telling, return_exceptions=True)

    async def _tell(self) -> None:
        await self._socket.send(wire.told(started={}))
        while (piece := await self._command.read()) is not None:
            channel, content = piece
            while self._room <= 0:
                self._more_room.clear()
                await self._more_room.wait()
            self._room -= len(content)
            await self._socket.send(wire.data(channel, content))
        how = await self._command.exit()
        await self._socket.send(wire.told(exit={"code": how.code, "error": how.error}))

    async def _hear(self) -> None:
        async for message in self._socket:
            if not isinstance(message, bytes):
                continue
            channel, content = wire.read(message)
            if channel == wire.STDIN:
                self._unfed += len(content)
                if self._unfed > 2 * wire.WINDOW_BYTES:
                    raise Conflict("more input than was acknowledged", code="window_exceeded")
                self._input.put_nowait(content)
            elif channel == wire.TOLD:
                await self._obey(wire.news_of(content))

    async def _obey(self, news: dict[str, Any]) -> None:
        if isinstance(taken := news.get("ack"), int):
            self._room += taken
            self._more_room.set()
        elif isinstance(size := news.get("resize"), list) and len(size) == 2:
            rows, columns = (max(1, min(10_000, int(n))) for n in size)
            await self._command.resize(rows, columns)
        elif (name := news.get("signal")) in wire.SIGNALS:
            await self._command.signal(int(signals.Signals[name]))
        elif news.get("eof"):
            self._input.put_nowait(None)

    async def _feed(self) -> None:
        while (content := await self._input.get()) is not None:
            await self._command.write(content)
            self._unfed -= len(content)
            await self._socket.send(wire.told(ack=len(content)))
        await self._command.close_input()
