"""What stands around the gateways in their benchmark: the upstreams, a control plane, nginx, and what one peer is.

All peers stand before the same two upstreams: one that answers at once (nginx), one that sends paced streams. The
latter is this file run as a program, a control plane for Moorage's gateways in the same process:

    python benchmarks/gateway_peers.py PORT

It has no table to give, and grants every share of a limit that a gateway asks for.
"""

import asyncio
import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "lorem ipsum " * 30}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 200, "completion_tokens": 90, "total_tokens": 290},
    }
)
QUESTION = {"model": "bench", "messages": [{"role": "user", "content": "tell me a story " * 60}], "temperature": 0.5}
EVENT = (
    b"data: "
    + json.dumps({"id": "c", "choices": [{"index": 0, "delta": {"content": " token"}}], "x": "y" * 80}).encode()
    + b"\n\n"
)
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
FIELDS = {
    "Content-Type": "application/json",
    "Authorization": "Bearer sk-0123456789abcdef",
    "Accept": "application/json",
    "User-Agent": "OpenAI/Python 1.50",
}
VARYING_PATH = "/v1/completions"
"""Its answers carry a line that never repeats either."""
CHUNKS_A_STREAM = 100
PACE_S = 0.02
SLOW_PACE = "X-Pace-S"
"""A request that has it is answered by a stream without an end, in which a part comes after so many seconds."""
LIMIT = 1_000_000_000
"""Of the limits that are in use and never reached."""

_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_NAMED_PACE = re.compile(rb"\r\n" + SLOW_PACE.lower().encode() + rb": *([\d.]+)")


@dataclass(frozen=True)
class Stand:
    """What the peers stand before.

    Args:
        fast, paced: ports of the upstreams; the latter is the control plane's as well.
        connections: how many clients a peer must bear.
    """

    fast: int
    paced: int
    connections: int


@dataclass(frozen=True)
class Peer:
    """One of those under test, as it runs.

    Args:
        process: with its children, what is measured; None: nothing stands between client and upstream.
        fields: of the requests, besides `FIELDS` or in place of them.
        stream_model: what `model` must be in the body of a request for a stream; None: anything.
    """

    name: str
    port: int
    process: "subprocess.Popen[bytes] | None"
    request_path: str = "/v1/chat/completions"
    stream_path: str = "/stream/v1/chat/completions"
    stream_model: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def post(self, path: str | None = None, model: str | None = None, **more: str) -> bytes:
        """A request as it goes over the wire.

        Args:
            path: None: where it is answered at once.
            model: that a stream is asked of; None: none.
            more: header fields, `_` for `-`.
        """
        question = QUESTION if model is None else QUESTION | {"model": model, "stream": True}
        body = json.dumps(question).encode()
        named = {**FIELDS, **self.fields, **{name.replace("_", "-"): value for name, value in more.items()}}
        lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        head = f"POST {path or self.request_path} HTTP/1.1\r\n{lines}Host: 127.0.0.1\r\nContent-Length: {len(body)}"
        return f"{head}\r\n\r\n".encode() + body

    def post_for_stream(self, **more: str) -> bytes:
        return self.post(self.stream_path, self.stream_model, **more)


# --- the paced upstream and the control plane ------------------------------------------------------------------------


