"""A container's output, followed through the engine and kept in the worker's own directory, numbered and bounded.

The engine numbers nothing and forgets at its own limit, so its stream is copied into segments like those of a process
(`log.N`), which every reader understands. Beside them `log.position` says up to where the engine's stream was copied:
the time of the newest piece and how many pieces carry it, since engines answer "since" in whole seconds. A reader that
comes back after a crash goes on exactly there.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path

from moorage.ports import Clock
from moorage.runners.containers.api import EngineApi, EngineError
from moorage.runners.shimming.log import RECORD_BYTES, Log

POSITION_FILE = "log.position"
RETRY_S, RETRY_MAX_S = 0.1, 5.0
FRAME_HEAD = 8
POSITION_BYTES = 96
ABOUT = len("2026-11-29T19:14:00.00")
"""So much of an engine's time says when, as closely as a log's times do."""


@dataclass(frozen=True, slots=True)
class Position:
    """Up to where: `pieces` of them carry the time `at`; `line` is the number of the next line then."""

    at: str = ""
    pieces: int = 0
    line: int = 1


class PositionFile:
    """A position on disk, one record of fixed width, written over: a rename for each piece would cost more than all
    the rest.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def load(self) -> Position:
        """As it was kept; the beginning where nothing was."""
        fields = os.pread(self._fd, POSITION_BYTES, 0).decode("ascii", "replace").split()
        return Position(fields[0], int(fields[1]), int(fields[2])) if len(fields) == 3 else Position()

    def save(self, position: Position) -> None:
        """Keep it."""
        record = f"{position.at} {position.pieces} {position.line}".ljust(POSITION_BYTES - 1) + "\n"
        os.pwrite(self._fd, record.encode(), 0)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class KeptLog(Log):
    """The segments of a directory, gone on with where there are some already."""

    def _open(self) -> None:
        if not self.segments:
            found = sorted((int(p.suffix[1:]), p) for p in Path(self.folder).glob("log.*") if p.suffix[1:].isdigit())
            self.segments = [str(path) for _, path in found[:-1]]
            if found:
                number, path = found[-1]
                self.next_line = number
                super()._open()
                kept = path.read_bytes()
                self.next_line, self.size = number + kept.count(b"\n"), len(kept)
                times = Path(self._times_path())
                self.records = times.stat().st_size // RECORD_BYTES if times.exists() else 0
                return
        super()._open()

    def close(self) -> None:
        """Let go of the files."""
        self._let_go()


class OutputCopy:
    """Copies one container's output.

    Args:
        api: its engine.
        container: its id.
        folder: where the segments are.
        clock: for pauses between tries.
    """

    def __init__(self, api: EngineApi, container: str, folder: Path, clock: Clock) -> None:
        self._api = api
        self._container = container
        self._clock = clock
        self._log = KeptLog(str(folder))
        self._kept = PositionFile(folder / POSITION_FILE)
        self._position = self._kept.load()
        # Pieces that reached the log and not the position file before a crash: each was a line, as nearly all are.
        self._ahead = max(0, self._log.next_line - self._position.line)
        self._following: asyncio.Task[None] | None = None

    def follow(self) -> None:
        """Begin to copy as it comes."""
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._follow())

    async def finish(self) -> None:
        """The container has ended: copy what is left. An engine that does not answer keeps the rest to itself."""
        await self.stop()
        try:
            await self._copy(follow=False)
        except EngineError as cause:
            if cause.status != 404:  # else it went with its container, which the exit tells
                self._log.write(f"[moorage: the end of this log could not be read: {cause.message}]\n".encode())
        self.close()

    async def stop(self) -> None:
        """Copy no more for now."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None

    def close(self) -> None:
        """Let go of the file."""
        if self._following is not None:
            self._following.cancel()
        self._log.close()
        self._kept.close()

    async def _follow(self) -> None:
        pause = RETRY_S
        while True:
            before = self._position.at, self._position.pieces
            try:
                await self._copy(follow=True)
            except EngineError as cause:
                if cause.status == 404:
                    return
            if (self._position.at, self._position.pieces) != before:
                pause = RETRY_S
            await self._clock.sleep(pause)
            pause = min(pause * 2, RETRY_MAX_S)

    async def _copy(self, *, follow: bool) -> None:
        known = self._position
        since = max(0, int(datetime.fromisoformat(known.at).timestamp()) - 1) if known.at else 0
        reader = _Reader(known.at, known.pieces, self._ahead)
        async with self._api.logs(self._container, since=since, follow=follow) as chunks:
            async for pieces in frames(chunks):
                fresh = [(at, text) for at, text in pieces if reader.is_new(at)]
                if fresh:
                    self._keep(fresh)
                    self._ahead = 0
                    self._position = Position(reader.at, reader.pieces, self._log.next_line)
                    self._kept.save(self._position)

    def _keep(self, pieces: list[tuple[str, bytes]]) -> None:
        """Into the log, those of about one time together."""
        for _, together in groupby(pieces, key=lambda piece: piece[0][:ABOUT]):
            burst = list(together)
            self._log.write(b"".join(text for _, text in burst), milliseconds(burst[0][0]))


def milliseconds(at: str) -> int:
    """An engine's time as milliseconds since the epoch; 0 for what is none."""
    try:
        return int(datetime.fromisoformat(at).timestamp() * 1000)
    except ValueError:
        return 0


class _Reader:
    """Counts the pieces of a stream that begins before a position, and knows which of them are new.

    A piece that is older than the one before it (two writers, one clock) counts as of the same time.

    Args:
        after: time of the newest piece that was copied; empty: none was.
        pieces: how many of that time were copied.
        ahead: how many were copied after those.
    """

    def __init__(self, after: str, pieces: int, ahead: int) -> None:
        self._after, self._known, self._ahead = after, pieces, ahead
        self.at, self.pieces = "", 0

    def is_new(self, at: str) -> bool:
        """Take one piece into account; whether it was not copied before."""
        if at > self.at:
            self.at, self.pieces = at, 0
        self.pieces += 1
        if self.at < self._after or (self.at == self._after and self.pieces <= self._known):
            return False
        if self._ahead > 0:
            self._ahead -= 1
            return False
        return True


async def frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[tuple[str, bytes]]]:
    """The engine's framed stream as (time, text) pieces, those of one network read together.

    A frame is one byte of stream number, three of nothing, four of length, then a time, a space and the text.
    """
    buffer = b""
    async for chunk in chunks:
        buffer += chunk
        pieces, start = [], 0
        while len(buffer) - start >= FRAME_HEAD:
            length = int.from_bytes(buffer[start + 4 : start + FRAME_HEAD], "big")
            end = start + FRAME_HEAD + length
            if len(buffer) < end:
                break
            at, _, text = buffer[start + FRAME_HEAD : end].partition(b" ")
            pieces.append((at.decode("ascii", "replace"), text))
            start = end
        buffer = buffer[start:]
        if pieces:
            yield pieces
