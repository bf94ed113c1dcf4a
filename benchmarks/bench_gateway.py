"""The gateway's cost beside nginx, HAProxy, Envoy and LiteLLM, in the same interleaved rounds: `make bench-gateway`.

All peers stand before the same two upstreams and get the same load from the same clients over the same number of
kept connections; each is one process that serves (nginx, Moorage: and a master), keeps its connections to the
upstreams, and writes no access log (but Moorage with everything on, which does). In each round they take turns, in the
other order every second time; a ratio is the median over the rounds of ours divided by theirs in the same round. Rows
and columns: `gateway_report`; loads: `gateway_load`; Moorage's variants: `gateway_ours`.

CPU is what all processes of the peer used, user and kernel, by the scheduler's count, divided by requests or chunks:
what else runs on the machine costs caches but is not counted. The peer under test has the first core for itself;
clients and upstreams have the others. On a machine of two cores a client and the upstream together cost as much as
nginx does (18 and 20 µs a request here), so that nginx gets a full core's load only just, and Moorage more than that:
the table says how busy each one's core was, and a rate that is not the peer's own has a mark.

What a request costs depends on how many of them are found at each look at the sockets. 32 connections are what the
clients of a handful of replicas keep busy: some are found at a time, which spares every peer calls. 4 connections (row
`few`) are the other end, where nearly every request wakes the process. Neither was chosen for its ratio.

The bare figures are the machine's: some three quarters of nginx's time are the kernel's (the table says how much), for
two sends, three receives and two questions about the socket a request, and the sender's time pays for the receiver's
half of TCP as well. nginx needs 33 to 41 µs a request on the virtual machine where this was written while little else
runs, 45 to 65 while others use the caches, and needed 18.7 on the machine where the goals were set. So compare ratios,
of the same rounds; at the end it is said how much of the gateways' core others used.

Which Python runs Moorage is said at the beginning: one that was built without profile-guided optimisation, as pyenv
builds them, takes about a sixth more for pure Python than Debian's own, which with Debian's nginx beside it is like for
like (`--python`). Row `relay` passes bytes on unread: what uvloop itself and the kernel take of all that is Python's.

    python benchmarks/bench_gateway.py [--quick] [--rounds 9] [--only MEASURE ...] [--peers [NAME ...]]
                                       [--variants NAME ...] [--against SRC] [--python PATH] [--nice N]

`--against` measures the gateway of another checkout's `src` in the same rounds, to compare a change.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import gateway_load as load
import gateway_memory as memory
import gateway_ours as ours
import gateway_peers as peers
import gateway_rivals as rivals
from gateway_meter import Cores, Strangers, on, prefer, raise_file_limit
from gateway_peers import Peer, Stand
from gateway_report import Results, ratios, table

IDLE_CONNECTIONS, OPEN_STREAMS = 10_000, 1_000
CHUNK_ROUNDS = 6
MEASURES = ("equal", "varying", "few", "closing", "chunk", "turns", "paced", "memory")
QUICK = ("equal", "closing", "chunk", "paced", "memory")
_MORE_ON = ("keyed", "accelerated-keyed", "everything", "accelerated-everything")
SELDOM = {"haproxy": 4, "envoy": 4, **dict.fromkeys(_MORE_ON, 2), "litellm": 8}
"""Who takes part in every so manyth round."""
LEFT_OUT = {
    **{name: {"few", "turns"} for name in (*_MORE_ON, "litellm")},
    "relay": {
        "closing",
        "turns",
        "paced",
        "memory",
    },  # it has no pool, so a client that closes costs it two connections
}
OF_DIRECT = {"equal", "turns", "paced"}
RELAY = Path(__file__).parent / "servers" / "byte_relay.py"
TOOLS = ("nginx", "wrk")
INSTALL = "apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light wrk"
NEEDED = f"bench-gateway needs nginx and wrk: {INSTALL}"

Starter = Callable[[Path, int, Stand], Peer | None]


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Args:
        starters: the peers, by name, in the order of the table.
        idle, streams: clients of the measures of memory.
    """

    rounds: int
    measures: tuple[str, ...]
    starters: dict[str, Starter]
    idle: int
    streams: int

    def takes_part(self, peer: str, measure: str, number: int) -> bool:
        if measure not in self.measures or measure in LEFT_OUT.get(peer, ()):
            return False
        if peer == "direct" and measure not in OF_DIRECT:
            return False
        return number % SELDOM.get(peer, 1) == 0 and (measure != "chunk" or number < CHUNK_ROUNDS)


