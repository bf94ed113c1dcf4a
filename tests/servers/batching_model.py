"""A model server that takes the time which a real one takes: continuous batching, without a model. For benchmarks too.

    python batching_model.py --port {port} [--model ID] [--load-s 60] [--speed 10] …

Real HTTP, whole answers and server-sent events, with usage; `GET /stats` tells what it saw. Its engine steps as vLLM's
does: in each step every running request gets one token, and what is left of `--budget` goes to prompts, the oldest
first, in chunks. A request is let in when one of `--slots` is free and its whole context fits into `--kv-tokens`;
until then it waits, first come, first served. A step takes

    max(base, prefill tokens * prefill_us) + requests in the step * per_seq_ms

that is, what reading the weights takes, or computing the prompts where that is more. The constants are those of
Llama-2-70B on one DGX-H100 (8 GPUs, tensor parallel 8, power-capped), fitted to the measurements that the authors of
Splitwise (Patel et al., ISCA 2024) published with their simulator (github.com/Mutinifni/splitwise-sim,
data/perf_model.csv). Theirs against these, in ms:

    prompt of 512, 1024, 2048, 4096, 8192 tokens   69, 101, 178, 490, 1100    61, 123, 246, 492, 983
    a token at a batch of 1, 8, 16, 32, 64         29.7, 32.4, 34.2, 38.9, 50.0    29.9, 32.2, 34.7, 39.8, 50.1

Slots: the largest batch that they measured. KV: (8 * 80 GB * 0.9 - 138 GB of weights) / 320 KiB a token (80 layers,
8 KV heads of 128, two of them, 2 bytes). `--load-s` is what a load of 138 GB takes at 2.3 GB/s: 60 s.

`--speed N` lets all of that pass N times as fast. A prompt has a token for each 4 bytes of its messages; an answer has
`max_tokens` tokens, the first of which repeats the field `user`, so that a client knows its own answer.
"""

import argparse
import asyncio
import json
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httptools
import uvloop

LATE_MAX_S = 0.25
"""What the engine makes up for when its machine was busy; more is lost, as if the step had been that long."""
BYTES_A_TOKEN = 4


class Job:
    """One request in the engine; times are of the monotonic clock."""

    __slots__ = ("arrived", "body", "cancelled", "first_at", "let_in", "produced", "prompt", "tell", "tokens", "unread")

    def __init__(self, body: dict[str, Any], arrived: float, tell: Callable[["Job"], None]) -> None:
        self.body = body
        self.prompt = self.unread = prompt_tokens(body)
        self.tokens = max(1, int(body.get("max_tokens") or 16))
        self.produced = 0
        self.arrived = arrived
        self.let_in = self.first_at = 0.0
        self.cancelled = False
        self.tell = tell

    @property
    def held(self) -> int:
        """Tokens of the cache that it may come to need."""
        return self.prompt + self.tokens


