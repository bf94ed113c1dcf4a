"""The text of `/metrics`: Prometheus' format, or OpenMetrics for those who ask for it.

Here: families with their help, and lines made of what `measures` and the routing core counted. Labels come from the
table only (namespaces, endpoints, revisions, replicas), so they are bounded. Several processes of one gateway answer as
one: `merged` adds their texts. Called by `own`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from moorage.decide.serving.routes import EndpointState, RevisionState
from moorage.gateway import accelerators
from moorage.gateway.measures import BOUNDS_S, ReplicaStats, Stats

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_P: Final = "moorage_gateway_"
FAMILIES: Final[dict[str, tuple[str, str]]] = {
    "generation": ("gauge", "Number of the routing table in use (of several processes: the lowest)."),
    "control_up": ("gauge", "Whether the control plane answers."),
    "clients": ("gauge", "Client connections open."),
    "in_flight": ("gauge", "Requests at replicas now."),
    "held": ("gauge", "Requests waiting now."),
    "processes": ("gauge", "Processes of this gateway that this is the sum of."),
    "processes_silent": ("gauge", "Processes of this gateway that did not tell in time."),
    "process_generation": ("gauge", "Number of the routing table that the process uses."),
    "process_clients": ("gauge", "Client connections open at the process."),
    "process_resident_bytes": ("gauge", "Memory of the process."),
    "process_accelerated": ("gauge", "Whether the process uses this part of the accelerators."),
    "access_log_lost_total": ("counter", "Lines of the access log that its disk did not take."),
    "requests_total": ("counter", "Requests answered, by status class (0xx: the client left before an answer)."),
    "unrouted_total": ("counter", "Requests that named no endpoint that is served here, or were refused before that."),
    "waited_total": ("counter", "Requests that had to wait before they were sent on."),
    "limited_total": ("counter", "Requests refused with 429."),
    "retried_total": ("counter", "Requests sent once more because a kept connection had been closed."),
    "tunnels_total": ("counter", "Connections upgraded and passed through."),
    "cut_total": ("counter", "Answers cut because the replica died in the middle."),
    "client_gone_total": ("counter", "Requests whose client left first."),
    "response_bytes_total": ("counter", "Body bytes sent to clients."),
    "tokens_total": (
        "counter",
        "Tokens as answers told them; kind counted: events with content of streams that told none.",
    ),
    "request_seconds": ("histogram", "From the request's head to the answer's end."),
    "first_byte_seconds": (
        "histogram",
        "From the request's head to a stream's first byte, or to another answer's head.",
    ),
    "queued_seconds": ("histogram", "From the request's head to its sending."),
    "inter_token_seconds": (
        "histogram",
        "Between the parts of a stream, which are a token each with most servers.",
    ),
    "revision_requests_total": ("counter", "Requests that a replica of the revision got, by status class (0xx: none)."),
    "revision_cut_total": ("counter", "Answers of the revision that were cut."),
    "revision_client_gone_total": ("counter", "Requests at the revision whose client left first."),
    "revision_unreachable_total": ("counter", "Connects to its replicas that failed."),
    "revision_passed_over_total": ("counter", "Requests of its share that the active revision answered."),
    "revision_copies_total": ("counter", "Copies of requests sent to it."),
    "revision_copies_dropped_total": ("counter", "Copies left out: too many under way, too long, or no free replica."),
    "replica_in_flight": ("gauge", "Requests at the replica now, copies included."),
    "replica_ejected": ("gauge", "Whether it is put aside after failed connects or answers."),
    "replica_requests_total": ("counter", "Requests that the replica got."),
    "replica_errors_total": ("counter", "Of these: answers of the 500s, cut ones, and those that got none."),
    "replica_first_byte_seconds": ("histogram", "As first_byte_seconds, by replica."),
    "replica_request_seconds": ("histogram", "As request_seconds, by replica."),
}
"""Name without its prefix: type and help, in the order of the text."""
_WORD: Final = r'"(?:[^"\\]|\\.)*"'
_WHOSE: Final = re.compile(f"namespace={_WORD},endpoint={_WORD}(?:,revision={_WORD})?(?:,replica={_WORD})?")
_LOWEST: Final = frozenset((_P + "generation", _P + "control_up"))
"""What several processes share: the lowest of theirs is told, not the sum."""


class Seen(NamedTuple):
    """What the text is made of.

    `counted`: namespace, endpoint as clients named it, deployment's own endpoint, counts.
    """

    generation: int
    clients: int
    control_up: bool
    unrouted: int
    log_lost: int | None
    endpoints: Sequence[EndpointState]
    counted: Sequence[tuple[str, str, str, Stats]]
    now: float
    process: str = "1"
    resident_bytes: int = 0
    accelerated: Sequence[str] = ()


class _Lines:
    """Samples by family, since the format wants those of one family together."""

    def __init__(self) -> None:
        self._of: dict[str, list[str]] = {name: [] for name in FAMILIES}

    def add(self, family: str, label: str, value: float) -> None:
        self._of[family].append(f"{_P}{family}{{{label}}} {value}" if label else f"{_P}{family} {value}")

    def histogram(self, family: str, label: str, counts: Sequence[int], total_s: float, *, every: int = 1) -> None:
        """Cumulative buckets; `every`: only each so many-th bound, where many series would be too many lines."""
        lines, seen = self._of[family], 0
        name = _P + family
        for index, bound in enumerate(BOUNDS_S):
            seen += counts[index]
            if index % every == every - 1:
                lines.append(f'{name}_bucket{{{label},le="{bound}"}} {seen}')
        seen += counts[-1]
        lines.append(f'{name}_bucket{{{label},le="+Inf"}} {seen}')
        lines.append(f"{name}_sum{{{label}}} {total_s:.6f}")
        lines.append(f"{name}_count{{{label}}} {seen}")

    def text(self) -> str:
        return "".join(_family(name, lines) for name, lines in self._of.items() if lines)


def _family(name: str, lines: Iterable[str]) -> str:
    kind, told = FAMILIES[name]
    return f"# HELP {_P}{name} {told}\n# TYPE {_P}{name} {kind}\n" + "\n".join(lines) + "\n"


def prometheus(seen: Seen) -> str:
    """The text of one process."""
    lines = _Lines()
    lines.add("generation", "", seen.generation)
    lines.add("clients", "", seen.clients)
    lines.add("control_up", "", int(seen.control_up))
    own = f'process="{_escaped(seen.process)}"'
    lines.add("processes", "", 1)
    lines.add("process_generation", own, seen.generation)
    lines.add("process_clients", own, seen.clients)
    lines.add("process_resident_bytes", own, seen.resident_bytes)
    for part in accelerators.PARTS:
        lines.add("process_accelerated", f'{own},part="{part}"', int(part in seen.accelerated))
    lines.add("unrouted_total", "", seen.unrouted)
    if seen.log_lost is not None:
        lines.add("access_log_lost_total", "", seen.log_lost)
    for endpoint in seen.endpoints:
        label = f'namespace="{_escaped(endpoint.route.namespace)}",endpoint="{_escaped(endpoint.route.name)}"'
        lines.add("in_flight", label, endpoint.in_flight)
        lines.add("held", label, len(endpoint.waiting))
        for revision in endpoint.revisions.values():
            _revision(lines, revision, label)
        _replicas(lines, endpoint, label, seen)
    for namespace, name, deployment, stats in seen.counted:
        names = {"namespace": namespace, "endpoint": name, "deployment": deployment}
        _endpoint(lines, ",".join(f'{key}="{_escaped(value)}"' for key, value in names.items()), stats)
    return lines.text()


def _endpoint(lines: _Lines, label: str, stats: Stats) -> None:
    for status_class, count in enumerate(stats.statuses):
        if count:
            lines.add("requests_total", f'{label},code="{status_class}xx"', count)
    for name in ("waited", "limited", "retried", "tunnels", "cut", "client_gone"):
        lines.add(f"{name}_total", label, getattr(stats, name))
    lines.add("response_bytes_total", label, stats.bytes)
    tokens = {"prompt": stats.prompt_tokens, "completion": stats.completion_tokens, "counted": stats.counted_tokens}
    for kind, count in tokens.items():
        if count:
            lines.add("tokens_total", f'{label},kind="{kind}"', count)
    lines.histogram("request_seconds", label, stats.total, stats.total_s)
    lines.histogram("first_byte_seconds", label, stats.first, stats.first_s)
    lines.histogram("queued_seconds", label, stats.queued, stats.queued_s)
    lines.histogram("inter_token_seconds", label, stats.gaps, stats.gaps_s)


def _revision(lines: _Lines, revision: RevisionState, label: str) -> None:
    """Of those in the table or still answering, so that the series are few and end."""
    label = f'{label},revision="{_escaped(revision.label)}"'
    seen = revision.traffic
    for status_class, count in enumerate(seen.statuses):
        if count:
            lines.add("revision_requests_total", f'{label},code="{status_class}xx"', count)
    for name in ("cut", "client_gone", "unreachable", "passed_over", "copies", "copies_dropped"):
        lines.add(f"revision_{name}_total", label, getattr(seen, name))


def _replicas(lines: _Lines, endpoint: EndpointState, label: str, seen: Seen) -> None:
    for target in (*endpoint.targets, *endpoint.leaving):
        spec = target.spec
        own = f'{label},revision="{_escaped(target.revision.label)}",replica="{_escaped(spec.replica)}"'
        if target in endpoint.leaving and any(t.spec.replica == spec.replica for t in endpoint.targets):
            continue  # the same replica at a former address: one series, that of the present
        lines.add("replica_in_flight", own, target.in_flight)
        lines.add("replica_ejected", own, int(target.aside))
        parts = [s.replicas[target] for _, _, _, s in seen.counted if target in s.replicas]
        if parts:
            _replica(lines, own, parts)


def _replica(lines: _Lines, label: str, parts: Sequence[ReplicaStats]) -> None:
    """One replica, as met through each of the names that lead to it."""
    lines.add("replica_requests_total", label, sum(part.requests for part in parts))
    lines.add("replica_errors_total", label, sum(part.errors for part in parts))
    first = [sum(counts) for counts in zip(*(part.first for part in parts), strict=True)]
    total = [sum(counts) for counts in zip(*(part.total for part in parts), strict=True)]
    lines.histogram("replica_first_byte_seconds", label, first, sum(part.first_s for part in parts), every=2)
    lines.histogram("replica_request_seconds", label, total, sum(part.total_s for part in parts), every=2)


def _escaped(value: str) -> str:
    """The table's values are names, but a stray quote must not make a label."""
    if value.isascii() and '"' not in value and "\\" not in value and "\n" not in value:
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- several processes, and the other format ---------------------------------------------------------------------


