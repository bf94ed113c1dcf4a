"""The gateway's cost against nginx's, in the same interleaved run: `make bench-gateway`.

CPU is what the proxy's process used (user + system, from /proc) divided by requests or chunks, so what else the
machine does costs caches but is not counted. Rounds are short and the proxies take turns within each, so that both
meet the same noise; a ratio is the median over the rounds of ours divided by nginx's. Both stand before the same
upstreams and get the same load. Wall times (latency) alternate request by request.

    python benchmarks/bench_gateway.py [--rounds 9] [--seconds 1] [--only MEASURE] [--against SRC] [--peers NAME ...]

HAProxy, Envoy and LiteLLM take part in the rounds as well (`gateway_rivals`); `--peers` with nothing leaves them out.

`--against` measures the gateway of another checkout's `src` in the same rounds, to compare a change.
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
import gateway_rivals as rivals

CONNECTIONS = 32
STREAMS = 64
LATENCY_REQUESTS = 400
SLOW, SLOW_ROUNDS, SLOW_REQUESTS = "litellm", 2, 64
"""A peer whose rounds take so long that it has fewer of them."""
TOOLS = ("nginx", "wrk")
INSTALL = "apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light wrk"
NEEDED = f"bench-gateway needs nginx and wrk: {INSTALL}"
TITLES = {
    "repeated": ("CPU per request, µs (equal heads)", "gateway_cpu_per_request_vs_nginx"),
    "varying": ("CPU per request, µs (heads that vary)", "gateway_cpu_per_request_varying_heads_vs_nginx"),
    "chunk": ("CPU per paced stream chunk, µs", "gateway_cpu_per_chunk_vs_nginx"),
    "latency": ("request p50 through the proxy, ms", "gateway_added_latency_p50_ms_over_nginx"),
}
TARGETS = {"repeated": "<=1.5", "varying": "<=1.5", "chunk": "<=1.3", "latency": "<=0.1"}
OTHERS = {"haproxy": "-", "envoy": "<=1", "litellm": "<=0.0025"}
"""What the gateway's cost may be of theirs."""


@dataclass(frozen=True)
class Proxy:
    """One of those under test."""

    name: str
    port: int
    pid: int
    request_path: str
    stream_path: str
    stream_model: str | None = None