class PacedStream(asyncio.Protocol):
    """Answers every request by a paced stream; speaks the routing protocol of a control plane with nothing to say."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by birth
        self.loop = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle | None = None
        self.pace_s = PACE_S
        self.buffer = b""

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end].lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
        if len(self.buffer) < end + 4 + length:
            return
        body = self.buffer[end + 4 : end + 4 + length]
        self.buffer = self.buffer[end + 4 + length :]
        if b"/api/v1/routing/report" in head:
            answer = reported(body)
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
        elif b"/api/v1/routing/table" in head:
            wait_s = 0 if b"wait_s=0" in head else 20
            self.timer = self.loop.call_later(wait_s, self.transport.write, b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            slow = _NAMED_PACE.search(head)
            self.pace_s = float(slow[1]) if slow else PACE_S
            self.transport.write(_STREAM_HEAD)
            self._chunk(-1 if slow else CHUNKS_A_STREAM, self.loop.time() + self.pace_s)

    def _chunk(self, left: int, at: float) -> None:
        if left == 0:
            self.transport.write(b"0\r\n\r\n")
            return
        self.timer = self.loop.call_at(at, self._send, left, at)

    def _send(self, left: int, at: float) -> None:
        self.transport.write(CHUNK)
        self._chunk(left - 1, at + self.pace_s)


def reported(body: bytes) -> bytes:
    """The answer to a gateway's report: a share of everything that it asks for."""
    wants = json.loads(body).get("wants", ())
    slices = [
        {"subject": want["subject"], "resource": want["resource"], "limit": LIMIT, "share": LIMIT} for want in wants
    ]
    return json.dumps({"lease_s": 30, "number": 1, "slices": slices, "slices_epoch": "bench"}).encode()


# --- nginx -----------------------------------------------------------------------------------------------------------

NGINX_COMMON = """
daemon off; pid {dir}/{name}.pid; error_log {dir}/{name}.log error; worker_processes 1;
events {{ worker_connections {connections}; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; sendfile on; tcp_nodelay on;
  client_body_temp_path {dir}/{name}-b; proxy_temp_path {dir}/{name}-p; fastcgi_temp_path {dir}/{name}-f;
  uwsgi_temp_path {dir}/{name}-u; scgi_temp_path {dir}/{name}-s;
  {servers}
}}
"""
NGINX_FAST = """
server {{
  listen 127.0.0.1:{port} backlog=4096; default_type application/json;
  location / {{ return 200 '{answer}'; }}
  location {varying} {{ add_header X-Trace $request_id; return 200 '{answer}'; }}
}}
"""
NGINX_PROXY = """
upstream fast {{ server 127.0.0.1:{fast}; keepalive 256; keepalive_requests 1000000000; }}
upstream paced {{ server 127.0.0.1:{paced}; keepalive 256; keepalive_requests 1000000000; }}
server {{
  listen 127.0.0.1:{port} backlog=4096;
  proxy_http_version 1.1; proxy_set_header Connection ""; client_body_buffer_size 64k;
  location / {{ proxy_pass http://fast; }}
  location /stream/ {{ proxy_pass http://paced; proxy_buffering off; }}
}}
"""


def start_fast(directory: Path, port: int) -> "subprocess.Popen[bytes]":
    """The upstream that answers at once."""
    return _nginx(directory, "fast", NGINX_FAST.format(port=port, answer=ANSWER, varying=VARYING_PATH), 4096)


def start_paced(port: int) -> "subprocess.Popen[bytes]":
    """The upstream that streams, and control plane."""
    return subprocess.Popen([sys.executable, __file__, str(port)])


def start_nginx(directory: Path, port: int, stand: Stand) -> Peer:
    servers = NGINX_PROXY.format(port=port, fast=stand.fast, paced=stand.paced)
    # A stream has two connections.
    return Peer("nginx", port, _nginx(directory, "proxy", servers, stand.connections + 2048))


def _nginx(directory: Path, name: str, servers: str, connections: int) -> "subprocess.Popen[bytes]":
    conf = directory / f"{name}.conf"
    conf.write_text(NGINX_COMMON.format(dir=directory, name=name, servers=servers, connections=connections))
    return subprocess.Popen(["nginx", "-p", str(directory), "-c", str(conf)], stdin=subprocess.DEVNULL)


# --- processes -------------------------------------------------------------------------------------------------------


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def is_there(port: int, process: "subprocess.Popen[bytes]", patience_s: float = 120) -> bool:
    """Whether it comes to accept connections; not, when it ends or takes too long."""
    until = time.monotonic() + patience_s
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        except OSError:
            time.sleep(0.02)
    return False


def end(*processes: "subprocess.Popen[bytes]") -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def have(*tools: str) -> bool:
    return all(map(shutil.which, tools))


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(PacedStream, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(int(sys.argv[1])))