def main() -> int:
    plan, nice = plan_of(arguments())
    if not tools_are_there():
        return 2
    prefer(nice)
    if raise_file_limit() < plan.idle + 3000:
        plan = Plan(plan.rounds, plan.measures, plan.starters, raise_file_limit() - 3000, plan.streams)
        print(f"only {plan.idle} idle connections: the limit of open files (ulimit -Hn) allows no more", flush=True)
    begin = time.monotonic()
    say_load("before")
    results = Results()
    cores = Cores.of_this_machine()
    print(f"cores: {cores}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-gateway-") as name, on(cores.load):
        directory = Path(name)
        with upstreams(directory) as stand:
            if "memory" in plan.measures:
                measure_memory(directory / "memory", plan, stand, cores, results)
            measure_rounds(directory / "rounds", plan, stand, cores, results)
    say_load("after")
    print(f"{time.monotonic() - begin:.0f} s\n\n{table(results)}\n")
    print("\n".join(ratios(results)))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The gateway's cost against nginx's and others'.")
    parser.add_argument("--quick", action="store_true", help="one round of the most of it, nginx and Moorage only")
    parser.add_argument("--rounds", type=int, default=None, help="9, with --quick 1")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=None, metavar="MEASURE")
    parser.add_argument(
        "--peers", nargs="*", choices=rivals.NAMES, default=None, help="beside nginx; none with --quick"
    )
    parser.add_argument("--variants", nargs="+", choices=ours.NAMES, default=list(ours.NAMES), help="of Moorage")
    parser.add_argument(
        "--python",
        type=Path,
        default=Path(sys.executable),
        help="that runs Moorage's gateway; it has what Moorage needs",
    )
    parser.add_argument("--against", type=Path, default=None, metavar="SRC", help="another checkout's src directory")
    parser.add_argument(
        "--nice", type=int, default=0, help="of all processes; below 0 on a machine that others use too"
    )
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> tuple[Plan, int]:
    """The plan, and how nice the processes are."""
    starters: dict[str, Starter] = {"direct": direct, "nginx": nginx}
    if not options.quick:
        starters["relay"] = partial(relay, options.python)
    chosen = options.peers if options.peers is not None else ([] if options.quick else list(rivals.NAMES))
    starters |= {name: partial(rivals.start, name) for name in chosen}
    starters |= {
        each.name: partial(ours.start, each)
        for each in ours.variants(options.variants, options.against, options.python)
    }
    print(f"Moorage runs with {ours.named(options.python)}", flush=True)
    share = 10 if options.quick else 1
    rounds = options.rounds or (1 if options.quick else 9)
    measures = options.only or (QUICK if options.quick else MEASURES)
    plan = Plan(rounds, tuple(measures), starters, IDLE_CONNECTIONS // share, OPEN_STREAMS // share)
    return plan, options.nice


def direct(directory: Path, port: int, stand: Stand) -> Peer:
    return Peer("direct", stand.fast, None)


def nginx(directory: Path, port: int, stand: Stand) -> Peer:
    directory.mkdir()
    return peers.start_nginx(directory, port, stand)


def relay(python: Path, directory: Path, port: int, stand: Stand) -> Peer:
    command = [str(python), str(RELAY), str(port), str(stand.fast), str(stand.paced), Peer.stream_path]
    return Peer("relay", port, subprocess.Popen(command))


# --- the measures ----------------------------------------------------------------------------------------------------


def measure_rounds(directory: Path, plan: Plan, stand: Stand, cores: Cores, results: Results) -> None:
    """All of them but memory: everybody is started once, and takes turns."""
    directory.mkdir()
    scripts = load.Scripts(directory)
    with contextlib.ExitStack() as stack:
        starting = [stack.enter_context(running(directory, name, plan, stand, cores)) for name in plan.starters]
        there = [peer for peer in starting if peer is not None]
        for peer in there:
            results.meet(peer.name)
            take("equal", peer, scripts)  # the first requests are not measured
        strangers = Strangers(min(cores.gateway), [peer.pid for peer in there if peer.pid is not None])
        begin = time.monotonic()
        for number in range(plan.rounds):
            for measure in plan.measures:
                order = [peer for peer in there if plan.takes_part(peer.name, measure, number)]
                measure_round(measure, order if number % 2 == 0 else order[::-1], number, scripts, results)
            results.strangers.append(strangers.percent())
            others = f"others used {results.strangers[-1]:.0f} % of the gateways' core"
            print(f"round {number + 1} of {plan.rounds}, {time.monotonic() - begin:.0f} s, {others}", flush=True)


def measure_round(measure: str, order: list[Peer], number: int, scripts: load.Scripts, results: Results) -> None:
    if measure == "turns":
        for peer, figures in zip(order, load.alternating(order), strict=True):
            results.add(measure, peer.name, number, figures)
    elif measure != "memory":
        for peer in order:
            results.add(measure, peer.name, number, take(measure, peer, scripts))


def take(measure: str, peer: Peer, scripts: load.Scripts) -> load.Figures:
    slow = peer.name == "litellm"
    if measure == "chunk":
        return load.streams(peer, load.SLOW_STREAMS if slow else load.STREAMS)
    if measure == "paced":
        return load.paced(peer, load.SLOW_RATE, load.SLOW_RATE_S) if slow else load.paced(peer)
    if slow:
        return load.slow_requests(peer, closing=measure == "closing")
    kind = measure if measure in ("varying", "closing") else "equal"
    return load.requests(peer, scripts.of(peer, kind), load.FEW if measure == "few" else load.CONNECTIONS, seconds=1)


def measure_memory(directory: Path, plan: Plan, stand: Stand, cores: Cores, results: Results) -> None:
    """Each peer by itself, started anew for each figure."""
    directory.mkdir()
    measures = {"idle": (memory.idle_connections, plan.idle), "streaming": (memory.open_streams, plan.streams)}
    for name in plan.starters:
        if (
            "memory" in LEFT_OUT.get(name, ())
            or name in ("direct", "litellm")
            or (plan.idle < IDLE_CONNECTIONS and name in _MORE_ON)
        ):
            continue
        for measure, (take_it, count) in measures.items():
            place = directory / f"{name}-{measure}"
            place.mkdir()
            with running(place, name, plan, stand, cores) as peer:
                if peer is not None:
                    results.add(measure, name, 0, take_it(peer, count))
        print(f"memory: {name} done", flush=True)


# --- the running parts -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def upstreams(directory: Path) -> Iterator[Stand]:
    fast, paced = peers.free_ports(2)
    processes = [peers.start_fast(directory, fast), peers.start_paced(paced)]
    try:
        for port, process in zip((fast, paced), processes, strict=True):
            if not peers.is_there(port, process):
                raise SystemExit(f"an upstream does not start: {process.args!r}")
        yield Stand(fast, paced, IDLE_CONNECTIONS)
    finally:
        peers.end(*processes)


@contextlib.contextmanager
def running(directory: Path, name: str, plan: Plan, stand: Stand, cores: Cores) -> Iterator[Peer | None]:
    """A peer on the gateway's core; None where it cannot be had."""
    (port,) = peers.free_ports(1)
    with on(cores.gateway):
        peer = plan.starters[name](directory / name, port, stand)
    if peer is None or peer.process is None:
        yield peer
        return
    try:
        yield peer if answers(peer, peer.process, directory / name) else None
    finally:
        peers.end(peer.process)


def answers(peer: Peer, process: "subprocess.Popen[bytes]", directory: Path) -> bool:
    """Whether it serves; where not, a line says why. A port may be open before the process is there that answers."""
    with contextlib.suppress(OSError, AssertionError):
        if peers.is_there(peer.port, process):
            with load.connect(peer) as connection:
                connection.sendall(peer.post())
                load.read_answer(connection)
            return True
    told = [line for log in sorted(directory.glob("*.log")) for line in log.read_text().splitlines()[-3:]]
    print(f"{peer.name} is left out, it does not serve: {' '.join(told)}", flush=True)
    return False


def tools_are_there() -> bool:
    """Whether nginx and wrk can be run. Root gets them installed, and is told so; others are told the command."""
    if peers.have(*TOOLS):
        return True
    if os.geteuid() != 0 or not peers.have("apt-get"):
        print(NEEDED, file=sys.stderr)
        return False
    print(f"{NEEDED} (running it)", flush=True)
    # RUNLEVEL=1 keeps the package from starting a server of its own.
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(INSTALL, shell=True, env=quiet, stdout=subprocess.DEVNULL, check=False)
    if peers.have(*TOOLS):
        return True
    print(NEEDED, file=sys.stderr)
    return False


def say_load(when: str) -> None:
    one, five, _ = os.getloadavg()
    print(f"load average {when}: {one:.1f} (1 min), {five:.1f} (5 min) on {os.cpu_count()} CPUs", flush=True)


if __name__ == "__main__":
    sys.exit(main())
