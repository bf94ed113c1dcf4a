"""The bounded memory of single requests, which attributes each to its replica.

Here: a record, the columns in which requests that ended alike are kept, and the ring of those. A record is made when
somebody asks for it; until then a request costs a place in some columns. Nothing here holds on to an answer's bytes or
to anything of the routing table but what it said. Filled by `counting`; read by `own` through it, by `access_lines`.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from moorage.decide.serving.routes import Generation, TargetSpec
from moorage.gateway.outcomes import Refused
from moorage.gateway.tokens import Tokens
from moorage.wire.routing import RequestRecord

if TYPE_CHECKING:
    from moorage.gateway.exchange import Exchange

_NAME_MAX: Final = 200


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


class Batch(NamedTuple):
    """Requests that ended alike, in the order in which they did; what may differ is a column. Else as `Record`."""

    numbers: Sequence[int]
    """counted from the first request of the process; they grow"""
    endpoint: str
    deployment: str
    generation: int
    target: TargetSpec | None
    status: int
    request_ids: Sequence[bytes]
    queued_s: Sequence[float] | None
    first_s: Sequence[float | None]
    total_s: Sequence[float]
    bytes: Sequence[int]
    outcomes: Sequence[str]
    """equal words, of which each may say why in its own way"""
    tokens: Sequence[Tokens | None]
    told: tuple[Sequence[int], Sequence[int]] | None
    """the same in columns, where each answer told both its numbers"""
    keys: Sequence[str]
    """names; empty where there was none"""
    retried: Sequence[int]

    def record(self, at: int) -> Record:
        """One of them."""
        return Record(
            request_id=self.request_ids[at],
            endpoint=self.endpoint,
            deployment=self.deployment,
            generation=self.generation,
            target=self.target,
            queued_s=None if self.queued_s is None else self.queued_s[at],
            first_s=self.first_s[at],
            total_s=self.total_s[at],
            status=self.status,
            bytes=self.bytes[at],
            outcome=self.outcomes[at],
            tokens=self.tokens[at],
            key=self.keys[at] or None,
            retried=self.retried[at],
        )


def alike(columns: Sequence[tuple[Any, ...]]) -> list[list[int]]:
    """Places of rows that agree in all of these columns, one list for each kind; none where all rows do."""
    differing = [column for column in columns if column.count(column[0]) < len(column)]
    places: defaultdict[Any, list[int]] = defaultdict(list)
    for place, kind in enumerate(differing[0] if len(differing) == 1 else zip(*differing, strict=True)):
        places[kind].append(place)
    return list(places.values())


def picked(column: Sequence[Any], places: list[int]) -> tuple[Any, ...]:
    """What stands there."""
    return (column[places[0]],) if len(places) == 1 else itemgetter(*places)(column)


class Ring:
    """The last `size` requests. Finding one scans, since that is rare and adding is not."""

    __slots__ = ("_batches", "_newest", "_size")

    def __init__(self, size: int) -> None:
        self._batches: deque[Batch] = deque()
        self._size = size
        self._newest = -1

    def keep(self, batch: Batch) -> None:
        """Keep these, and drop the batches of which none is among the last `size`."""
        batches = self._batches
        batches.append(batch)
        self._newest = max(self._newest, batch.numbers[-1])
        oldest = self._newest - self._size
        while batches[0].numbers[-1] <= oldest:
            batches.popleft()

    def records(self) -> list[Record]:
        """All of them, oldest first."""
        oldest = self._newest - self._size
        kept = [(number, batch, at) for batch in self._batches for at, number in enumerate(batch.numbers)]
        return [batch.record(at) for number, batch, at in sorted(kept, key=_number) if number > oldest]

    def find(self, request_id: bytes) -> Record | None:
        """The newest record of that id."""
        found = [
            (number, batch, at)
            for batch in self._batches
            if request_id in batch.request_ids
            for at, number in enumerate(batch.numbers)
            if batch.request_ids[at] == request_id
        ]
        number, batch, at = max(found, key=_number, default=(-1, None, 0))
        return None if batch is None or number <= self._newest - self._size else batch.record(at)


def _number(kept: tuple[int, Batch, int]) -> int:
    return kept[0]
