"""A small OpenAI-shaped model server for tests: standard library only, real HTTP, real streaming.

Started as `python fake_model.py --port {port} [--model ID] …`. It answers `GET /health`, `GET /v1/models`,
`POST /v1/chat/completions` and `POST /v1/completions` (with `"stream": true` as server-sent events), and
`GET /stats` with counters, the pid and the environment it was given. Faults are asked for on the command line.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Model(ThreadingHTTPServer):
    """The listening server with its options and counters."""

    daemon_threads = True
    request_queue_size = 1024
    allow_reuse_address = True

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__((options.host, options.port), Handler)
        self.options = options
        self.ready_at = time.monotonic() + options.delay_ready
        self.lock = threading.Lock()
        self.completions = 0
        self.asked = 0
        self.in_flight = 0
        self.disconnects = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is counted, not printed."""
        if isinstance(sys.exc_info()[1], ConnectionError):
            with self.lock:
                self.disconnects += 1
            return
        super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection; HTTP/1.1 with keep-alive."""

    protocol_version = "HTTP/1.1"
    server: Model
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged unless asked for."""
        if self.server.options.log_requests:
            print(format % args, flush=True)

    def do_GET(self) -> None:
        """Health, models and counters."""
        options = self.server.options
        if self.path == "/health":
            self._health()
        elif self.path == "/v1/models":
            ids = [options.wrong_model] if options.wrong_model else [options.model, *options.alias]
            self._json(200, {"object": "list", "data": [{"id": i, "object": "model"} for i in ids]})
        elif self.path == "/stats":
            self._json(200, self._stats())
        else:
            self._json(404, {"error": {"message": f"no such path {self.path}", "code": 404}})

    def do_POST(self) -> None:
        """Completions, whole or streamed."""
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        if self.path == "/exit":
            self._json(200, {"exiting": True})
            os._exit(int(json.loads(raw or b"{}").get("code", 1)))
        if self.path not in {"/v1/chat/completions", "/v1/completions"}:
            self._json(404, {"error": {"message": f"no such path {self.path}", "code": 404}})
            return
        if self.server.options.hang_completions:
            threading.Event().wait()
        try:
            body = json.loads(raw)
        except ValueError:
            self._json(400, {"error": {"message": "the body is not JSON", "code": 400}})
            return
        with self.server.lock:
            self.server.in_flight += 1
            self.server.asked += 1
            asked = self.server.asked
        try:
            if not self._fails(asked):
                (self._stream if body.get("stream") else self._whole)(body)
        finally:
            with self.server.lock:
                self.server.in_flight -= 1
                self.server.completions += 1

    def _fails(self, asked: int) -> bool:
        """Whether this request, so many since the start, was given its error; or the whole server dies of it."""
        options = self.server.options
        if options.die_after_requests and asked > options.die_after_requests:
            os._exit(1)
        if int(asked * options.error_rate) == int((asked - 1) * options.error_rate):
            return False
        self._json(500, {"error": {"message": "a fault that was asked for", "code": 500}})
        return True

    def _health(self) -> None:
        options = self.server.options
        if time.monotonic() < self.server.ready_at or (options.ready_file and not Path(options.ready_file).exists()):
            if options.loading_body:
                self._json(200, {"status": "loading model"})
            else:
                self._json(503, {"error": {"message": "Loading model", "code": 503}})
        elif options.health_status != 200:
            self._json(options.health_status, {"error": {"message": options.health_error}})
        else:
            self._json(200, {"status": "ok"})

    def _stats(self) -> dict[str, Any]:
        server = self.server
        environment = {k: v for k, v in os.environ.items() if k.startswith(("MOORAGE_", "CUDA_", "TEST_"))}
        return {
            "pid": os.getpid(),
            "completions": server.completions,
            "in_flight": server.in_flight,
            "disconnects": server.disconnects,
            "env": environment,
            "argv": sys.argv[1:],
            "cwd": str(Path.cwd()),
        }

    def _words(self, body: dict[str, Any]) -> list[str]:
        count = min(int(body.get("max_tokens") or self.server.options.chunks), 100_000)
        return [f"word{i} " for i in range(count)]

    def _piece(self, body: dict[str, Any], text: str | None, *, whole: bool) -> dict[str, Any]:
        chat = self.path.endswith("chat/completions")
        finish = None if text is not None and not whole else "stop"
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if not chat:
            choice["text"] = text or ""
        elif whole:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["delta"] = {} if text is None else {"content": text}
        kind = "chat.completion" if chat else "text_completion"
        return {
            "id": f"cmpl-{os.getpid()}",
            "object": kind if whole or not chat else "chat.completion.chunk",
            "created": int(time.time()),
            "model": body.get("model") or self.server.options.model,
            "choices": [choice],
        }

    def _whole(self, body: dict[str, Any]) -> None:
        words = self._words(body)
        if self.server.options.delay_answer:
            time.sleep(self.server.options.delay_answer)
        answer = self._piece(body, "".join(words).strip(), whole=True)
        answer["usage"] = {"prompt_tokens": 1, "completion_tokens": len(words), "total_tokens": 1 + len(words)}
        self._json(200, answer)

    def _stream(self, body: dict[str, Any]) -> None:
        options = self.server.options
        if options.delay_answer:
            time.sleep(options.delay_answer)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for index, word in enumerate(self._words(body)):
            if options.die_after_chunks and index >= options.die_after_chunks:
                os._exit(1)
            if index and options.chunk_interval:
                time.sleep(options.chunk_interval)
            self._event(json.dumps(self._piece(body, word, whole=False)))
        self._event(json.dumps(self._piece(body, None, whole=False)))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: str) -> None:
        payload = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(payload), payload))

    def _json(self, status: int, value: dict[str, Any]) -> None:
        payload = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        request_id = self.headers.get("X-Request-Id")
        if request_id:
            self.send_header("X-Request-Id", request_id)
        self.end_headers()
        self.wfile.write(payload)


