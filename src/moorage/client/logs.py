"""Log lines over the wire: a page, or a stream that goes on where it broke off."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from moorage.client.calls import NoAnswer
from moorage.client.failures import unreachable
from moorage.client.session import RESUME_WAIT_MAX_S, RESUME_WAIT_S, Session
from moorage.domain.errors import Unavailable

Json = dict[str, Any]


async def log_lines(
    session: Session, path: str, *, lines: int, follow: bool, previous: bool, grep: str | None
) -> AsyncGenerator[Json, None]:
    """Lines as the API gives them: `{kind, line, worker, seq}`; signs of life are left out."""
    query = {"lines": lines, "previous": "true" if previous else None, "grep": grep}
    if not follow:
        for line in (await session.get(path, limit_s=None, **query))["items"]:
            yield line
        return
    async with aclosing(_followed(session, path, query)) as found:
        async for line in found:
            yield line


async def _followed(session: Session, path: str, query: dict[str, Any]) -> AsyncGenerator[Json, None]:
    """Until the server ends the stream. After a break, lines that were given already are not given again."""
    seen: dict[str, int] = {}
    began, wait_s = False, RESUME_WAIT_S
    while True:
        try:
            async with aclosing(session.frames(path, follow="true", **query)) as frames:
                async for frame in frames:
                    began, wait_s = True, RESUME_WAIT_S
                    if frame.data and frame.event != "heartbeat":
                        line = {"kind": frame.event, **json.loads(frame.data)}
                        if line["kind"] != "heartbeat" and _is_new(line, seen):
                            yield line
            return
        except NoAnswer as cause:
            if not began:
                raise unreachable(cause, session.transport.base_url) from cause
        except Unavailable:
            if not began:
                raise
        await session.transport.sleep(wait_s)
        wait_s = min(RESUME_WAIT_MAX_S, wait_s * 2)


def _is_new(line: Json, seen: dict[str, int]) -> bool:
    worker, seq = line.get("worker"), line.get("seq")
    if not isinstance(worker, str) or not isinstance(seq, int):
        return True
    if seq <= seen.get(worker, -1):
        return False
    seen[worker] = seq
    return True
