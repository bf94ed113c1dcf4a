"""The gateway benchmark's figures: kept by measure, peer and round; printed as a table and as `RATIO` lines.

Not here: how figures are taken. Called by `bench_gateway`.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gateway_load import CONNECTIONS, FEW, RATE, SLOW_RATE, STREAMS

FULL_PERCENT = 90
"""A core that was busy for less of the time: the gateway was not what set the rate."""
QUIET_PERCENT = 5
"""More of its core used by others than this, and the machine is not quiet."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    measure: str
    figure: str
    title: str
    digits: int = 1
    spread: bool = True
    less_direct: bool = False
    """of what row `direct` has in the same round"""


ROWS = (
    Row("equal", "cpu_us", f"CPU per request, µs: {CONNECTIONS} connections, equal heads"),
    Row("equal", "kernel", "  of which in the kernel, %", 0, spread=False),
    Row("varying", "cpu_us", "CPU per request, µs: heads and bodies that vary"),
    Row("few", "cpu_us", f"CPU per request, µs: {FEW} connections, equal heads"),
    Row("closing", "cpu_us", "CPU per request, µs: each on a connection of its own"),
    Row("chunk", "cpu_us", f"CPU per chunk, µs: {STREAMS} paced streams"),
    Row("equal", "rate", f"requests/s on one core: {CONNECTIONS} connections", 0),
    Row("equal", "busy", "  its core was busy, %", 0, spread=False),
    Row("turns", "p50_ms", "added p50, ms: one request at a time", 3, less_direct=True),
    Row("turns", "p99_ms", "added p99, ms: one request at a time", 3, less_direct=True),
    Row("paced", "p50_ms", f"added p50, ms: {RATE} requests/s", 3, less_direct=True),
    Row("paced", "p99_ms", f"added p99, ms: {RATE} requests/s", 3, less_direct=True),
    Row("idle", "bytes", "memory, bytes per idle connection", 0, spread=False),
    Row("idle", "mib", "  all of it then, MiB", 0, spread=False),
    Row("streaming", "bytes", "memory, bytes per open stream", 0, spread=False),
    Row("streaming", "mib", "  all of it then, MiB", 0, spread=False),
)


@dataclass(frozen=True)
class Promise:
    """A ratio of ours to nginx's."""

    measure: str
    figure: str
    name: str
    target: str
    accelerated_target: str


PROMISES = (
    Promise("equal", "cpu_us", "cpu_per_request", "<=1.5", "<=1.2"),
    Promise("varying", "cpu_us", "cpu_per_request_varying_heads", "<=1.5", "<=1.2"),
    Promise("few", "cpu_us", "cpu_per_request_few_connections", "<=1.5", "<=1.2"),
    Promise("closing", "cpu_us", "cpu_per_closing_client", "<=1.4", "<=1.4"),
    Promise("chunk", "cpu_us", "cpu_per_chunk", "<=1.3", "<=1.3"),
    Promise("idle", "bytes", "idle_connection_memory", "<=3", "<=3"),
    Promise("streaming", "bytes", "open_stream_memory", "<=3", "<=3"),
)
LATENCIES = (
    ("turns", "p50_ms", "added_latency_p50_ms_over_nginx", "<=0.1"),
    ("paced", "p50_ms", "added_latency_at_rate_p50_ms_over_nginx", "<=0.1"),
    ("paced", "p99_ms", "added_latency_at_rate_p99_ms_over_nginx", "report"),
)
PREFIXES = {
    "moorage": "gateway",
    "accelerated": "gateway_accelerated",
    "keyed": "gateway_keyed",
    "accelerated-keyed": "gateway_accelerated_keyed",
    "everything": "gateway_everything",
    "accelerated-everything": "gateway_accelerated_everything",
}
_TITLE, _WIDTH = 54, 13
_HEADINGS = {
    "relay": ("uvloop,", "bytes only"),
    "moorage": ("moorage", "pure"),
    "accelerated": ("moorage", "acceler."),
    "keyed": ("pure,", "keyed"),
    "accelerated-keyed": ("acceler.,", "keyed"),
    "everything": ("pure,", "all on"),
    "accelerated-everything": ("acceler.,", "all on"),
}


@dataclass
class Results:
    """What was measured: for each measure and peer, the figures of each round that it took part in."""

    peers: list[str] = field(default_factory=list)
    strangers: list[float] = field(default_factory=list)
    """per cent of the gateways' core that other processes of this machine used, by round"""
    _kept: dict[tuple[str, str], dict[int, Mapping[str, float]]] = field(default_factory=dict)

    def meet(self, peer: str) -> None:
        """It gets the next column, unless it has one."""
        if peer not in self.peers:
            self.peers.append(peer)

    def add(self, measure: str, peer: str, number: int, figures: Mapping[str, float]) -> None:
        self.meet(peer)
        self._kept.setdefault((measure, peer), {})[number] = figures

    def of(self, measure: str, peer: str, figure: str) -> dict[int, float]:
        """By round."""
        return {
            number: figures[figure]
            for number, figures in self._kept.get((measure, peer), {}).items()
            if figure in figures
        }

    def pairs(self, measure: str, figure: str, ours: str, theirs: str) -> list[tuple[float, float]]:
        """Of the rounds that both have."""
        mine, other = self.of(measure, ours, figure), self.of(measure, theirs, figure)
        return [(mine[number], other[number]) for number in mine if number in other]

    def median_ratio(self, measure: str, figure: str, ours: str, theirs: str) -> float | None:
        """The median over the rounds of ours divided by theirs."""
        pairs = self.pairs(measure, figure, ours, theirs)
        return statistics.median(a / b for a, b in pairs) if pairs else None