def prompt_tokens(body: dict[str, Any]) -> int:
    """Of its messages, or its prompt."""
    texts = [str(m.get("content") or "") for m in body.get("messages") or ()] or [str(body.get("prompt") or "")]
    return max(1, sum(map(len, texts)) // BYTES_A_TOKEN)


class Engine:
    """Continuous batching in time alone.

    Args:
        options: constants, as on the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.base_s = options.base_ms / 1e3 / options.speed
        self.token_s = options.prefill_us / 1e6 / options.speed
        self.seq_s = options.per_seq_ms / 1e3 / options.speed
        self.slots: int = options.slots
        self.budget: int = options.budget
        self.kv_left: int = options.kv_tokens
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.busy_s = 0.0
        self.late_s = self.late_most_s = 0.0
        self.waiting_most = 0
        self._come = asyncio.Event()

    def add(self, job: Job) -> None:
        """It came."""
        self.waiting.append(job)
        self.waiting_most = max(self.waiting_most, len(self.waiting))
        self._come.set()

    async def run(self) -> None:
        """Step for ever."""
        at = time.monotonic()
        while True:
            self._let_in(time.monotonic())
            if not self.running:
                self._come.clear()
                await self._come.wait()
                at = time.monotonic()
                continue
            read = self._share_budget()
            took = max(self.base_s, sum(read.values()) * self.token_s) + len(self.running) * self.seq_s
            at += took
            self.busy_s += took
            now = time.monotonic()
            if now - at > LATE_MAX_S:
                at = now
            await asyncio.sleep(max(0.0, at - now))
            self.late_s = time.monotonic() - at
            self.late_most_s = max(self.late_most_s, self.late_s)
            self._step(read, time.monotonic())

    def _let_in(self, now: float) -> None:
        while self.waiting and len(self.running) < self.slots:
            job = self.waiting[0]
            if not job.cancelled:
                if job.held > self.kv_left and self.running:
                    return
                job.let_in = now
                self.kv_left -= job.held
                self.running.append(job)
            self.waiting.popleft()

    def _share_budget(self) -> dict[Job, int]:
        """Prompt tokens that are read in this step, by request."""
        left = self.budget - sum(job.unread == 0 for job in self.running)
        read: dict[Job, int] = {}
        for job in self.running:
            if job.unread and left > 0:
                read[job] = min(job.unread, left)
                left -= read[job]
        return read

    def _step(self, read: dict[Job, int], now: float) -> None:
        for job in self.running:
            if job.unread and not job.cancelled:
                job.unread -= read.get(job, 0)
                if job.unread:
                    continue
                job.first_at = now
            job.produced += 1
            if not job.cancelled:
                job.tell(job)
        over = [job for job in self.running if job.cancelled or job.produced >= job.tokens]
        for job in over:
            self.running.remove(job)
            self.kv_left += job.held


class Server:
    """What all connections share.

    Args:
        options: the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.engine = Engine(options)
        self.ready_at = time.monotonic() + options.load_s / options.speed
        self.asked = self.answered = self.gone = self.early = 0
        self.users: list[str] = []

    @property
    def ready(self) -> bool:
        """Whether it has loaded."""
        file = self.options.ready_file
        return time.monotonic() >= self.ready_at and (file is None or Path(file).exists())

    def stats(self) -> dict[str, Any]:
        """What it saw."""
        engine = self.engine
        return {
            "pid": os.getpid(),
            "asked": self.asked,
            "answered": self.answered,
            "gone": self.gone,
            "early": self.early,
            "running": len(engine.running),
            "waiting": len(engine.waiting),
            "waiting_most": engine.waiting_most,
            "busy_s": engine.busy_s,
            "late_most_s": engine.late_most_s,
            "users": self.users,
        }


class Connection(asyncio.Protocol):
    """One connection with keep-alive; its requests come one after the other."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body = bytearray()
        self._job: Job | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._job is not None:
            self._job.cancelled = True
            self.server.gone += 1

    # --- what the parser calls ---

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        path, body = self._url.decode(), bytes(self._body)
        self._url = b""
        self._body.clear()
        if path == "/health":
            loaded = self.server.ready
            self._json(200 if loaded else 503, {"status": "ok"} if loaded else {"error": {"message": "Loading model"}})
        elif path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": self.server.options.model, "object": "model"}]})
        elif path == "/stats":
            self._json(200, self.server.stats())
        elif path in ("/v1/chat/completions", "/v1/completions"):
            self._complete(json.loads(body))
        else:
            self._json(404, {"error": {"message": f"no such path {path}"}})

    # --- completions ---

    def _complete(self, body: dict[str, Any]) -> None:
        server = self.server
        server.asked += 1
        server.early += not server.ready
        if "user" in body:
            server.users.append(str(body["user"]))
        tell = self._tell_event if body.get("stream") else self._tell_whole
        self._job = Job(body, time.monotonic(), tell)
        server.engine.add(self._job)

    def _tell_whole(self, job: Job) -> None:
        if job.produced < job.tokens:
            return
        text = "".join(_word(job, number) for number in range(job.tokens))
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self._over()
        self._json(200, {"object": "chat.completion", "choices": [choice], **self._sums(job)})

    def _tell_event(self, job: Job) -> None:
        every = self.server.options.stream_interval
        last = job.produced == job.tokens
        out = b""
        if job.produced == 1:
            out = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        if job.produced == 1 or last or (job.produced - 1) % every == 0:
            first = 0 if job.produced == 1 else 1 + (job.produced - 2) // every * every
            out += _event({"content": "".join(_word(job, n) for n in range(first, job.produced))}, None)
        if last:
            out += _event({}, "stop")
            out += _chunk(b"data: %b\n\n" % json.dumps({"choices": [], **self._sums(job)}).encode())
            out += _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
            self._over()
        self.transport.write(out)

    def _over(self) -> None:
        self._job = None
        self.server.answered += 1

    def _sums(self, job: Job) -> dict[str, Any]:
        """Usage, and times as llama.cpp's server tells them; `late_ms`: by how much the last step came too late."""
        usage = {
            "prompt_tokens": job.prompt,
            "completion_tokens": job.tokens,
            "total_tokens": job.prompt + job.tokens,
        }
        timings = {
            "queued_ms": (job.let_in - job.arrived) * 1e3,
            "prompt_ms": (job.first_at - job.let_in) * 1e3,
            "late_ms": self.server.engine.late_s * 1e3,
        }
        return {"usage": usage, "timings": timings}

    def _json(self, status: int, value: dict[str, Any]) -> None:
        raw = json.dumps(value).encode()
        head = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(raw))
        self.transport.write(head + raw)


def _word(job: Job, number: int) -> str:
    return f"{job.body.get('user', 'word')} " if number == 0 else f"w{number} "


def _event(delta: dict[str, str], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _chunk(b"data: %b\n\n" % json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode())


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def parsed() -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--model", default="fake")
    p.add_argument("--load-s", type=float, default=60.0)
    p.add_argument("--ready-file", help="it has not loaded until this file exists")
    p.add_argument("--speed", type=float, default=1.0)
    p.add_argument("--base-ms", type=float, default=29.6, help="a step that only reads the weights")
    p.add_argument("--prefill-us", type=float, default=120.0, help="of computing one token of a prompt")
    p.add_argument("--per-seq-ms", type=float, default=0.32)
    p.add_argument("--slots", type=int, default=64, help="requests in one batch")
    p.add_argument("--kv-tokens", type=int, default=1_330_000)
    p.add_argument("--budget", type=int, default=8192, help="tokens in one step; vLLM's max_num_batched_tokens")
    p.add_argument("--stream-interval", type=int, default=1, help="tokens in one event; vLLM has the same option")
    return p.parse_args()


async def serve(options: argparse.Namespace) -> None:
    """Until SIGTERM."""
    loop = asyncio.get_running_loop()
    server = Server(options)
    over = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    listening = await loop.create_server(lambda: Connection(server), options.host, options.port, backlog=4096)
    engine = loop.create_task(server.engine.run())
    engine.add_done_callback(lambda _: over.set())
    await over.wait()
    listening.close()
    if engine.done():
        engine.result()


if __name__ == "__main__":
    uvloop.run(serve(parsed()))
