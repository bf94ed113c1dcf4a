"""What clients used with their keys: sums of one endpoint and one day (UTC), as gateways count them.

Sums of one gateway process only grow, so of two that are told of the same the larger is the newer one: told twice, late
or out of order, they come out the same. Here only the values; counted by `gateway/usage`, kept by the store, shown by
`control/usage`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime

KEPT_DAYS = 400
"""How long they are kept: a year and a month, so that a month can be laid beside the same one of the year before."""


_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class UsageSums:
    """Requests by how they ended, and tokens.

    Args:
        requests: all that were let in by the key, whatever became of them.
        refused: of these, by the gateway: a limit, a full queue, nothing there that answers.
        failed: no answer, one that was cut, or an error of the model server (5xx).
        client_gone: the client left before the end.
        prompt_tokens, completion_tokens: as the answers told them.
        counted_tokens: events with content of streams that told none.
    """

    requests: int = 0
    refused: int = 0
    failed: int = 0
    client_gone: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    counted_tokens: int = 0

    @property
    def answered(self) -> int:
        """Requests that got a whole answer, whatever it said of the request itself (4xx)."""
        return self.requests - self.refused - self.failed - self.client_gone


SUMS = tuple(field.name for field in fields(UsageSums))


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What one gateway process saw.

    Args:
        gateway, incarnation: which one.
        key: uid of the key.
        endpoint: as the client named it: a deployment's own or one that people made.
        day: `2026-01-31`, UTC.
    """

    gateway: str
    incarnation: str
    key: str
    namespace: str
    endpoint: str
    day: str
    sums: UsageSums


@dataclass(frozen=True, slots=True)
class UsedOn:
    """What was used of an endpoint with a key on one day, over all gateways."""

    key: str
    endpoint: str
    day: str
    sums: UsageSums


def total(parts: Iterable[UsageSums]) -> UsageSums:
    """All of it together."""
    found = list(parts)
    return UsageSums(*(sum(getattr(part, name) for part in found) for name in SUMS))


def day_of(at: float) -> str:
    """The day (UTC) of a time in seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def ends_at(at: float) -> float:
    """When the day (UTC) of a time ends; both in seconds since the epoch."""
    return (at // _DAY_S + 1) * _DAY_S


def days_before(day: str, count: int) -> str:
    """The day so many days before."""
    return date.fromordinal(date.fromisoformat(day).toordinal() - count).isoformat()
