"""Heads that differ only in some values: what one says is known but for these values.

A client's heads repeat line for line except a trace id, a length, a date. Here: the shape of such heads, learnt from
those that were read in full, and the check that another has it. Not here: the reading in full (`fields`, which calls
this), so a head that fits no shape loses nothing but time.

A head fits when every line is equal to the shape's, save its holes; what stands in a hole keeps its name to the byte,
and its value is one that reading in full would accept. Only lines whose value changes nothing (or only the length)
can be holes.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_HOLES_MAX = 8
_LENGTH_DIGITS_MAX = 18


class Asks(NamedTuple):
    """What few heads say; empty where a head does not.

    - the endpoint that X-Moorage-Endpoint names
    - a Content-Type that is a form
    - in lower case, the protocol of an Upgrade that Connection names and that may pass here
    - the text of a Moorage key
    """

    endpoint: bytes
    form: bytes
    upgrade: bytes
    credential: bytes = b""


Fields = tuple[bytes | None, int, int, frozenset[bytes], bytes | None, bytes | None, bytes | None, Asks | None, bytes]
"""What the lines of a head say; a plain tuple, since two are made for every request.

- the lines that go on, each with its line end; None when that is all of them
- bytes of the body, CHUNKED (-1), or UNFRAMED (-2) when no line says it
- how many Host lines there are
- what Connection says, in lower case
- the value of Expect, in lower case
- the sender's X-Request-Id, if it is one that can be written into logs
- the revision that X-Moorage-Revision names
- what few heads say, None where it says none of it
- what X-Moorage-Session says, the first of several that says something; empty where none does
"""


class Shape:
    """Heads of one first line.

    Args:
        lines: of a head that was read.
        fields: what it said, with neither Expect nor X-Request-Id.
        stopping: places of the lines that do not go on.
        length_at: the place of its Content-Length, or -1.
        session_at: the place of its X-Moorage-Session, or -1.
        fixed: places whose value matters beyond that, which are never holes.
    """

    __slots__ = ("_fields", "_holes", "_length_at", "_length_start", "_lines", "_session_at", "_stopping", "fixed")

    def __init__(
        self,
        lines: Sequence[bytes],
        fields: Fields,
        *,
        stopping: Sequence[int],
        length_at: int,
        session_at: int = -1,
        fixed: frozenset[int],
        holes: frozenset[int] = frozenset(),
    ) -> None:
        self.fixed = fixed
        self._lines = list(lines)
        self._fields = fields
        self._stopping = tuple(sorted(stopping, reverse=True))
        self._length_at = length_at if length_at in holes else -1
        self._length_start = len(_name(lines[length_at])) if self._length_at >= 0 else 0
        self._session_at = session_at if session_at in holes else -1
        self._holes = tuple((at, _name(lines[at]), len(_name(lines[at]))) for at in sorted(holes))

    def read(self, lines: list[bytes]) -> Fields | None:
        """What these lines say, None when they have another shape."""
        held = self._lines
        if len(lines) != len(held):
            return None
        filled = lines.copy()
        for at, name, start in self._holes:
            line = lines[at]
            value = line[start:]
            if not line.startswith(name) or not (value.isalnum() or _VALUE.fullmatch(value)):
                return None
            filled[at] = held[at]
        if filled != held:
            return None
        kept, length, hosts, words, expect, request_id, revision, asks, session = self._fields
        if self._length_at >= 0:
            digits = lines[self._length_at][self._length_start :]
            if not digits.isdigit() or len(digits) > _LENGTH_DIGITS_MAX:
                return None
            length = int(digits)
        if self._session_at >= 0:
            session = lines[self._session_at].partition(b":")[2].strip(b" \t")
        if self._stopping:
            left = lines.copy()
            for at in self._stopping:
                del left[at]
            left.append(b"")
            kept = b"\r\n".join(left)
        return kept, length, hosts, words, expect, request_id, revision, asks, session

    def holes_with(self, lines: Sequence[bytes]) -> frozenset[int] | None:
        """The holes of a shape that these lines have too; None when none would have."""
        if len(lines) != len(self._lines):
            return None
        differ = {at for at, (own, line) in enumerate(zip(self._lines, lines, strict=True)) if own != line}
        holes = frozenset(differ.union(at for at, _, _ in self._holes))
        if len(holes) > _HOLES_MAX or holes & self.fixed:
            return None
        return holes if all(_name(lines[at]) == _name(self._lines[at]) for at in holes) else None


def _name(line: bytes) -> bytes:
    """The line up to its value, as it is spelled."""
    end = line.index(b":") + 1
    return line[: end + 1] if line[end : end + 1] == b" " else line[:end]