def main() -> int:
    parser = argparse.ArgumentParser(description="Gateway CPU per request and per chunk against nginx.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=1, help="of load, for each proxy in each round")
    parser.add_argument("--only", choices=tuple(TITLES), default=None)
    parser.add_argument("--against", type=Path, default=None, metavar="SRC", help="another checkout's src directory")
    parser.add_argument("--peers", nargs="*", choices=rivals.NAMES, default=list(rivals.NAMES), help="beside nginx")
    options = parser.parse_args()
    if not tools_are_there():
        return 2
    say_load("before")
    with (
        tempfile.TemporaryDirectory(prefix="bench-gateway-") as directory,
        running(Path(directory), options) as proxies,
    ):
        found = measure(Path(directory), proxies, options)
    say_load("after")
    report(found)
    return 0


def tools_are_there() -> bool:
    """Whether nginx and wrk can be run. Root gets them installed, and is told so; others are told the command."""
    if all(map(shutil.which, TOOLS)):
        return True
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(NEEDED, file=sys.stderr)
        return False
    print(f"{NEEDED} (running it)", flush=True)
    # RUNLEVEL=1 keeps the package from starting a server of its own.
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(INSTALL, shell=True, env=quiet, stdout=subprocess.DEVNULL, check=False)
    if all(map(shutil.which, TOOLS)):
        return True
    print(NEEDED, file=sys.stderr)
    return False


def say_load(when: str) -> None:
    one, five, _ = os.getloadavg()
    print(f"load average {when}: {one:.1f} (1 min), {five:.1f} (5 min) on {os.cpu_count()} CPUs", flush=True)


# --- the measured ----------------------------------------------------------------------------------------------------


def measure(directory: Path, proxies: list[Proxy], options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Every measure, per proxy, one value a round; proxies take turns within each round."""
    scripts = peers.write_wrk_scripts(directory)
    measures: dict[str, Callable[[list[Proxy]], list[float]]] = {
        "repeated": lambda order: [cpu_per_request(proxy, scripts["repeated"], options.seconds) for proxy in order],
        "varying": lambda order: [cpu_per_request(proxy, scripts["varying"], options.seconds) for proxy in order],
        "chunk": lambda order: [cpu_per_chunk(proxy) for proxy in order],
        "latency": latency_p50_ms,
    }
    if options.only:
        measures = {options.only: measures[options.only]}
    found: dict[str, dict[str, list[float]]] = {key: {p.name: [] for p in proxies} for key in measures}
    for proxy in proxies:
        cpu_per_request(proxy, scripts["repeated"], 1)
    for number in range(options.rounds):
        taking = [proxy for proxy in proxies if proxy.name != SLOW or number < SLOW_ROUNDS]
        order = taking if number % 2 == 0 else taking[::-1]
        for key, take in measures.items():
            for proxy, value in zip(order, take(order), strict=True):
                found[key][proxy.name].append(value)
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


def wrk(proxy: Proxy, script: Path, seconds: int) -> int:
    """Requests answered."""
    url = f"http://127.0.0.1:{proxy.port}{proxy.request_path}"
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(script), url]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise SystemExit(f"{proxy.name} answered with errors:\n{out}")
    found = re.search(r"(\d+) requests in", out)
    assert found, out
    return int(found.group(1))


def cpu_per_request(proxy: Proxy, script: Path, seconds: int) -> float:
    """Microseconds."""
    before = cpu_s(proxy.pid)
    requests = wrk(proxy, script, seconds) if proxy.name != SLOW else asyncio.run(ask_slowly(proxy))
    return (cpu_s(proxy.pid) - before) / requests * 1e6


def cpu_per_chunk(proxy: Proxy) -> float:
    """Microseconds for each chunk of paced streams, the rest of the stream's cost spread over its chunks."""
    before = cpu_s(proxy.pid)
    chunks = asyncio.run(read_streams(proxy))
    return (cpu_s(proxy.pid) - before) / chunks * 1e6


async def ask_slowly(proxy: Proxy) -> int:
    """A few requests, eight at a time: one that answers thirty a second needs no load generator."""

    async def some() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        for _ in range(SLOW_REQUESTS // 8):
            writer.write(post(proxy.request_path))
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head, head
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            assert length, head
            await reader.readexactly(int(length[1]))
        writer.close()

    await asyncio.gather(*(some() for _ in range(8)))
    return SLOW_REQUESTS


def post(path: str, stream_model: str | None = None) -> bytes:
    question = json.loads(peers.QUESTION)
    if stream_model is not None:
        question |= {"model": stream_model, "stream": True}
    body = json.dumps(question).encode()
    fields = "".join(f"{name}: {value}\r\n" for name, value in peers.FIELDS.items())
    fields += f"Host: 127.0.0.1\r\nContent-Length: {len(body)}"
    return f"POST {path} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body


async def read_streams(proxy: Proxy) -> int:
    request = post(proxy.stream_path, proxy.stream_model)
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
    assert chunks >= peers.CHUNKS_A_STREAM, whole[-300:]  # LiteLLM ends with events of its own
    return chunks


def latency_p50_ms(proxies: list[Proxy]) -> list[float]:
    """One connection to each, one request after the other, the proxies in turn."""
    times: list[list[float]] = [[] for _ in proxies]
    with contextlib.ExitStack() as stack:
        connections = []
        for proxy in proxies:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connections.append((connection, post(proxy.request_path)))
        for _ in range(LATENCY_REQUESTS):
            for (connection, request), own in zip(connections, times, strict=True):
                own.append(request_s(connection, request))
    return [statistics.median(own) * 1000 for own in times]


def request_s(connection: socket.socket, request: bytes) -> float:
    start = time.perf_counter()
    connection.sendall(request)
    got = b""
    while not whole(got):
        part = connection.recv(65536)
        assert part, "the proxy closed the connection"
        got += part
    return time.perf_counter() - start


def whole(answer: bytes) -> bool:
    """Whether an answer with a length, or in chunks, is all there."""
    head, mark, body = answer.partition(b"\r\n\r\n")
    if not mark:
        return False
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")


# --- the running parts -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(directory: Path, options: argparse.Namespace) -> Iterator[list[Proxy]]:
    fast, paced, proxy_port, ours, other, *rival_ports = free_ports(5 + len(options.peers))
    against: Path | None = options.against
    processes: list[subprocess.Popen[bytes]] = []
    here = Path(__file__).resolve().parent
    try:
        upstream = peers.NGINX_FAST.format(port=fast, answer=peers.ANSWER, varying=peers.VARYING_PATH)
        processes.append(peers.start_nginx(directory, "fast", upstream))
        processes.append(subprocess.Popen([sys.executable, str(here / "gateway_peers.py"), str(paced)]))
        servers = peers.NGINX_PROXY.format(port=proxy_port, fast=fast, paced=paced)
        processes.append(peers.start_nginx(directory, "proxy", servers))
        gateways = {"moorage": (ours, here.parent / "src")}
        if against is not None:
            gateways["against"] = (other, against.resolve())
        for name, (port, source) in gateways.items():
            processes.append(start_gateway(directory / name, source, port, fast, paced))
        for port in (fast, paced, proxy_port, *(port for port, _ in gateways.values())):
            wait_for(port)
        nginx = worker_of(processes[2].pid)
        proxies = [Proxy("nginx", proxy_port, nginx, "/v1/chat/completions", "/stream/v1/chat/completions")]
        for (name, (port, _)), process in zip(gateways.items(), processes[3:], strict=True):
            stream = "/endpoints/stream/v1/chat/completions"
            proxies.append(Proxy(name, port, gateway_of(process.pid), "/v1/chat/completions", stream))
        proxies += start_rivals(directory, dict(zip(options.peers, rival_ports, strict=True)), fast, paced, processes)
        yield proxies
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()


def start_rivals(
    directory: Path, ports: dict[str, int], fast: int, paced: int, processes: "list[subprocess.Popen[bytes]]"
) -> Iterator[Proxy]:
    for name, port in ports.items():
        rival = rivals.start(name, directory, port, fast, paced)
        if rival is None:
            continue
        processes.append(rival.process)
        wait_for(port, 120)
        yield Proxy(name, port, rival.process.pid, rival.request_path, rival.stream_path, rival.stream_model)


def gateway_of(pid: int) -> int:
    """The process that serves: the one worker of a gateway that has workers, else itself."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if len(children) == 1 else pid


def start_gateway(directory: Path, source: Path, port: int, fast: int, paced: int) -> "subprocess.Popen[bytes]":
    def endpoint(name: str, upstream: int) -> dict[str, object]:
        target = {"replica": f"{name}-1", "revision": f"{name}-1", "host": "127.0.0.1", "port": upstream}
        limits = {"max_in_flight": 1024, "max_queue": 1024}
        return {"name": name, "deployment": name, "mode": "serve", "targets": [target], "limits": limits}

    directory.mkdir()
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
    command = [sys.executable, "-m", "moorage.gateway.main", "--config", str(path)]
    return subprocess.Popen(command, stderr=log, env={**os.environ, "PYTHONPATH": str(source)})


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_for(port: int, patience_s: float = 20) -> None:
    until = time.monotonic() + patience_s
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


def report(found: dict[str, dict[str, list[float]]]) -> None:
    names = list(next(iter(found.values())))
    print(f"{'':40}" + "".join(f"{name:>10}" for name in names) + "   per round (moorage / nginx)")
    lines = []
    for key, values in found.items():
        title, name = TITLES[key]
        pairs = list(zip(values["nginx"], values["moorage"], strict=True))
        medians = "".join(f"{statistics.median(values[name]):10.3f}" for name in names)
        print(f"{title:40}{medians}   " + " ".join(f"{ours / nginx:.2f}" for nginx, ours in pairs))
        if key == "latency":
            value = f"{statistics.median(ours - nginx for nginx, ours in pairs):.3f}"
        else:
            value = f"{statistics.median(ours / nginx for nginx, ours in pairs):.2f}"
        lines.append(f"RATIO {name} {value} {TARGETS[key]}")
        for other in rivals.NAMES:
            if values.get(other) and key != "latency":
                value = statistics.median(values["moorage"]) / statistics.median(values[other])
                lines.append(
                    f"RATIO {name.replace('nginx', other)} {value:.4f} {OTHERS[other] if key != 'chunk' else '-'}"
                )
        if "against" in values:
            others = zip(values["against"], values["moorage"], strict=True)
            lines.append(f"against the other checkout, {key}: {statistics.median(b / a for a, b in others):.2f}")
    print("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
