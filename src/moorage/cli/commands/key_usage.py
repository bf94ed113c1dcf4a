"""How the usage of keys is asked for and shown. Called by `keys`."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from moorage.cli.output import Column, Table
from moorage.domain.errors import InvalidSpec

USED = (
    ("REQUESTS", "requests"),
    ("ANSWERED", "answered"),
    ("REFUSED", "refused"),
    ("FAILED", "failed"),
    ("GONE", "client_gone"),
    ("INPUT", "input_tokens"),
    ("OUTPUT", "output_tokens"),
)
"""Columns of usage and the API's fields."""


def usage_table(found: Mapping[str, Any], endpoint: str | None = None) -> Table:
    """Lines of a Usage object, and the sum of them where they are several.

    Args:
        found: what the API told.
        endpoint: the only one that was asked for; None: all were.
    """
    by_day = found["bucket"] == "day"
    titles = (*(("DAY",) if by_day else ()), "ENDPOINT", *(title for title, _ in USED))
    lines = [
        (*((item["day"],) if by_day else ()), item["endpoint"] or "-", *(f"{item[field]:,}" for _, field in USED))
        for item in found["items"]
    ]
    if len(lines) > 1:
        blank = ("",) if by_day else ()
        lines.append(("total", *blank, *(f"{found['total'][field]:,}" for _, field in USED)))
    name = found["key"] or found["key_id"]
    what = "was not used" if endpoint is None else f"did not use endpoint {endpoint}"
    empty = f"{name} {what} from {found['from']} to {found['to']}"
    numbers = {title for title, _ in USED}
    columns = tuple(Column(title, right=title in numbers, minor=title == "GONE") for title in titles)
    return Table(columns, tuple(lines), empty)


def first_day(text: str, now: float) -> str:
    """The first day that is meant.

    Raises:
        InvalidSpec: it is neither a day nor how long back.
    """
    from moorage.domain.units import parse_duration

    if text.count("-") == 2:
        return text
    try:
        return day_of(now - parse_duration(text))
    except (InvalidSpec, ValueError, OverflowError):
        raise InvalidSpec(
            f"--since {text} is neither a day nor how long back", remedy="write 2026-01-31, 7d or 12h"
        ) from None


def last_day(text: str | None, first: str, today: str) -> str | None:
    """The last day that is meant; None where none is named, which is today.

    Args:
        text: as it was given.
        first: the first day, as `first_day` tells it.
        today: the day that it is (UTC).

    Raises:
        InvalidSpec: it is no day, or lies before the first; or that one lies ahead.
    """
    begins = _date("--since", first)
    ends = _date("--until", text or today)
    if ends < begins and text is None:
        raise InvalidSpec(
            f"--since {first} lies after today, {today} (UTC)", remedy="write a day that has begun, or how long back"
        )
    if ends < begins:
        raise InvalidSpec(
            f"--since is {first}, which lies after --until {text}",
            remedy=f"give a --since that is not after {text}, or a later --until",
        )
    return text


def _date(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidSpec(f"{option} {text} is not a day", remedy="write it so: 2026-01-31") from None


def day_of(at: float) -> str:
    """The day (UTC) of a time, in seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()
