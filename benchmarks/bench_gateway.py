"""The gateway's cost against nginx's, in the same interleaved run: `make bench-gateway`.

CPU is what the proxy's process used (user + system, from /proc) divided by requests or chunks; wall times are only
compared with each other. Both proxies stand before the same upstreams and get the same load. Medians over rounds.

    python benchmarks/bench_gateway.py [--rounds 6] [--seconds 3]
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gateway_peers as peers

CONNECTIONS = 32
STREAMS = 64
LATENCY_REQUESTS = 1500


@dataclass(frozen=True)
class Proxy:
    """One of the two under test."""

    name: str
    port: int
    pid: int
    request_path: str
    stream_path: str


def main() -> int:
    parser = argparse.ArgumentParser(description="Gateway CPU per request and per chunk against nginx.")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", choices=("repeated", "varying", "chunk", "latency"), default=None)
    options = parser.parse_args()
    missing = [tool for tool in ("nginx", "wrk") if shutil.which(tool) is None]
    if missing:
        print(f"bench-gateway needs {' and '.join(missing)}: apt-get install nginx-light wrk", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="bench-gateway-") as directory, running(Path(directory)) as proxies:
        report(measure(Path(directory), proxies, options))
    return 0


# --- the measured ----------------------------------------------------------------------------------------------------


def measure(directory: Path, proxies: list[Proxy], options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Every measure, per proxy, one value a round; proxies take turns within each round."""
    scripts = peers.write_wrk_scripts(directory)
    measures: dict[str, Callable[[Proxy], float]] = {
        "repeated": lambda proxy: cpu_per_request(proxy, scripts["repeated"], options.seconds),
        "varying": lambda proxy: cpu_per_request(proxy, scripts["varying"], options.seconds),
        "chunk": cpu_per_chunk,
        "latency": latency_p50_ms,
    }
    if options.only:
        measures = {options.only: measures[options.only]}
    found: dict[str, dict[str, list[float]]] = {key: {p.name: [] for p in proxies} for key in measures}
    for proxy in proxies:
        wrk(proxy, scripts["repeated"], 0.5)
    for number in range(options.rounds):
        order = proxies if number % 2 == 0 else proxies[::-1]
        for key, take in measures.items():
            for proxy in order:
                found[key][proxy.name].append(take(proxy))
    return found


def cpu_s(pid: int) -> float:
    """Seconds of CPU a process used. The scheduler's own count has nanoseconds; the classic one 10 ms steps."""
    total_ns = 0
    with contextlib.suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            total_ns += int((task / "schedstat").read_text().split()[0])
    if total_ns:
        return total_ns / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wrk(proxy: Proxy, script: Path, seconds: float) -> int:
    """Requests answered."""
    url = f"http://127.0.0.1:{proxy.port}{proxy.request_path}"
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "-s", str(script), url]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise SystemExit(f"{proxy.name} answered with errors:\n{out}")
    found = re.search(r"(\d+) requests in", out)
    assert found, out
    return int(found.group(1))


def cpu_per_request(proxy: Proxy, script: Path, seconds: float) -> float:
    """Microseconds."""
    before = cpu_s(proxy.pid)
    requests = wrk(proxy, script, seconds)
    return (cpu_s(proxy.pid) - before) / requests * 1e6


def cpu_per_chunk(proxy: Proxy) -> float:
    """Microseconds for each chunk of paced streams, the rest of the stream's cost spread over its chunks."""
    before = cpu_s(proxy.pid)
    chunks = asyncio.run(read_streams(proxy))
    return (cpu_s(proxy.pid) - before) / chunks * 1e6


def post(path: str) -> bytes:
    body = peers.QUESTION.encode()
    fields = f"Host: b\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"POST {path} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body


async def read_streams(proxy: Proxy) -> int:
    request = post(proxy.stream_path)
    counts = await asyncio.gather(*(read_stream(proxy.port, request) for _ in range(STREAMS)))
    return sum(counts)


