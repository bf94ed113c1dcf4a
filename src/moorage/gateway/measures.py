"""What the gateway counts, and the bounded ring that attributes single requests.

Here: integers and tuples, cheap enough for every request; text is made only when asked for. Labels are endpoint
names of the table, so they are bounded. Called by `frontend`, `own` and `hub`.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from moorage.decide.serving.routes import EndpointState, RevisionState, TargetSpec
from moorage.wire.routing import RequestRecord

_BUCKETS = 64
"""Bucket i holds times below 2^i ms; more than any clock can fill, so that counting needs no limit."""
_BUCKETS_SHOWN = 20


class Record(NamedTuple):
    """One finished request; times in milliseconds, None where that step was not reached."""

    request_id: bytes
    endpoint: str
    generation: int
    target: TargetSpec | None
    queued_ms: float | None
    ttft_ms: float | None
    total_ms: float
    status: int
    bytes: int
    outcome: str

    def to_wire(self) -> RequestRecord:
        """As the API gives it."""
        target = self.target
        return RequestRecord(
            request_id=self.request_id.decode("ascii"),
            endpoint=self.endpoint,
            generation=self.generation,
            revision=target.revision if target else None,
            replica=target.replica if target else None,
            worker=(target.worker or None) if target else None,
            machine=(target.machine or None) if target else None,
            queued_ms=self.queued_ms,
            ttft_ms=self.ttft_ms,
            total_ms=self.total_ms,
            status=self.status or None,
            bytes=self.bytes,
            outcome=self.outcome,
        )


class Ring:
    """The last `size` records. Finding one scans, since that is rare and adding is not."""

    __slots__ = ("_at", "_records")

    def __init__(self, size: int) -> None:
        self._records: list[tuple[Any, ...] | None] = [None] * size
        self._at = 0

    def add(self, record: tuple[Any, ...]) -> None:
        """Keep it in place of the oldest: the fields of a `Record`, which is made when somebody asks."""
        at = self._at
        self._records[at] = record
        self._at = at + 1 if at + 1 < len(self._records) else 0

    def find(self, request_id: bytes) -> Record | None:
        """The newest record of that id."""
        newest_first = self._records[: self._at][::-1] + self._records[self._at :][::-1]
        found = next((r for r in newest_first if r is not None and r[0] == request_id), None)
        return None if found is None else Record._make(found)


class Stats:
    """Counters of one endpoint."""

    __slots__ = ("bytes", "client_gone", "cut", "first", "queued", "statuses", "total", "total_ms")

    def __init__(self) -> None:
        self.statuses = [0] * 6
        self.total = [0] * _BUCKETS
        self.first = [0] * _BUCKETS
        self.queued = [0] * _BUCKETS
        self.total_ms = 0.0
        self.bytes = 0
        self.cut = 0
        self.client_gone = 0

    def count(self, status: int, queued_ms: float, first_ms: float | None, total_ms: float, size: int) -> None:
        """One finished request; the bucket is the bit length of its milliseconds."""
        self.statuses[status // 100] += 1
        self.total[int(total_ms).bit_length()] += 1
        self.queued[int(queued_ms).bit_length()] += 1
        if first_ms is not None:
            self.first[int(first_ms).bit_length()] += 1
        self.total_ms += total_ms
        self.bytes += size


def _histogram(name: str, label: str, counts: list[int]) -> Iterable[str]:
    seen = 0
    for index, count in enumerate(counts[:_BUCKETS_SHOWN]):
        seen += count
        yield f'{name}_bucket{{{label},le="{2**index / 1000:g}"}} {seen}'
    yield f'{name}_bucket{{{label},le="+Inf"}} {sum(counts)}'
    yield f"{name}_count{{{label}}} {sum(counts)}"


def _revision_lines(revision: RevisionState, label: str) -> Iterable[str]:
    """Of those in the table or still answering, so that the series are few and end."""
    label = f'{label},revision="{revision.label}"'
    seen = revision.traffic
    for status_class, count in enumerate(seen.statuses):
        if count:
            yield f'moorage_gateway_revision_requests_total{{{label},code="{status_class}xx"}} {count}'
    counts = {
        "cut": seen.cut,
        "client_gone": seen.client_gone,
        "unreachable": seen.unreachable,
        "passed_over": seen.passed_over,
        "copies": seen.copies,
        "copies_dropped": seen.copies_dropped,
    }
    for name, count in counts.items():
        yield f"moorage_gateway_revision_{name}_total{{{label}}} {count}"


_HEAD = """\
# HELP moorage_gateway_requests_total Requests answered, by status class.
# TYPE moorage_gateway_requests_total counter
# HELP moorage_gateway_in_flight Requests at replicas now.
# TYPE moorage_gateway_in_flight gauge
# HELP moorage_gateway_held Requests waiting now.
# TYPE moorage_gateway_held gauge
# HELP moorage_gateway_cut_total Answers cut because the replica died in the middle.
# TYPE moorage_gateway_cut_total counter
# HELP moorage_gateway_client_gone_total Requests whose client left first.
# TYPE moorage_gateway_client_gone_total counter
# HELP moorage_gateway_response_bytes_total Body bytes sent to clients.
# TYPE moorage_gateway_response_bytes_total counter
# HELP moorage_gateway_request_seconds From the request's head to the answer's end.
# TYPE moorage_gateway_request_seconds histogram
# HELP moorage_gateway_first_byte_seconds From the request's head to the answer's head.
# TYPE moorage_gateway_first_byte_seconds histogram
# HELP moorage_gateway_queued_seconds From the request's head to its sending.
# TYPE moorage_gateway_queued_seconds histogram
# HELP moorage_gateway_revision_requests_total Requests that a replica of the revision got, by status class (0xx: none).
# TYPE moorage_gateway_revision_requests_total counter
# HELP moorage_gateway_revision_cut_total Answers of the revision that were cut.
# TYPE moorage_gateway_revision_cut_total counter
# HELP moorage_gateway_revision_client_gone_total Requests at the revision whose client left first.
# TYPE moorage_gateway_revision_client_gone_total counter
# HELP moorage_gateway_revision_unreachable_total Connects to its replicas that failed.
# TYPE moorage_gateway_revision_unreachable_total counter
# HELP moorage_gateway_revision_passed_over_total Requests of its share that the active revision answered.
# TYPE moorage_gateway_revision_passed_over_total counter
# HELP moorage_gateway_revision_copies_total Copies of requests sent to it.
# TYPE moorage_gateway_revision_copies_total counter
# HELP moorage_gateway_revision_copies_dropped_total Copies left out: too many under way, too long, or no free replica.
# TYPE moorage_gateway_revision_copies_dropped_total counter
# HELP moorage_gateway_generation Number of the routing table in use.
# TYPE moorage_gateway_generation gauge
# HELP moorage_gateway_clients Client connections open.
# TYPE moorage_gateway_clients gauge
# HELP moorage_gateway_control_up Whether the control plane answers.
# TYPE moorage_gateway_control_up gauge
"""


def prometheus(
    endpoints: Iterable[tuple[EndpointState, Stats | None]], generation: int, clients: int, control_up: bool
) -> str:
    """The text of `/metrics`."""
    out = [
        f"moorage_gateway_generation {generation}",
        f"moorage_gateway_clients {clients}",
        f"moorage_gateway_control_up {int(control_up)}",
    ]
    for endpoint, stats in endpoints:
        label = f'namespace="{endpoint.route.namespace}",endpoint="{endpoint.route.name}"'
        out.append(f"moorage_gateway_in_flight{{{label}}} {endpoint.in_flight}")
        out.append(f"moorage_gateway_held{{{label}}} {len(endpoint.waiting)}")
        for revision in endpoint.revisions.values():
            out.extend(_revision_lines(revision, label))
        if stats is None:
            continue
        for status_class, count in enumerate(stats.statuses):
            if count:
                out.append(f'moorage_gateway_requests_total{{{label},code="{status_class}xx"}} {count}')
        out.append(f"moorage_gateway_cut_total{{{label}}} {stats.cut}")
        out.append(f"moorage_gateway_client_gone_total{{{label}}} {stats.client_gone}")
        out.append(f"moorage_gateway_response_bytes_total{{{label}}} {stats.bytes}")
        out.extend(_histogram("moorage_gateway_request_seconds", label, stats.total))
        out.append(f"moorage_gateway_request_seconds_sum{{{label}}} {stats.total_ms / 1000:.6f}")
        out.extend(_histogram("moorage_gateway_first_byte_seconds", label, stats.first))
        out.extend(_histogram("moorage_gateway_queued_seconds", label, stats.queued))
    return _HEAD + "\n".join(out) + "\n"
