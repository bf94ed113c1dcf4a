"""Commands beside workers over the wire: a channel to one, and the whole of one that asks nothing back.

Streams are kept within the windows of `wire/exec.py`: what may be sent is `room`, and what was taken is acknowledged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from moorage.client.calls import Duplex, NoAnswer, StreamRefused
from moorage.client.failures import failure, told_failure, unreachable
from moorage.client.session import Session
from moorage.domain.errors import Unavailable
from moorage.wire import exec as wire

STREAMS: dict[int, Literal["stdout", "stderr"]] = {wire.STDOUT: "stdout", wire.STDERR: "stderr"}


@dataclass(frozen=True, slots=True)
class ExecEvent:
    """Something that came.

    Args:
        kind: `started`, `stdout`, `stderr`, `room` (more input may be sent) or `exit`.
        content: of a stream.
        code: exit code as a shell shows it.
        error: why it could not be executed (`code` is 126 or 127 then).
    """

    kind: Literal["started", "stdout", "stderr", "room", "exit"]
    content: bytes = b""
    code: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command beside a worker ended, and all that it wrote."""

    exit_code: int
    stdout: bytes = field(default=b"", repr=False)
    stderr: bytes = field(default=b"", repr=False)
    error: str = ""
    """why it could not be executed"""


class AsyncExecChannel:
    """A command that runs beside a worker, from this side. One reader and one writer may be at it together.

    Args:
        duplex: the connection.
        base_url: for messages.
    """

    room: int
    """bytes of input that may be sent now; an event of kind `room` tells that there is more"""

    def __init__(self, duplex: Duplex, base_url: str) -> None:
        self._duplex = duplex
        self._base_url = base_url
        self._untold = 0
        self.room = wire.WINDOW_BYTES

    async def next(self) -> ExecEvent:
        """The next event. An `exit` is the last.

        Raises:
            MoorageError: what the control plane or the machine refuses; `Unavailable` where the connection was lost.
        """
        while True:
            try:
                message = await self._duplex.receive()
            except NoAnswer as cause:
                raise self._lost(cause.text) from cause
            if message is None:
                raise self._lost("it was closed")
            channel, content = wire.read(message)
            if channel in STREAMS:
                return ExecEvent(STREAMS[channel], content)
            event = self._told(wire.news_of(content)) if channel == wire.TOLD else None
            if event is not None:
                return event

    def _told(self, news: dict[str, Any]) -> ExecEvent | None:
        if isinstance(error := news.get("error"), dict):
            raise told_failure(error)
        if isinstance(taken := news.get("ack"), int):
            self.room += taken
            return ExecEvent("room")
        if isinstance(how := news.get("exit"), dict):
            return ExecEvent("exit", code=int(how.get("code", 1)), error=str(how.get("error") or ""))
        return ExecEvent("started") if "started" in news else None

    async def taken(self, count: int) -> None:
        """So many bytes of output were dealt with; the machine may send as many more."""
        self._untold += count
        if self._untold >= wire.ACK_BYTES:
            count, self._untold = self._untold, 0
            await self._tell(ack=count)

    async def send(self, content: bytes) -> None:
        """Give it input: no more than there is `room`."""
        for start in range(0, len(content), wire.PIECE_BYTES):
            piece = content[start : start + wire.PIECE_BYTES]
            self.room -= len(piece)
            await self._send(wire.data(wire.STDIN, piece))

    async def end_input(self) -> None:
        """There is no more."""
        await self._tell(eof=True)

    async def resize(self, rows: int, columns: int) -> None:
        """Its terminal has another size."""
        await self._tell(resize=[rows, columns])

    async def signal(self, name: str) -> None:
        """Send it a signal, such as `SIGINT`."""
        await self._tell(signal=name)

    async def close(self) -> None:
        """Hang up: a command that still runs is ended."""
        await self._duplex.close()

    async def _tell(self, **news: Any) -> None:
        await self._send(wire.told(**news))

    async def _send(self, message: bytes) -> None:
        try:
            await self._duplex.send(message)
        except NoAnswer as cause:
            raise self._lost(cause.text) from cause

    def _lost(self, why: str) -> Unavailable:
        return Unavailable(
            f"the connection to the command was lost ({why}); what ran there is ended",
            remedy="see whether the control plane answers: moor version",
            code="connection_lost",
            target=self._base_url,
        )


async def open_channel(session: Session, path: str, order: wire.ExecOrder) -> AsyncExecChannel:
    """Run a command beside the worker at a path.

    Raises:
        MoorageError: the control plane cannot be reached, or refuses.
    """
    base_url = session.transport.base_url
    try:
        duplex = await session.transport.connect(path)
        await duplex.send(bytes((wire.TOLD,)) + order.model_dump_json().encode())
    except StreamRefused as refused:
        raise failure(refused.answer, base_url) from None
    except NoAnswer as cause:
        raise unreachable(cause, base_url) from cause
    return AsyncExecChannel(duplex, base_url)


async def run_whole(session: Session, path: str, command: Sequence[str], stdin: bytes) -> ExecResult:
    """Run a command to its end; arguments as `AsyncWorkers.exec`."""
    channel = await open_channel(session, path, wire.ExecOrder(command=tuple(command), stdin=bool(stdin)))
    found: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    left, ended = memoryview(stdin), not stdin
    try:
        while True:
            if left and channel.room > 0:
                piece, left = left[: channel.room], left[channel.room :]
                await channel.send(bytes(piece))
            if not left and not ended:
                ended = True
                await channel.end_input()
            event = await channel.next()
            if event.kind in found:
                found[event.kind].append(event.content)
                await channel.taken(len(event.content))
            elif event.kind == "exit":
                return ExecResult(event.code, b"".join(found["stdout"]), b"".join(found["stderr"]), event.error)
    finally:
        await channel.close()
