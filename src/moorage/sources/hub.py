"""A hub, asked through `child`: what a source is now, and its files. Nothing here retries.

The child has the environment of this process, and nothing of huggingface_hub is imported here. Cancelling a call ends
its child.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from moorage.domain.errors import MoorageError
from moorage.domain.sources import HubSource
from moorage.sources.messages import CHECK, FETCH, RESOLVE, Order, Plan

LINE_BYTES = 16 << 20
"""Of the longest line: a plan names all files of a repository."""
TAIL_BYTES = 2000


class SourceError(MoorageError):
    """A hub did not give what was asked for.

    Args:
        kind: see `messages.Kind`.
        message: for people.
    """

    code = "model_source"

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message, retryable=kind == "busy")
        self.kind = kind


class Hub:
    """Asks.

    Args:
        python: interpreter of the child.
    """

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python

    async def resolve(self, source: HubSource, token: str | None, *, check: bool = False) -> Plan:
        """What it is now.

        Args:
            check: and that its files may be read.

        Raises:
            SourceError: it cannot be had, or not now.
        """
        order = Order(CHECK if check else RESOLVE, source.repo, source.revision, source.files, token)
        async with self._child(order) as (child, told):
            plan = _plan(await _first(told, child))
            await _end(child, told)
            return plan

    async def fetch(
        self,
        source: HubSource,
        token: str | None,
        folder: str,
        *,
        planned: Callable[[Plan], Awaitable[None]],
        moved: Callable[[int, int], None],
    ) -> list[dict[str, Any]]:
        """Bring its files into a folder, where they go on from what is there; {path, size, sha256, proven} of each.

        Args:
            planned: awaited before anything is brought; may raise where there is no room.
            moved: told how many bytes are here, and how many of them were brought by this call.

        Raises:
            SourceError: as `resolve`; what came stays in the folder.
        """
        order = Order(FETCH, source.repo, source.revision, source.files, token, folder)
        async with self._child(order) as (child, told):
            await planned(_plan(await _first(told, child)))
            assert child.stdin is not None
            child.stdin.write(b"go\n")
            async for line in told:
                if "done" in line:
                    moved(int(line["done"]), int(line["came"]))
                elif "files" in line:
                    return list(line["files"])
            raise await _broke_off(child)

    @asynccontextmanager
    async def _child(
        self, order: Order
    ) -> AsyncIterator[tuple[asyncio.subprocess.Process, AsyncIterator[dict[str, Any]]]]:
        pipe = asyncio.subprocess.PIPE
        argv = (self._python, "-m", "moorage.sources.child")
        child = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe, limit=LINE_BYTES)
        assert child.stdin is not None
        child.stdin.write(order.line())
        errors = asyncio.ensure_future(_tail(child))
        try:
            yield child, _told(child)
        finally:
            if child.returncode is None:
                child.kill()
            await asyncio.shield(child.wait())
            errors.cancel()


async def _told(child: asyncio.subprocess.Process) -> AsyncIterator[dict[str, Any]]:
    """What it says, line by line; an error that it tells is raised."""
    assert child.stdout is not None
    async for raw in child.stdout:
        line = json.loads(raw)
        if "error" in line:
            raise SourceError(str(line["error"]["kind"]), str(line["error"]["message"]))
        yield line


async def _first(told: AsyncIterator[dict[str, Any]], child: asyncio.subprocess.Process) -> dict[str, Any]:
    async for line in told:
        return line
    raise await _broke_off(child)


async def _end(child: asyncio.subprocess.Process, told: AsyncIterator[dict[str, Any]]) -> None:
    async for _ in told:
        pass
    await child.wait()


def _plan(line: dict[str, Any]) -> Plan:
    return Plan.of(line["plan"])


async def _broke_off(child: asyncio.subprocess.Process) -> SourceError:
    code = await child.wait()
    return SourceError("busy", f"the program that fetches ended without a word (exit code {code})")


async def _tail(child: asyncio.subprocess.Process) -> None:
    """Keep its standard error from filling up; what it says there is huggingface_hub's own chatter."""
    assert child.stderr is not None
    while await child.stderr.read(TAIL_BYTES):
        pass
