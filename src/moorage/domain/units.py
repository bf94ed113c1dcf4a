"""Quantities as people write them: durations, sizes and CPU, parsed to numbers and written back.

Parsing gives seconds (float), bytes (int) and thousandths of a core (int); formatting gives a text that parses to the
same number. Specs, flags and settings come through here; nothing else in the code reads a unit.
"""

import math
import re
from decimal import ROUND_HALF_EVEN, Decimal

from moorage.domain.errors import InvalidSpec

_DURATION_S = {
    "d": Decimal(86400),
    "h": Decimal(3600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("0.001"),
}
_NUMBER = r"[0-9]{1,20}(?:\.[0-9]{1,20})?"
_PLAIN_NUMBER = re.compile(_NUMBER)
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|[dhms])")

_SIZE_BYTES = {
    "": 1,
    "B": 1,
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGTP", start=1)},
    **{f"{letter}B": 1000**power for power, letter in enumerate(("k", "M", "G", "T", "P"), start=1)},
    "KB": 1000,
}
_SIZE = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)")
_SIZES_DOWN = tuple((f"{letter}iB", 1024**power) for power, letter in reversed(tuple(enumerate("KMGTP", start=1))))

_LARGEST = 2**63 - 1
"""What the store can hold; also far above any real duration in seconds, size in bytes or CPU in thousandths."""

_DURATION_HELP = "write it as 30s, 15m, 1h30m, 100ms or 7d, or as a number of seconds"
_SIZE_HELP = "write it as 512MiB, 80GiB or 80GB, or as a number of bytes"
_CPU_HELP = "write it as a number of cores such as 2 or 0.5, or in thousandths of a core such as 500m"


def parse_duration(value: str | float) -> float:
    """Seconds in a duration.

    Args:
        value: `30s`, `15m`, `1h30m`, `100ms`, `7d`, or seconds as a number (also as text).

    Raises:
        InvalidSpec: it is none of these, negative or not finite.
    """
    if not isinstance(value, str):
        return float(_number(value, "duration", _DURATION_HELP))
    text = value.strip()
    parts = _DURATION_PART.findall(text)
    if parts and "".join(n + u for n, u in parts) == text and len({u for _, u in parts}) == len(parts):
        total = sum((Decimal(n) * _DURATION_S[u] for n, u in parts), Decimal(0))
        return float(_bounded(total, value, "duration", _DURATION_HELP))
    return float(_number(text, "duration", _DURATION_HELP))


def format_duration(seconds: float) -> str:
    """A duration as text that `parse_duration` reads back; exact to a millisecond.

    Args:
        seconds: not negative.

    Raises:
        InvalidSpec: it is negative or not finite.
    """
    rest_ms = int((_number(seconds, "duration", _DURATION_HELP) * 1000).to_integral_value(ROUND_HALF_EVEN))
    out = ""
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest_ms = divmod(rest_ms, unit_ms)
        out += f"{count}{unit}" if count else ""
    return out or "0s"


def parse_size(value: str | float) -> int:
    """Bytes in a size.

    Args:
        value: `512MiB`, `80GiB` (powers of 1024), `80GB` (powers of 1000), or bytes as a number (also as text).

    Raises:
        InvalidSpec: it is none of these, negative, or no whole number of bytes.
    """
    unit = 1
    number: str | float = value
    if isinstance(value, str):
        found = _SIZE.fullmatch(value.strip())
        if found is None or found[2] not in _SIZE_BYTES:
            raise _invalid(value, "size", _SIZE_HELP)
        number, unit = found[1], _SIZE_BYTES[found[2]]
    size = _bounded(_number(number, "size", _SIZE_HELP) * unit, value, "size", _SIZE_HELP)
    if size != size.to_integral_value():
        raise _invalid(value, "size", "it must be a whole number of bytes; " + _SIZE_HELP)
    return int(size)


def format_size(size_bytes: int) -> str:
    """A size in the largest power of 1024 that divides it; `parse_size` reads it back exactly.

    Args:
        size_bytes: not negative.
    """
    for unit, factor in _SIZES_DOWN:
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"


def show_size(size_bytes: float) -> str:
    """A size rounded for reading (`1.5 GiB`); not meant to be read back.

    Args:
        size_bytes: not negative.
    """
    for unit, factor in _SIZES_DOWN:
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def parse_cpu(value: str | float) -> int:
    """Thousandths of a core.

    Args:
        value: cores (`2`, `0.5`, also as text) or thousandths (`500m`).

    Raises:
        InvalidSpec: it is neither, negative, or finer than a thousandth of a core.
    """
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.endswith("m"):
        milli = _number(text[:-1], "CPU amount", _CPU_HELP)
    else:
        milli = _bounded(_number(text, "CPU amount", _CPU_HELP) * 1000, value, "CPU amount", _CPU_HELP)
    if milli != milli.to_integral_value():
        raise _invalid(value, "CPU amount", "the finest is a thousandth of a core (1m); " + _CPU_HELP)
    return int(milli)


def format_cpu(milli: int) -> str:
    """Whole cores as `2`, else thousandths as `500m`; `parse_cpu` reads it back exactly.

    Args:
        milli: thousandths of a core, not negative.
    """
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def _number(value: str | float | Decimal, what: str, allowed: str) -> Decimal:
    """The value as an exact, finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise _invalid(value, what, allowed)
    if isinstance(value, str) and not _PLAIN_NUMBER.fullmatch(value):
        raise _invalid(value, what, allowed)
    number = value if isinstance(value, Decimal) else Decimal(str(value)) if _finite(value) else None
    if number is None or number < 0:
        raise _invalid(value, what, allowed)
    return _bounded(number, value, what, allowed)


def _bounded(number: Decimal, value: object, what: str, allowed: str) -> Decimal:
    """The number, unless it is above what the store can hold."""
    if number > _LARGEST:
        raise _invalid(value, what, "it is too large; " + allowed)
    return number


def _finite(value: str | float) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _invalid(value: object, what: str, allowed: str) -> InvalidSpec:
    return InvalidSpec(f"{value!r} is not a {what}", remedy=allowed[0].upper() + allowed[1:] + ".")
