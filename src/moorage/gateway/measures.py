"""What the gateway counts, and the bounded ring that attributes single requests.

Here: integers and tuples, cheap enough for every request; text is made only when asked for (`exposition`). What is
counted by replica lives as long as the replica is in the table or still answers, so that series are few and end.
Called by `hub`, `own` and `exposition`.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from moorage.decide.serving.routes import Generation, TargetSpec, TargetState
from moorage.gateway.outcomes import Refused
from moorage.gateway.tokens import GAP_BOUNDS_S, Tokens
from moorage.wire.routing import RequestRecord

if TYPE_CHECKING:
    from moorage.gateway.exchange import Exchange

BOUNDS_S: Final = GAP_BOUNDS_S
_BUCKETS: Final = len(BOUNDS_S) + 1
_NAME_MAX: Final = 200
_SERVER_ERROR: Final = 5
_FAILED: Final = frozenset(("cut", "upstream_error"))


class Record(NamedTuple):
    """One finished request; times in seconds, None where that step was not reached."""

    request_id: bytes
    endpoint: str
    """as the client named it where that is known"""
    deployment: str
    generation: int
    target: TargetSpec | None
    queued_s: float | None
    first_s: float | None
    total_s: float
    status: int
    bytes: int
    outcome: str
    tokens: Tokens | None
    key: str | None
    retried: int

    def to_wire(self) -> RequestRecord:
        """As the API gives it."""
        target, why = self.target, self.outcome if isinstance(self.outcome, Refused) else None
        return RequestRecord(
            request_id=self.request_id.decode("ascii"),
            endpoint=self.endpoint[:_NAME_MAX],
            deployment=self.deployment or None,
            generation=self.generation,
            revision=target.revision if target else None,
            replica=target.replica if target else None,
            worker=(target.worker or None) if target else None,
            machine=(target.machine or None) if target else None,
            queued_ms=_ms(self.queued_s),
            ttft_ms=_ms(self.first_s),
            total_ms=_ms(self.total_s),
            status=self.status or None,
            bytes=self.bytes,
            outcome=str(self.outcome),
            error=why.error if why is not None else None,
            model=(why.model or None) if why is not None else None,
            tokens=self.tokens.to_wire() if self.tokens is not None else None,
            key=self.key,
            retried=self.retried or None,
        )


def running_record(client: "Exchange", now: float, generation: Generation | None) -> Record:
    """A request that has not ended, as far as it is known."""
    endpoint, target = client.endpoint, client.target
    assert endpoint is not None
    return Record(
        request_id=client.request_id,
        endpoint=endpoint.route.name if client.binding is None else client.binding.spec.name,
        deployment=endpoint.route.name,
        generation=generation.number if generation else 0,
        target=target.spec if target is not None else None,
        queued_s=(client.sent_at if target is not None else now) - client.started,
        first_s=client.first_at - client.started if client.first_at else None,
        total_s=now - client.started,
        status=client.status,
        bytes=client.sent_bytes,
        outcome="held" if client.held else "in_flight",
        tokens=None,
        key=client.key_name or None,
        retried=client.retried,
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000.0, 3)


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

    def last(self) -> tuple[Any, ...]:
        """The newest."""
        record = self._records[self._at - 1]
        assert record is not None
        return record

    def find(self, request_id: bytes) -> Record | None:
        """The newest record of that id."""
        newest_first = self._records[: self._at][::-1] + self._records[self._at :][::-1]
        found = next((r for r in newest_first if r is not None and r[0] == request_id), None)
        return None if found is None else Record._make(found)


class ReplicaStats:
    """Counters of one replica, as clients met it."""

    __slots__ = ("errors", "first", "first_s", "requests", "total", "total_s")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        """answers of the 500s, cut ones, and requests that got none"""
        self.first = [0] * _BUCKETS
        self.first_s = 0.0
        self.total = [0] * _BUCKETS
        self.total_s = 0.0


class Stats:
    """Counters of one endpoint at one deployment."""

    __slots__ = (
        "bytes",
        "client_gone",
        "completion_tokens",
        "counted_tokens",
        "cut",
        "first",
        "first_s",
        "gaps",
        "gaps_s",
        "limited",
        "prompt_tokens",
        "queued",
        "queued_s",
        "replicas",
        "retried",
        "statuses",
        "total",
        "total_s",
        "tunnels",
        "waited",
    )

    def __init__(self) -> None:
        self.statuses = [0] * 6
        """by the first digit; 0: no answer"""
        self.total = [0] * _BUCKETS
        self.total_s = 0.0
        self.first = [0] * _BUCKETS
        self.first_s = 0.0
        self.queued = [0] * _BUCKETS
        self.queued_s = 0.0
        self.gaps = [0] * _BUCKETS
        """between the parts of streams"""
        self.gaps_s = 0.0
        self.bytes = 0
        self.cut = 0
        self.client_gone = 0
        self.waited = 0
        self.limited = 0
        self.retried = 0
        self.tunnels = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.counted_tokens = 0
        """of streams that told no usage"""
        self.replicas: dict[TargetState, ReplicaStats] = {}

    def count(  # noqa: PLR0917 - by place, which is quicker than by name
        self,
        target: TargetState | None,
        status: int,
        outcome: str,
        queued_s: float,
        first_s: float | None,
        total_s: float,
    ) -> None:
        """One finished request, here and at its replica's revision; times in seconds."""
        kind = status // 100
        self.statuses[kind] += 1
        at_total = bisect_left(BOUNDS_S, total_s)
        self.total[at_total] += 1
        self.total_s += total_s
        self.queued[bisect_left(BOUNDS_S, queued_s) if queued_s else 0] += 1
        self.queued_s += queued_s
        at_first = -1
        if first_s is not None:
            # an answer that came in one piece began when it ended
            at_first = at_total if first_s == total_s else bisect_left(BOUNDS_S, first_s)
            self.first[at_first] += 1
            self.first_s += first_s
        if outcome == "cut":
            self.cut += 1
        elif outcome == "client_gone":
            self.client_gone += 1
        if status == 429:
            self.limited += 1
        elif status == 101:
            self.tunnels += 1
        if target is None:
            return
        if queued_s > 0.0:
            self.waited += 1
        traffic = target.revision.traffic
        traffic.statuses[kind] += 1
        if outcome == "cut":
            traffic.cut += 1
        elif outcome == "client_gone":
            traffic.client_gone += 1
        replica = self.replicas.get(target)
        if replica is None:
            replica = self.replicas[target] = ReplicaStats()
        replica.requests += 1
        replica.total[at_total] += 1
        replica.total_s += total_s
        if first_s is not None:
            replica.first[at_first] += 1
            replica.first_s += first_s
        if kind >= _SERVER_ERROR or outcome in _FAILED:
            replica.errors += 1

    def count_tokens(self, tokens: Tokens) -> None:
        """What one answer took and gave."""
        if tokens.prompt is not None:
            self.prompt_tokens += tokens.prompt
        if tokens.counted:
            self.counted_tokens += tokens.completion or 0
        elif tokens.completion is not None:
            self.completion_tokens += tokens.completion

    def forget(self, gone: Iterable[TargetState]) -> None:
        """These replicas left the table and answer nobody any more: their series end."""
        for target in gone:
            self.replicas.pop(target, None)
