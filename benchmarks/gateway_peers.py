"""What stands around the gateway in its benchmark: a paced stream server, a control plane, nginx, wrk.

Run as a program it is the stream server and the control plane in one process:

    python benchmarks/gateway_peers.py PORT
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

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
QUESTION = json.dumps(
    {"model": "bench", "messages": [{"role": "user", "content": "tell me a story " * 60}], "temperature": 0.5}
)
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

_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_REPORTED = b'{"lease_s": 30, "number": 1}'


class PacedStream(asyncio.Protocol):
    """Answers every request by a paced stream; speaks the routing protocol of a control plane with nothing to say."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle | None = None
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
        self.buffer = self.buffer[end + 4 + length :]
        if b"/api/v1/routing/report" in head:
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(_REPORTED), _REPORTED))
        elif b"/api/v1/routing/table" in head:
            wait_s = 0 if b"wait_s=0" in head else 20
            self.timer = self.loop.call_later(wait_s, self.transport.write, b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            self.transport.write(_STREAM_HEAD)
            self._chunk(CHUNKS_A_STREAM, self.loop.time() + PACE_S)

    def _chunk(self, left: int, at: float) -> None:
        if left == 0:
            self.transport.write(b"0\r\n\r\n")
            return
        self.timer = self.loop.call_at(at, self._send, left, at)

    def _send(self, left: int, at: float) -> None:
        self.transport.write(CHUNK)
        self._chunk(left - 1, at + PACE_S)


NGINX_COMMON = """
daemon off; pid {dir}/{name}.pid; error_log {dir}/{name}.log error; worker_processes 1;
events {{ worker_connections 4096; }}
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


def start_nginx(directory: Path, name: str, servers: str) -> "subprocess.Popen[bytes]":
    conf = directory / f"{name}.conf"
    conf.write_text(NGINX_COMMON.format(dir=directory, name=name, servers=servers))
    return subprocess.Popen(["nginx", "-p", str(directory), "-c", str(conf)], stdin=subprocess.DEVNULL)


def write_wrk_scripts(directory: Path) -> dict[str, Path]:
    """The same request each time, and heads as clients send them: lines, a trace id and a length that vary."""
    body = QUESTION.replace("\\", "\\\\").replace("'", "\\'")
    head = "wrk.method='POST'\n" + "".join(f"wrk.headers['{name}']='{value}'\n" for name, value in FIELDS.items())
    varying = f"""local n = 0
local body = '{body}'
function request()
  n = n + 1
  wrk.headers['X-Trace'] = string.format('%08x', n)
  return wrk.format('POST', '{VARYING_PATH}', nil, body .. string.rep(' ', n % 61))
end
"""
    scripts = {"repeated": directory / "repeated.lua", "varying": directory / "varying.lua"}
    scripts["repeated"].write_text(head + f"wrk.body='{body}'\n")
    scripts["varying"].write_text(head + varying)
    return scripts


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(PacedStream, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(int(sys.argv[1])))