# --- the table -------------------------------------------------------------------------------------------------------


def table(results: Results) -> str:
    """Medians over the rounds, with the least and the most under them where rounds differ."""
    peers = results.peers
    lines = [
        "".ljust(_TITLE) + "".join(_HEADINGS.get(peer, (peer, ""))[part].rjust(_WIDTH) for peer in peers)
        for part in (0, 1)
    ]
    for row in ROWS:
        columns = [_values(results, row, peer) for peer in peers]
        if not any(columns):
            continue
        marks = ["*" if row.figure == "rate" and _not_full(results, peer) else "" for peer in peers]
        cells = [_median(values, row.digits) + mark for values, mark in zip(columns, marks, strict=True)]
        lines.append(row.title.ljust(_TITLE) + "".join(cell.rjust(_WIDTH) for cell in cells))
        if row.spread and any(len(values) > 1 for values in columns):
            lines.append("".ljust(_TITLE) + "".join(_spread(values, row.digits).rjust(_WIDTH) for values in columns))
    lines.append(
        "* its core was not full: the clients and the upstream on theirs, or others on this machine, set the rate"
    )
    lines.append(f"litellm: a few requests and streams, paced at {SLOW_RATE} requests/s; no memory, for want of speed")
    if results.strangers:
        others = statistics.median(results.strangers)
        quiet = "" if others < QUIET_PERCENT else ": rates and latencies are not the peers' own, and all CPU is dearer"
        lines.append(f"others used {others:.0f} % of the gateways' core (median of the rounds){quiet}")
    return "\n".join(lines)


def _values(results: Results, row: Row, peer: str) -> list[float]:
    if not row.less_direct:
        return list(results.of(row.measure, peer, row.figure).values())
    if peer == "direct":
        return []
    return [with_it - without for with_it, without in results.pairs(row.measure, row.figure, peer, "direct")]


def _not_full(results: Results, peer: str) -> bool:
    busy = results.of("equal", peer, "busy").values()
    return peer != "direct" and bool(busy) and statistics.median(busy) < FULL_PERCENT


def _median(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f}" if values else "-"


def _spread(values: list[float], digits: int) -> str:
    digits = min(digits, 2) if digits > 1 else 0
    return f"{min(values):.{digits}f}-{max(values):.{digits}f}" if len(values) > 1 else ""


# --- ratios ----------------------------------------------------------------------------------------------------------


def ratios(results: Results) -> Iterator[str]:
    """`RATIO name value target`, each with the ratio of each round where there are several."""
    for ours, prefix in PREFIXES.items():
        if ours in results.peers:
            yield from _vs_nginx(results, ours, prefix)
            yield from _vs_others(results, ours, prefix)
            yield from _latencies(results, ours, prefix)
    for row in ROWS:
        ratio = results.median_ratio(row.measure, row.figure, "moorage", "against")
        if ratio is not None and row.figure in ("cpu_us", "bytes"):
            yield f"moorage of the other checkout's, {row.title.strip()}: {ratio:.2f}"
        ratio = results.median_ratio(row.measure, row.figure, "accelerated", "against")
        if ratio is not None and row.figure in ("cpu_us", "bytes"):
            yield f"accelerated of the other checkout's, {row.title.strip()}: {ratio:.2f}"


def _vs_nginx(results: Results, ours: str, prefix: str) -> Iterator[str]:
    for promise in PROMISES:
        ratio = results.median_ratio(promise.measure, promise.figure, ours, "nginx")
        if ratio is not None:
            target = promise.accelerated_target if "accelerated" in ours else promise.target
            rounds = (a / b for a, b in results.pairs(promise.measure, promise.figure, ours, "nginx"))
            yield f"RATIO {prefix}_{promise.name}_vs_nginx {ratio:.2f} {target}{_rounds(rounds)}"


def _vs_others(results: Results, ours: str, prefix: str) -> Iterator[str]:
    for other, target in (("envoy", "<=1"), ("haproxy", "report")):
        ratio = results.median_ratio("equal", "cpu_us", ours, other)
        if ratio is not None:
            yield f"RATIO {prefix}_cpu_per_request_vs_{other} {ratio:.2f} {target}"
    ratio = results.median_ratio("equal", "cpu_us", "litellm", ours)
    if ratio is not None:
        yield f"RATIO {prefix}_cpu_per_request_times_below_litellm {ratio:.0f} >=400"


def _latencies(results: Results, ours: str, prefix: str) -> Iterator[str]:
    for measure, figure, name, target in LATENCIES:
        pairs = results.pairs(measure, figure, ours, "nginx")
        if pairs:
            yield f"RATIO {prefix}_{name} {statistics.median(a - b for a, b in pairs):.3f} {target}"


def _rounds(values: Iterable[float]) -> str:
    rounds = list(values)
    return "   # " + " ".join(f"{value:.2f}" for value in rounds) if len(rounds) > 1 else ""
