"""A hub in this process: each repository has one file of a size that is named, branches mean `commit`.

A fetch can be held at its middle, and fail with what is played. Nothing is proven here: that is the child's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from moorage.domain.sources import HubSource
from moorage.sources.hub import SourceError
from moorage.sources.messages import File, Plan

OLD, NEW = "a" * 40, "b" * 40


class PlayedHub:
    def __init__(self, size: int = 7) -> None:
        self.commit = OLD
        self.size = size
        self.fetches: list[HubSource] = []
        self.looks: list[tuple[HubSource, str | None]] = []
        self.restricted = False
        self.tokens: set[str | None] | None = None
        """who may read; None: all"""
        self.fail: list[SourceError] = []
        """of the next calls"""
        self.go_on = asyncio.Event()
        self.go_on.set()

    def _plan(self, source: HubSource) -> Plan:
        commit = source.revision if source.pinned and source.revision else self.commit
        return Plan(commit, (File("m.gguf", self.size),), self.restricted)

    def _played(self, token: str | None) -> None:
        if self.fail:
            raise self.fail.pop(0)
        if self.tokens is not None and token not in self.tokens:
            raise SourceError("denied", "it is gated")

    async def resolve(self, source: HubSource, token: str | None, *, check: bool = False) -> Plan:
        self.looks.append((source, token))
        self._played(token if check else next(iter(self.tokens or {None})))
        return self._plan(source)

    async def fetch(
        self,
        source: HubSource,
        token: str | None,
        folder: str,
        *,
        planned: Callable[[Plan], Awaitable[None]],
        moved: Callable[[int, int], None],
    ) -> list[dict[str, Any]]:
        self.fetches.append(source)
        await planned(self._plan(source))
        self._played(token)
        path = Path(folder) / "m.gguf"
        path.write_bytes(b"x" * (self.size // 2))
        moved(self.size // 2, self.size // 2)
        await self.go_on.wait()
        path.write_bytes(b"x" * self.size)
        moved(self.size, self.size)
        return [{"path": "m.gguf", "size": self.size, "sha256": "0" * 64, "proven": "size"}]
