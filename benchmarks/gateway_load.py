"""The loads of the gateway's benchmark, each put on one peer: what its clients did, and what the peer used meanwhile.

Here: clients. Not here: rounds and who takes part (`bench_gateway`), memory (`gateway_memory`).

Requests are made by `wrk` with one thread (equal heads; heads that vary; clients that close), streams and the paced
rate by this process. LiteLLM, which answers some dozens of requests a second, is asked by this process with few.
"""

import asyncio
import contextlib
import re
import select
import socket
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import gateway_peers as peers
from gateway_meter import Used
from gateway_peers import Peer

CONNECTIONS = 32
FEW = 4
STREAMS = 64
RATE, RATE_S, RATE_CONNECTIONS = 1000, 1.0, 16
ALTERNATING_REQUESTS = 300
SLOW_REQUESTS, SLOW_AT_ONCE, SLOW_STREAMS, SLOW_RATE, SLOW_RATE_S = 48, 8, 4, 10, 2.0
"""Of a peer that answers so few requests that it gets fewer."""

Figures = dict[str, float]


class Scripts:
    """What wrk sends, written for each peer: the same request each time, or heads and bodies that vary.

    Args:
        directory: where the scripts are kept.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def of(self, peer: Peer, kind: str) -> Path:
        """`equal`, `varying` (a trace id, the length of the body, the session where it has one) or `closing`."""
        path = self._directory / f"{peer.name}-{kind}.lua"
        if not path.exists():
            path.write_text(self._text(peer, kind))
        return path

    def _text(self, peer: Peer, kind: str) -> str:
        body = peer.post().partition(b"\r\n\r\n")[2].decode().replace("\\", "\\\\").replace("'", "\\'")
        fields = {**peers.FIELDS, **peer.fields, **({"Connection": "close"} if kind == "closing" else {})}
        text = "wrk.method='POST'\n" + "".join(f"wrk.headers['{name}']='{value}'\n" for name, value in fields.items())
        if kind != "varying":
            return f"{text}wrk.body='{body}'\n"
        session = next((name for name in peer.fields if name.endswith("-Session")), None)
        turn = f"wrk.headers['{session}'] = 's-' .. (n % 97)" if session else ""
        return f"""{text}local n = 0
local body = '{body}'
function request()
  n = n + 1
  wrk.headers['X-Trace'] = string.format('%08x', n)
  {turn}
  return wrk.format('POST', '{peers.VARYING_PATH}', nil, body .. string.rep(' ', n % 61))
end
"""


# --- requests as fast as they are answered ---------------------------------------------------------------------------


def requests(peer: Peer, script: Path, connections: int, seconds: int) -> Figures:
    """`cpu_us` a request, `kernel` (per cent of it), `rate` (requests/s), `busy` (per cent of a core)."""
    before = Used.of(peer.pid)
    count, wall_s = _wrk(peer, script, connections, seconds)
    return _per_request(Used.of(peer.pid).since(before), count, wall_s)


def slow_requests(peer: Peer, *, closing: bool = False) -> Figures:
    """The same with a few requests."""
    before, start = Used.of(peer.pid), time.perf_counter()
    asyncio.run(_ask_slowly(peer, closing))
    return _per_request(Used.of(peer.pid).since(before), SLOW_REQUESTS, time.perf_counter() - start)


def _per_request(used: Used, count: int, wall_s: float) -> Figures:
    rate = {"rate": count / wall_s}
    if not used.cpu_s:  # nobody stands between
        return rate
    per_request_us, busy = used.cpu_s / count * 1e6, 100 * used.cpu_s / wall_s
    return rate | {"cpu_us": per_request_us, "kernel": used.kernel_percent, "busy": busy}


def _wrk(peer: Peer, script: Path, connections: int, seconds: int) -> tuple[int, float]:
    url = f"http://127.0.0.1:{peer.port}{peer.request_path}"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), url]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+) requests in ([\d.]+)(m?s),", ran.stdout)
    if ran.returncode or found is None or found[1] == "0" or "Non-2xx" in ran.stdout or "Socket errors" in ran.stdout:
        raise SystemExit(f"{peer.name} answered with errors:\n{ran.stdout}{ran.stderr}")
    return int(found[1]), float(found[2]) / (1000 if found[3] == "ms" else 1)


async def _ask_slowly(peer: Peer, closing: bool) -> None:
    request = peer.post(Connection="close") if closing else peer.post()

    async def some() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", peer.port)
        for number in range(SLOW_REQUESTS // SLOW_AT_ONCE):
            if closing and number:
                reader, writer = await asyncio.open_connection("127.0.0.1", peer.port)
            writer.write(request)
            answer = b""
            while not is_whole(answer):
                part = await reader.read(65536)
                assert part, answer
                answer += part
            assert b" 200 " in answer[:16], answer
            if closing:
                writer.close()
        writer.close()

    await asyncio.gather(*(some() for _ in range(SLOW_AT_ONCE)))


# --- streams ---------------------------------------------------------------------------------------------------------


def streams(peer: Peer, count: int = STREAMS) -> Figures:
    """`cpu_us` for each chunk of paced streams, the rest of a stream's cost spread over its chunks."""
    before = Used.of(peer.pid)
    chunks = asyncio.run(_read_streams(peer, count))
    used = Used.of(peer.pid).since(before)
    return {"cpu_us": used.cpu_s / chunks * 1e6, "kernel": used.kernel_percent}


