"""One model's log over all its starts: numbers go on where the start before ended.

Each start's output lies in a directory of its own, bounded by whoever writes it; the two newest are kept. A restart
that the shim made by itself goes on in the same directory and needs nothing here.
"""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from moorage.runners.logfile import LogSlice

KEPT = 2
"""The running start and the one before it, whose last words are wanted most."""


class Logged(Protocol):
    """What is read from: a hosted thing."""

    @property
    def folder(self) -> Path:
        """Directory of its log."""
        ...

    async def lines(self, *, lines: int = 200, after: int | None = None) -> LogSlice:
        """See `runners.port.Hosted.lines`."""
        ...


@dataclass(slots=True)
class _Part:
    source: Logged
    before: int
    """lines of all starts before it"""
    total: int | None = None
    """its own lines, once it has ended and somebody has counted"""


class ModelLog:
    """Reads across starts."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._lock = asyncio.Lock()

    def begin(self, source: Logged) -> None:
        """What is logged from now on comes from here."""
        self._parts.append(_Part(source, 0))

    async def tidy(self) -> None:
        """Number what has ended and remove what is too old."""
        async with self._lock:
            await self._count()
            while len(self._parts) > KEPT:
                old = self._parts.pop(0)
                await asyncio.to_thread(shutil.rmtree, old.source.folder, ignore_errors=True)

    async def read(self, *, lines: int, after: int | None) -> LogSlice:
        """Lines by their number over all starts.

        Args:
            lines: how many at most; without `after` the last so many.
            after: those that follow this number.
        """
        async with self._lock:
            await self._count()
            if not self._parts:
                return LogSlice((), 1, 1)
            return await (self._last(lines) if after is None else self._after(after, lines))

    async def _count(self) -> None:
        """A part that another follows has ended: count its lines once, so that the next one's numbers are known."""
        for part, following in zip(self._parts, self._parts[1:], strict=False):
            if part.total is None:
                part.total = (await part.source.lines(lines=0)).next_seq - 1
            following.before = part.before + part.total

    async def _last(self, lines: int) -> LogSlice:
        texts: tuple[str, ...] = ()
        end = first = 0
        for part in reversed(self._parts):
            piece = await part.source.lines(lines=lines - len(texts))
            end = end or part.before + piece.next_seq
            if piece.lines or not texts:
                first = part.before + piece.first_seq
            texts = piece.lines + texts
            if len(texts) >= lines:
                break
        return LogSlice(texts, end - len(texts) if texts else first, end)

    async def _after(self, after: int, lines: int) -> LogSlice:
        texts: tuple[str, ...] = ()
        missed = max(0, self._parts[0].before - after)
        at = max(after, self._parts[0].before)
        for part in self._parts:
            ended_at = None if part.total is None or part is self._parts[-1] else part.before + part.total
            if ended_at is not None and at >= ended_at:
                continue
            if len(texts) >= lines:
                break
            piece = await part.source.lines(lines=lines - len(texts), after=max(0, at - part.before))
            if not texts:
                missed += piece.missed
            texts += piece.lines
            at = part.before + piece.next_seq - 1
            if texts and ended_at is not None and at < ended_at and len(texts) < lines:
                break
        return LogSlice(texts, at - len(texts) + 1, at + 1, missed)
