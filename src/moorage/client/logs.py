"""Log lines over the wire: those of now, or a stream that goes on where it broke off, until its subject is over."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from moorage.client.calls import NoAnswer
from moorage.client.failures import unreachable
from moorage.client.session import RESUME_WAIT_MAX_S, RESUME_WAIT_S, Session
from moorage.domain.errors import NotFound, Unavailable

NDJSON = "application/x-ndjson"
OVER = frozenset({"stopped", "failed", "Completed", "Failed", "Cancelled", "Down"})
"""Words of a status or state after which no line will come."""

Json = dict[str, Any]


LINES_MAX = 10_000
"""What the API gives of each worker's past at most; asked for when a stream goes on, since much may have come."""


@dataclass(slots=True)
class _Tail:
    """What is asked for, and what was given already."""

    path: str
    query: dict[str, Any]
    seen: dict[tuple[str, int], int] = field(default_factory=dict)
    began: bool = False


def log_query(
    *,
    lines: int | None = None,
    previous: bool = False,
    attempt: int | None = None,
    since: str | float | None = None,
    grep: str | None = None,
    workers: Sequence[str] = (),
    ranks: Sequence[int] = (),
    groups: Sequence[str] = (),
) -> Json:
    """Which lines, as the API is asked for them; arguments as for `AsyncRuns.logs`."""
    return {
        "lines": lines,
        "previous": "true" if previous else None,
        "attempt": attempt,
        "since": since,
        "grep": grep,
        "worker": list(workers) or None,
        "rank": list(ranks) or None,
        "group": list(groups) or None,
    }


async def log_lines(session: Session, subject: str, query: Json, *, follow: bool) -> AsyncGenerator[Json, None]:
    """Lines as the API gives them: `{kind: line | event, line, worker, attempt, seq, at}`; signs of life are left out.

    Args:
        subject: path of the deployment, run or worker.
        query: see `log_query`.
        follow: go on with what comes.
    """
    follow = follow and query["previous"] is None and query["attempt"] is None
    tail = _Tail(f"{subject}/logs", {**query, "follow": "true" if follow else None})
    wait_s = RESUME_WAIT_S
    while True:
        try:
            async with aclosing(_once(session, tail)) as found:
                async for line in found:
                    wait_s = RESUME_WAIT_S
                    yield line
            if not follow or await _is_over(session, subject):
                return
        except NoAnswer as cause:
            if not (follow and tail.began):
                raise unreachable(cause, session.transport.base_url) from cause
        except Unavailable:
            if not (follow and tail.began):
                raise
        tail.query["lines"] = LINES_MAX
        await session.transport.sleep(wait_s)
        wait_s = min(RESUME_WAIT_MAX_S, wait_s * 2)


async def _once(session: Session, tail: _Tail) -> AsyncGenerator[Json, None]:
    """One connection; lines that were given already are not given again."""
    async with aclosing(session.lines(tail.path, NDJSON, **tail.query)) as found:
        async for text in found:
            tail.began = True
            line: Json = json.loads(text) if text.strip() else {"kind": "heartbeat"}
            if line.get("kind") != "heartbeat" and _is_new(line, tail.seen):
                yield line


async def _is_over(session: Session, subject: str) -> bool:
    """Whether the stream ended because its subject did; a server that is stopped ends it as well."""
    try:
        found: Json = await session.get(subject)
    except NotFound:
        return True
    return found.get("status", found.get("state")) in OVER


def _is_new(line: Json, seen: dict[tuple[str, int], int]) -> bool:
    worker, seq = line.get("worker"), line.get("seq")
    if not isinstance(worker, str) or not isinstance(seq, int):
        return True
    log = (worker, int(line.get("attempt") or 0))
    if seq <= seen.get(log, -1):
        return False
    seen[log] = seq
    return True