async def _read_streams(peer: Peer, count: int) -> int:
    request = peer.post_for_stream()
    return sum(await asyncio.gather(*(_read_stream(peer, request) for _ in range(count))))


async def _read_stream(peer: Peer, request: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", peer.port)
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head, head
    whole = await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()
    chunks = whole.count(b"data: ")
    assert chunks >= peers.CHUNKS_A_STREAM, whole[-300:]  # LiteLLM ends with events of its own
    return chunks


# --- latency ---------------------------------------------------------------------------------------------------------


def alternating(order: Sequence[Peer]) -> list[Figures]:
    """`p50_ms` and `p99_ms` with one connection to each peer and one request at a time, the peers in turn."""
    times: list[list[float]] = [[] for _ in order]
    with contextlib.ExitStack() as stack:
        connections = [(stack.enter_context(connect(peer)), peer.post()) for peer in order]
        for _ in range(ALTERNATING_REQUESTS):
            for (connection, request), own in zip(connections, times, strict=True):
                start = time.perf_counter()
                connection.sendall(request)
                read_answer(connection)
                own.append(time.perf_counter() - start)
    return [_percentiles(own) for own in times]


def paced(peer: Peer, rate: int = RATE, seconds: float = RATE_S) -> Figures:
    """`p50_ms` and `p99_ms` of requests that begin at fixed moments, whether or not those before are answered.

    Each counts from the moment when it was due, so that one who waits for a free connection is seen. What this
    client adds by itself is in the figures of row `direct` as well.
    """
    request = peer.post()
    with contextlib.ExitStack() as stack:
        free = [stack.enter_context(connect(peer)) for _ in range(RATE_CONNECTIONS)]
        busy: dict[int, tuple[socket.socket, float, bytes]] = {}
        times: list[float] = []
        begin, sent, count = time.perf_counter() + 0.01, 0, int(rate * seconds)
        while len(times) < count:
            now = time.perf_counter()
            while sent < count and free and (due := begin + sent / rate) <= now:
                connection = free.pop()
                connection.sendall(request)
                busy[connection.fileno()] = (connection, due, b"")
                sent += 1
            wait_s = max(0.0, begin + sent / rate - time.perf_counter()) if sent < count and free else 5.0
            ready, _, _ = select.select(list(busy), (), (), wait_s)
            assert ready or wait_s < 5, f"{peer.name} does not answer"
            for number in ready:
                connection, due, got = busy[number]
                got += _received(connection)
                busy[number] = (connection, due, got)
                if is_whole(got):
                    times.append(time.perf_counter() - due)
                    free.append(busy.pop(number)[0])
    return _percentiles(times)


def _percentiles(times_s: list[float]) -> Figures:
    cuts = statistics.quantiles(times_s, n=100, method="inclusive")
    return {"p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000}


# --- sockets ---------------------------------------------------------------------------------------------------------


def connect(peer: Peer) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", peer.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_answer(connection: socket.socket) -> None:
    got = b""
    while not is_whole(got):
        got += _received(connection)
    assert b" 200 " in got[:16], got


def _received(connection: socket.socket) -> bytes:
    part = connection.recv(65536)
    assert part, "the peer closed the connection"
    return part


def is_whole(answer: bytes) -> bool:
    """Whether an answer with a length, or in chunks, is all there."""
    head, mark, body = answer.partition(b"\r\n\r\n")
    if not mark:
        return False
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")