def options() -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser()
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--model", default="fake")
    p.add_argument("--alias", action="append", default=[])
    p.add_argument("--wrong-model", help="list this id instead of --model")
    p.add_argument("--delay-ready", type=float, default=0.0, help="seconds of 503 on /health")
    p.add_argument("--ready-file", help="503 on /health until this file exists")
    p.add_argument("--loading-body", action="store_true", help="while loading answer 200 with a loading body")
    p.add_argument("--delay-listen", type=float, default=0.0, help="seconds before the port is bound")
    p.add_argument("--health-status", type=int, default=200, help="what /health answers once loaded")
    p.add_argument("--health-error", default="the engine is dead")
    p.add_argument("--exit-after", type=float, help="seconds after which it exits with --exit-code")
    p.add_argument("--exit-code", type=int, default=1)
    p.add_argument("--ignore-sigterm", action="store_true")
    p.add_argument("--fork-daemon", metavar="PIDFILE", help="leave a child in a session of its own")
    p.add_argument("--chunks", type=int, default=8, help="tokens when the request has no max_tokens")
    p.add_argument("--chunk-interval", type=float, default=0.0, help="seconds between streamed chunks")
    p.add_argument("--delay-answer", type=float, default=0.0, help="seconds before an answer begins")
    p.add_argument("--die-after-chunks", type=int, default=0, help="exit in the middle of a stream")
    p.add_argument("--die-after-requests", type=int, default=0, help="exit at the completion after so many")
    p.add_argument("--error-rate", type=float, default=0.0, help="share of the completions answered with 500, evenly")
    p.add_argument("--hang-completions", action="store_true")
    p.add_argument("--log-progress", type=float, default=0.0, help="print a line every so many seconds")
    p.add_argument("--log-requests", action="store_true")
    p.add_argument("--say", action="append", default=[], help="print this line at the start")
    return p.parse_args()


def fork_daemon(pidfile: str) -> None:
    """Leave a grandchild in its own session that ignores SIGTERM and SIGHUP."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    new = Path(pidfile + ".new")
    new.write_text(str(os.getpid()))
    new.rename(pidfile)
    while True:
        signal.pause()


def background(o: argparse.Namespace) -> None:
    """Start the timers that the options ask for."""
    if o.exit_after is not None:
        timer = threading.Timer(o.exit_after, os._exit, (o.exit_code,))
        timer.daemon = True
        timer.start()
    if o.log_progress:

        def tick() -> None:
            count = 0
            while True:
                time.sleep(o.log_progress)
                count += 1
                print(f"loading {count}", flush=True)

        threading.Thread(target=tick, daemon=True).start()


def main() -> None:
    """Serve until killed."""
    o = options()
    for line in o.say:
        print(line, flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if o.ignore_sigterm else lambda *_: os._exit(0))
    if o.fork_daemon:
        fork_daemon(o.fork_daemon)
    background(o)
    if o.delay_listen:
        time.sleep(o.delay_listen)
    server = Model(o)
    print(f"listening on {o.host}:{o.port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.5)


if __name__ == "__main__":
    main()
