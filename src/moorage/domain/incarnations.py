"""Names of single runs of a gateway's process: no two alike, and of two of one gateway the later one can be told.

Here: how such a name is written, and what it tells. Not here: the clock and the draw, which are arguments.
"""

import re
from typing import Final

_TIMED: Final = re.compile(r"([0-9a-f]{16})-[0-9a-f]{8}")


def named(began_ns: int, draw: str) -> str:
    """The name of a process.

    Args:
        began_ns: since the epoch, in nanoseconds, by its machine's clock.
        draw: eight hexadecimal digits, at random.
    """
    return f"{began_ns:016x}-{draw}"


def is_before(one: str, other: str) -> bool:
    """Whether one surely began before the other, by its machine's clock; False where a name does not tell."""
    first, second = _TIMED.fullmatch(one), _TIMED.fullmatch(other)
    return first is not None and second is not None and first[1] < second[1]