async def read_stream(port: int, request: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head, head
    whole = await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()
    chunks = whole.count(b"data: ")
    assert chunks == peers.CHUNKS_A_STREAM
    return chunks


def latency_p50_ms(proxy: Proxy) -> float:
    """One connection, one request after the other."""
    request = post(proxy.request_path)
    times: list[float] = []
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(LATENCY_REQUESTS):
            start = time.perf_counter()
            connection.sendall(request)
            got = b""
            while peers.ANSWER[-20:].encode() not in got:
                got += connection.recv(65536)
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


# --- the running parts -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(directory: Path) -> Iterator[list[Proxy]]:
    fast, paced, proxy_port, ours = free_ports(4)
    processes: list[subprocess.Popen[bytes]] = []
    here = Path(__file__).resolve().parent
    try:
        processes.append(peers.start_nginx(directory, "fast", peers.NGINX_FAST.format(port=fast, answer=peers.ANSWER)))
        processes.append(subprocess.Popen([sys.executable, str(here / "gateway_peers.py"), str(paced)]))
        servers = peers.NGINX_PROXY.format(port=proxy_port, fast=fast, paced=paced)
        nginx = peers.start_nginx(directory, "proxy", servers)
        processes.append(nginx)
        gateway = start_gateway(directory, ours, fast, paced)
        processes.append(gateway)
        for port in (fast, paced, proxy_port, ours):
            wait_for(port)
        yield [
            Proxy("nginx", proxy_port, worker_of(nginx.pid), "/v1/chat/completions", "/stream/v1/chat/completions"),
            Proxy("moorage", ours, gateway.pid, "/v1/chat/completions", "/endpoints/stream/v1/chat/completions"),
        ]
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()


def start_gateway(directory: Path, port: int, fast: int, paced: int) -> "subprocess.Popen[bytes]":
    def endpoint(name: str, upstream: int) -> dict[str, object]:
        target = {"replica": f"{name}-1", "revision": f"{name}-1", "host": "127.0.0.1", "port": upstream}
        limits = {"max_in_flight": 1024, "max_queue": 1024}
        return {"name": name, "deployment": name, "mode": "serve", "targets": [target], "limits": limits}

    table = {"incarnation": "bench", "number": 1, "endpoints": [endpoint("bench", fast), endpoint("stream", paced)]}
    (directory / "routing-table.json").write_text(json.dumps(table))
    config = {
        "port": port,
        "server_url": f"http://127.0.0.1:{paced}",
        "token": "bench",
        "state_dir": str(directory),
        "gateway_id": "bench",
    }
    path = directory / "gateway.json"
    path.write_text(json.dumps(config))
    log = (directory / "gateway.log").open("wb")
    return subprocess.Popen([sys.executable, "-m", "moorage.gateway.main", "--config", str(path)], stderr=log)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_for(port: int) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def worker_of(master: int) -> int:
    """nginx's one worker."""
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    assert len(children) == 1, children
    return int(children[0])


# --- the report ------------------------------------------------------------------------------------------------------

TITLES = {
    "repeated": ("CPU per request, µs (equal heads)", "gateway_cpu_per_request_vs_nginx"),
    "varying": ("CPU per request, µs (no head twice)", "gateway_cpu_per_request_new_heads_vs_nginx"),
    "chunk": ("CPU per paced stream chunk, µs", "gateway_cpu_per_chunk_vs_nginx"),
    "latency": ("request p50 through the proxy, ms", "gateway_added_latency_p50_ms_over_nginx"),
}


def report(found: dict[str, dict[str, list[float]]]) -> None:
    print(f"{'':40}{'nginx':>10}{'moorage':>10}   per round (moorage / nginx)")
    lines = []
    for key, values in found.items():
        title, name = TITLES[key]
        nginx, ours = statistics.median(values["nginx"]), statistics.median(values["moorage"])
        rounds = " ".join(f"{b / a:.2f}" for a, b in zip(values["nginx"], values["moorage"], strict=True))
        print(f"{title:40}{nginx:10.3f}{ours:10.3f}   {rounds}")
        if key == "latency":
            lines.append(f"RATIO {name} {ours - nginx:.3f} <=0.1")
        else:
            pairs = zip(values["nginx"], values["moorage"], strict=True)
            lines.append(f"RATIO {name} {statistics.median(b / a for a, b in pairs):.2f} <=2.0")
    print("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