def merged(texts: Sequence[str]) -> str:
    """One text of several processes': counts are added, of what they share the lowest is told."""
    if len(texts) == 1:
        return texts[0]
    values: dict[str, float] = {}
    for sample, value in (pair for text in texts for pair in _samples(text)):
        known = values.get(sample)
        if known is None:
            values[sample] = value
        else:
            values[sample] = min(known, value) if sample in _LOWEST else known + value
    of: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for sample, value in values.items():
        of[_family_of(sample)].append(f"{sample} {_number(value)}")
    return "".join(_family(name, lines) for name, lines in of.items() if lines)


def joined(live: Sequence[str], ended: str, silent: int) -> str:
    """What all processes of a gateway counted.

    Args:
        live: the text of each that answered.
        ended: counts of those that ended, which stay in the sums for as long as what they are of is in the table.
        silent: how many did not answer.
    """
    return merged([*live, kept(ended, live), f"{_P}processes_silent {silent}"])


def counts(text: str) -> str:
    """Of a text what only grows: counters and histograms."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return "\n".join(line for line in lines if FAMILIES[_family_of(line.rpartition(" ")[0])][0] != "gauge")


def kept(ended: str, live: Sequence[str]) -> str:
    """Of the counts of ended processes those whose endpoint and replica are still told of."""
    told = {found.group() for text in live for found in _WHOSE.finditer(text)}
    lines = ((line, _WHOSE.search(line)) for line in ended.splitlines() if line and not line.startswith("#"))
    return "\n".join(line for line, whose in lines if whose is None or whose.group() in told)


def _samples(text: str) -> Iterator[tuple[str, float]]:
    for line in text.splitlines():
        if line and not line.startswith("#"):
            sample, _, value = line.rpartition(" ")
            yield sample, float(value)


def _family_of(sample: str) -> str:
    name = sample.partition("{")[0].removeprefix(_P)
    if name in FAMILIES:
        return name
    return name.rpartition("_")[0]  # of a histogram: _bucket, _sum, _count


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6f}"


def openmetrics(text: str) -> str:
    """The same in OpenMetrics, where a counter's family has no `_total` and an end is marked."""
    out = []
    for line in text.splitlines():
        if line.startswith("# "):
            mark, what, name, rest = line.split(" ", 3)
            out.append(f"{mark} {what} {name.removesuffix('_total')} {rest}")
        else:
            out.append(line)
    return "\n".join(out) + "\n# EOF\n"
