"""Times as people read them: `3m` ago, `1.2 s`, `14:03:09`. The API's times are ISO 8601 in UTC."""

from datetime import datetime

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def age(stamp: str | None, now: float) -> str:
    """How long ago, in one unit: `12s`, `3m`, `4h`, `2d`; `-` when unknown.

    Args:
        stamp: ISO 8601 time.
        now: seconds since the epoch.
    """
    return "-" if not stamp else span(max(0.0, now - seconds(stamp)))


def span(length_s: float) -> str:
    """A length of time in its largest whole unit."""
    for size, unit in _UNITS:
        if length_s >= size:
            return f"{int(length_s // size)}{unit}"
    return f"{int(length_s)}s"


def took(length_s: float) -> str:
    """A measured time, as precise as its size deserves: `4 ms`, `1.24 s`, `2m 05s`."""
    if length_s < 1:
        return f"{length_s * 1000:.0f} ms"
    if length_s < 60:
        return f"{length_s:.2f} s"
    return f"{int(length_s // 60)}m {int(length_s % 60):02d}s"


def seconds(stamp: str) -> float:
    """ISO 8601 → seconds since the epoch."""
    return datetime.fromisoformat(stamp).timestamp()


def clock(stamp: str | None) -> str:
    """Local time of day with milliseconds, and the date when it is not today's."""
    if not stamp:
        return "-"
    local = datetime.fromisoformat(stamp).astimezone()
    form = "%H:%M:%S" if local.date() == datetime.now().astimezone().date() else "%Y-%m-%d %H:%M:%S"
    return f"{local.strftime(form)}.{local.microsecond // 1000:03d}"
