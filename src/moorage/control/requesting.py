"""One request to one replica, measured as a client would meet it: time to the first byte, to the last, tokens a second.

The answer is read as it comes and thrown away; of a stream only its events are counted, and the usage that its last
one may tell. Called by the sender of synthetic requests; decides nothing.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from moorage.decide.serving.evidence import Seen, microseconds, rate_milli
from moorage.domain.histogram import index_of
from moorage.ports import Clock

LINE_MAX = 1 << 18
"""Bytes of one event of a stream that are kept; what is longer carries no usage that we read."""
TEXT_MAX = 300
"""Characters of an error that are kept."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of one request; seconds.

    Args:
        error: None when it was answered well: a status below 300, a body, and an end.
        status: of the answer; None where there was none.
        tokens: of a streamed answer: output tokens as its usage tells them, else its events; 0: not streamed.
        unreachable: no connection was made, so that the server was not asked anything.
    """

    error: str | None = None
    status: int | None = None
    first_s: float = 0.0
    total_s: float = 0.0
    tokens: int = 0
    unreachable: bool = False

    def seen(self) -> Seen:
        """As evidence: one request."""
        if self.error is not None:
            return Seen(requests=1, errors=1)
        rated = self.tokens and self.total_s > 0
        return Seen(
            requests=1,
            ttft_us={index_of(microseconds(self.first_s)): 1},
            latency_us={index_of(microseconds(self.total_s)): 1},
            throughput_milli={index_of(rate_milli(self.tokens, self.total_s)): 1} if rated else {},
        )


class _Events:
    """Counts the events of a server-sent stream, fed in pieces."""

    def __init__(self) -> None:
        self._left = b""
        self.count = 0
        self.usage = 0
        self.error: str | None = None

    def feed(self, piece: bytes) -> None:
        lines = (self._left + piece).split(b"\n")
        self._left = lines.pop()[-LINE_MAX:]
        for line in lines:
            self._line(line.strip())

    def end(self) -> None:
        self._line(self._left.strip())
        self._left = b""

    @property
    def tokens(self) -> int:
        return self.usage or self.count

    def _line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        if b'"usage"' not in data and b'"error"' not in data:
            self.count += 1
            return
        try:
            event = json.loads(data)
        except ValueError:
            self.count += 1
            return
        self._told(event if isinstance(event, dict) else {})

    def _told(self, event: Mapping[str, Any]) -> None:
        if event.get("error"):
            self.error = str(event["error"])[:TEXT_MAX]
        usage = event.get("usage")
        told = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if isinstance(told, int) and told > 0:
            self.usage = told
        self.count += 1 if event.get("choices") else 0


async def ask(http: httpx.AsyncClient, clock: Clock, url: str, body: Mapping[str, Any], limit_s: float) -> Answered:
    """Send one request and read its answer to the end.

    Args:
        http: a client that uses no proxy.
        limit_s: in all; the first byte has the same limit.
    """
    began = clock.monotonic()
    try:
        async with asyncio.timeout(limit_s):
            return await _ask(http, clock, url, body, began)
    except TimeoutError:
        return Answered(error=f"no whole answer within {limit_s:.0f} s")
    except (httpx.ConnectError, httpx.ConnectTimeout) as cause:
        return Answered(error=str(cause)[:TEXT_MAX] or "cannot connect", unreachable=True)
    except httpx.HTTPError as cause:
        return Answered(error=(str(cause) or type(cause).__name__)[:TEXT_MAX])


async def _ask(http: httpx.AsyncClient, clock: Clock, url: str, body: Mapping[str, Any], began: float) -> Answered:
    headers = {"Accept-Encoding": "identity"}
    async with http.stream("POST", url, json=dict(body), headers=headers, timeout=None) as answer:
        if answer.status_code >= 300:
            return Answered(error=f"HTTP {answer.status_code}: {await _start_of(answer)}", status=answer.status_code)
        streamed = answer.headers.get("content-type", "").startswith("text/event-stream")
        events, first, size = _Events(), 0.0, 0
        async for piece in answer.aiter_bytes():
            first = first or clock.monotonic()
            size += len(piece)
            if streamed:
                events.feed(piece)
        ended = clock.monotonic()
    events.end()
    if events.error or not size:
        return Answered(error=events.error or "an empty answer", status=answer.status_code)
    return Answered(None, answer.status_code, first - began, ended - began, events.tokens if streamed else 0)


async def _start_of(answer: httpx.Response) -> str:
    text = ""
    async for piece in answer.aiter_text():
        text += piece
        if len(text) >= TEXT_MAX:
            break
    return " ".join(text[:TEXT_MAX].split()) or "no body"


async def listed_models(http: httpx.AsyncClient, base_url: str, limit_s: float) -> list[str] | None:
    """Ids and aliases that a server lists in `/v1/models`; None: it did not answer with a list."""
    try:
        async with asyncio.timeout(limit_s):
            answer = await http.get(f"{base_url}/v1/models", timeout=None)
        rows = answer.json().get("data") if answer.status_code == 200 else None
    except (TimeoutError, httpx.HTTPError, ValueError, AttributeError):
        return None
    if not isinstance(rows, list):
        return None
    names = [name for row in rows if isinstance(row, dict) for name in (row.get("id"), *(row.get("aliases") or ()))]
    return [name for name in names if isinstance(name, str)]
