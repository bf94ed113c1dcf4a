"""One question to a model server, bounded in size and in time whatever it answers. The only place that probes.

A server is somebody else's program: it may answer without end, a byte at a time, or packed so that a little becomes
much. What is over a limit is not read, its connection is closed, and the same trouble gives the same short text each
time. Called by `readiness.py` and `liveness.py`, for the agent and the runner library alike; judges nothing.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import httpx

HEALTH_BYTES_MAX = 64 << 10
"""Health answers are a word or a small object."""
BODY_BYTES_MAX = 1 << 20
"""A list of models with all their metadata, or the answer to one small request."""
PROBE_TIMEOUT_S = 10.0
_PLAIN = frozenset({"", "identity"})


class ProbeFailed(Exception):
    """There was no answer that can be judged.

    Args:
        error: a short, stable text.
        status: HTTP status, where one came before the trouble; else None.
    """

    def __init__(self, error: str, status: int | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.status = status


class TooLarge(ProbeFailed):
    """The body is over its limit: no matter of patience."""


@dataclass(frozen=True, slots=True)
class Probed:
    """An answer, whole.

    Args:
        status: HTTP status.
        content: the body; empty where it came in an encoding that was not asked for, which is not read.
    """

    status: int
    content: bytes

    @property
    def json(self) -> Any:
        """The body as JSON, else None."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            return None

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode("utf-8", "replace")


async def probe(
    http: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    bytes_max: int = HEALTH_BYTES_MAX,
    total_s: float = PROBE_TIMEOUT_S,
    body: Any = None,
) -> Probed:
    """Ask once.

    Args:
        http: a client that uses no proxy and keeps no connection.
        method, url: what is asked.
        bytes_max: size over which a body is not taken.
        total_s: seconds for the whole of it, from connecting to the body's last byte.
        body: sent as JSON, where it is not None.

    Raises:
        ProbeFailed: no answer, or none in time.
        TooLarge: the body is longer than `bytes_max`.
    """
    headers = {"Accept-Encoding": "identity"}
    try:
        async with (
            asyncio.timeout(total_s),
            http.stream(method, url, json=body, headers=headers, timeout=total_s) as answer,
        ):
            return Probed(answer.status_code, await _content(answer, bytes_max))
    except TimeoutError:
        raise ProbeFailed("no answer in time") from None
    except httpx.HTTPError as cause:
        raise ProbeFailed(_describe(cause)) from cause


async def _content(answer: httpx.Response, bytes_max: int) -> bytes:
    if answer.headers.get("content-encoding", "").strip().lower() not in _PLAIN:
        return b""
    content = bytearray()
    async for part in answer.aiter_bytes():
        content += part
        if len(content) > bytes_max:
            raise TooLarge(f"the answer is longer than {bytes_max >> 10} KiB", answer.status_code)
    return bytes(content)


def _describe(cause: httpx.HTTPError) -> str:
    """The same trouble must give the same reason each time."""
    if isinstance(cause, httpx.ConnectError):
        return "connection refused"
    if isinstance(cause, httpx.TimeoutException):
        return "no answer in time"
    return type(cause).__name__
