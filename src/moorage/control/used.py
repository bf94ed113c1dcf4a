"""What was used with clients' keys, as it is asked for: by day and endpoint, or in all. Called by `control/keys`."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import groupby

from moorage.control.views import JsonObject
from moorage.domain.errors import InvalidSpec
from moorage.domain.usage import KEPT_DAYS, UsageSums, UsedOn, day_of, days_before, total
from moorage.ports import Clock, UsageRows

USUAL_DAYS = 30
BUCKETS = ("day", "total")


@dataclass(frozen=True, slots=True)
class Span:
    """Days (UTC), both included."""

    first: str
    last: str


def span_of(since: str | None, until: str | None, now: float) -> Span:
    """The days that are meant.

    Args:
        since, until: a day (`2026-01-31`) or a time (ISO 8601), whose day in UTC is meant; None: the last 30 days, and
            today.
        now: seconds since the epoch.

    Raises:
        InvalidSpec: one of them is neither, or the end is before the beginning.
    """
    last = day_of(now) if until is None else _day(until, "to")
    first = days_before(last, USUAL_DAYS - 1) if since is None else _day(since, "from")
    if first > last:
        raise InvalidSpec(
            f"usage from {first} to {last} is of no day",
            remedy="give a `from` that is not after `to`",
            errors=[{"path": "from", "message": f"is after {last}"}],
        )
    return Span(first, last)


class KeyUsage:
    """Sums of keys.

    Args:
        rows, clock: outside.
    """

    def __init__(self, rows: UsageRows, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock

    async def told(self, ns: str, uid: str, span: Span, *, bucket: str, endpoint: str | None) -> JsonObject:
        """Of one key: {from, to, bucket, items, total}.

        Args:
            bucket: `day`: an item for each day and endpoint; `total`: one for each endpoint.
            endpoint: only what named this one.
        """
        found = await self._rows.usage(ns, span.first, span.last, key=uid)
        found = [one for one in found if endpoint in (None, one.endpoint)]
        return {
            "from": span.first,
            "to": span.last,
            "bucket": bucket,
            "kept_from": days_before(day_of(self._clock.now()), KEPT_DAYS - 1),
            "items": list(_by_day(found) if bucket == "day" else _by_endpoint(found)),
            "total": sums_object(total(one.sums for one in found)),
        }

    async def by_key(self, ns: str, span: Span) -> dict[str, UsageSums]:
        """Of each key of a namespace that was used, by uid."""
        found = await self._rows.usage(ns, span.first, span.last)
        return {uid: total(one.sums for one in of_key) for uid, of_key in groupby(found, lambda one: one.key)}

    async def any_of(self, ns: str, uid: str) -> bool:
        """Whether there is anything of a key."""
        return bool(await self._rows.usage(ns, "", day_of(self._clock.now() + 86_400.0), key=uid))


def sums_object(sums: UsageSums) -> JsonObject:
    """Sums as the API tells them; of the output tokens `counted_tokens` were counted, as nothing told them."""
    return {
        "requests": sums.requests,
        "answered": sums.answered,
        "refused": sums.refused,
        "failed": sums.failed,
        "client_gone": sums.client_gone,
        "input_tokens": sums.prompt_tokens,
        "output_tokens": sums.completion_tokens + sums.counted_tokens,
        "counted_tokens": sums.counted_tokens,
    }


def _by_day(found: Iterable[UsedOn]) -> Iterable[JsonObject]:
    return ({"day": one.day, "endpoint": one.endpoint, **sums_object(one.sums)} for one in found)


def _by_endpoint(found: Iterable[UsedOn]) -> Iterable[JsonObject]:
    of_all: dict[str, list[UsageSums]] = {}
    for one in found:
        of_all.setdefault(one.endpoint, []).append(one.sums)
    return ({"endpoint": endpoint, **sums_object(total(of_all[endpoint]))} for endpoint in sorted(of_all))


def _day(text: str, where: str) -> str:
    try:
        if len(text) == len("2026-01-31"):
            return date.fromisoformat(text).isoformat()
        at = datetime.fromisoformat(text)
        return (at.replace(tzinfo=UTC) if at.tzinfo is None else at).astimezone(UTC).date().isoformat()
    except (ValueError, OverflowError):
        raise InvalidSpec(
            f"{where}={text[:40]!r} is no day",
            remedy="give a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z",
            errors=[{"path": where, "message": "neither a day nor a time"}],
        ) from None
