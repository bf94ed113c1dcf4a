"""How the usage of keys is asked for and shown. Called by `keys`."""

from collections.abc import Mapping
from datetime import UTC, datetime
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


def usage_table(found: Mapping[str, Any]) -> Table:
    """Lines of a Usage object, and the sum of them where they are several."""
    by_day = found["bucket"] == "day"
    titles = (*(("DAY",) if by_day else ()), "ENDPOINT", *(title for title, _ in USED))
    lines = [
        (*((item["day"],) if by_day else ()), item["endpoint"], *(f"{item[field]:,}" for _, field in USED))
        for item in found["items"]
    ]
    if len(lines) > 1:
        blank = ("",) if by_day else ()
        lines.append(("total", *blank, *(f"{found['total'][field]:,}" for _, field in USED)))
    name = found["key"] or found["key_id"]
    empty = f"{name} was not used from {found['from']} to {found['to']}"
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


def day_of(at: float) -> str:
    """The day (UTC) of a time, in seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()
