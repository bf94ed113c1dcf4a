"""Many clients in one process: each request timed to its first token, its answer read whole. For benchmarks too.

Here: one connection of a client, and what came of a request. Not here: who asks when (`flooding`, `replaying`).
An answer is told as what it is, whatever it is: a refused connection, a reset, a cut stream are answers as well. The
clock is not the loop's: uvloop's has a resolution of a millisecond.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

import httptools


@dataclass(slots=True)
class Answer:
    """What came of one request; seconds of one clock.

    Args:
        error: of the connection, before the answer was whole; None: none.
        first_at: of the first event, or of the first byte of another answer's body; comments do not count.
        comments: of the stream, before its first event.
    """

    sent_at: float
    status: int = 0
    body: bytes = b""
    error: str | None = None
    first_at: float = 0.0
    ended_at: float = 0.0
    retry_after_s: float | None = None
    request_id: str = ""
    comments: int = 0

    @property
    def ttft_s(self) -> float:
        """From its sending to its first token."""
        return self.first_at - self.sent_at

    @property
    def total_s(self) -> float:
        """From its sending to its end."""
        return self.ended_at - self.sent_at

    def events(self) -> list[dict[str, Any]]:
        """Those of a stream, without its end."""
        lines = self.body.decode().split("\n\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ") and line != "data: [DONE]"]

    def told(self) -> dict[str, Any]:
        """The last word of the model server, which has its usage: of a stream the last event, else the whole."""
        if self.body.endswith(b"data: [DONE]\n\n"):
            return self.events()[-1]
        found: dict[str, Any] = json.loads(self.body)
        return found

    def text(self) -> str:
        """What the model said."""
        if self.body.endswith(b"data: [DONE]\n\n"):
            return "".join(c["delta"].get("content", "") for e in self.events() for c in e.get("choices", ()))
        return str(json.loads(self.body)["choices"][0]["message"]["content"])

    def wrong(self, user: str, tokens: int) -> str | None:
        """What is not as the batching model answers this user; None: nothing."""
        if self.error is not None or self.status != 200:
            return f"{self.status} {self.error or self.body[:200]!r}"
        try:
            words = self.text().split()
        except (ValueError, KeyError, IndexError):
            return f"an answer that ends with {self.body[-100:]!r}"
        right = [user, *(f"w{number}" for number in range(1, tokens))]
        return None if words == right else f"{len(words)} words, of which the first is {words[:1]}, not {user}"


def chat(model: str, user: str, *, tokens: int = 4, stream: bool = False, prompt_tokens: int = 1) -> bytes:
    """A request for a chat completion, as it goes over the wire.

    Args:
        prompt_tokens: of the model server `batching_model`.
    """
    body = {
        "model": model,
        "user": user,
        "max_tokens": tokens,
        "stream": stream,
        "messages": [{"role": "user", "content": "tok " * prompt_tokens}],
    }
    raw = json.dumps(body, separators=(",", ":")).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(raw)}\r\n\r\n"
    )
    return head.encode() + raw


class Client(asyncio.Protocol):
    """One connection, for one request after the other."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._done: asyncio.Future[Answer] | None = None
        self._parser: Any = None
        self._body = bytearray()
        self._stays = True
        self.commented = asyncio.Event()
        """a comment came of the stream that is asked for"""

    @classmethod
    async def connected(cls, port: int, host: str = "127.0.0.1") -> "Client":
        """A new connection; OSError: refused."""
        _, client = await asyncio.get_running_loop().create_connection(cls, host, port)
        return client

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._transport is not None and not self._transport.is_closing() and self._stays

    async def ask(self, request: bytes) -> Answer:
        """Send it and read the answer."""
        assert self._transport is not None
        self._answer = Answer(time.perf_counter())
        self._done = self._loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._body.clear()
        self._transport.write(request)
        return await self._done

    def close(self) -> None:
        """Leave, whatever is still to come."""
        if self._transport is not None:
            self._transport.abort()

    # --- of the transport ---

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"not HTTP: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(repr(exc) if exc else "closed before the end")

    # --- of the parser ---

    def on_header(self, name: bytes, value: bytes) -> None:
        answer = self._answer
        lower = name.lower()
        assert answer is not None
        if lower == b"retry-after":
            answer.retry_after_s = float(value)
        elif lower == b"x-request-id":
            answer.request_id = value.decode()

    def on_body(self, data: bytes) -> None:
        answer = self._answer
        assert answer is not None
        self._body += data
        if not answer.first_at:
            if data.startswith(b":"):
                answer.comments += data.count(b"\n\n")
                self.commented.set()
                if b"data: " not in data:
                    return
            answer.first_at = time.perf_counter()

    def on_message_complete(self) -> None:
        assert self._answer is not None
        self._answer.status = self._parser.get_status_code()
        self._stays = self._parser.should_keep_alive()
        self._end(None)

    def _end(self, error: str | None) -> None:
        answer, done = self._answer, self._done
        if answer is None or done is None or done.done():
            return
        answer.error, answer.ended_at, answer.body = error, time.perf_counter(), bytes(self._body)
        done.set_result(answer)


async def once(port: int, request: bytes) -> Answer:
    """One request on a connection of its own."""
    began = time.perf_counter()
    try:
        client = await Client.connected(port)
    except OSError as refused:
        return Answer(began, error=f"refused: {refused}", ended_at=time.perf_counter())
    try:
        return await client.ask(request)
    finally:
        client.close()


def percentile(values: list[float], share: float) -> float:
    """The value that this share of them does not exceed; 0.0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
