"""Heads that differ only in some values: what one says is known but for these values.

A client's heads repeat line for line except a trace id, a length, a date. Here: the shape of such heads, learnt from
those that were read in full, and the check that another has it. Not here: the reading in full, and what may differ
(`fields`); `heads` asks here first, so a head that fits no shape loses nothing but time.

A head fits when it is equal to the shape byte for byte, save its holes: each is the value of one line, from behind its
name to the line's end, and holds what reading in full would accept there. Most holes change nothing; what stands in
some is a part of what the head says, and is put in its place.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

SANE_ID: Final = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")
MOORAGE_KEY: Final = re.compile(rb"(?:bearer +)?(moor-key\..*)", re.IGNORECASE | re.DOTALL)
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_NO_EVENTS = re.compile(
    rb"[\t\x20-\x2e\x30-\x7e\x80-\xff]*+(?:/(?!event-stream)[\t\x20-\x2e\x30-\x7e\x80-\xff]*+)*+", re.IGNORECASE
)
"""An answer whose head says so anywhere is a stream of events (`heads`)."""
_HOLES_MAX = 8
_LENGTH_DIGITS_MAX = 18
_FIRSTS_MAX = 256
_ALIKE_MAX = 4
"""Shapes of one first line: clients of different make."""
_LINES_MAX = 64
_BYTES_MAX = 4096
_LINES, _LENGTH_OF, _REQUEST_ID_OF, _ASKS_OF, _SESSION_OF = 1, 2, 5, 7, 8
"""Places in the heads' tuples (`heads`); those of answers have the first two only."""

T = TypeVar("T", bound=tuple[Any, ...])
_new = tuple.__new__


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
"""What the lines of a head say; a plain tuple, since it is made for many requests.

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

# What a line is, and its value may be, in other heads of the same shape.
FIXED: Final = 0
ENDING: Final = 1
"""Fixed, and it ends at this hop, as others below do."""
ANY: Final = 2
DROPPED: Final = 3
LENGTH: Final = 4
SESSION: Final = 5
REQUEST_ID: Final = 6
KEY: Final = 7
FOREIGN: Final = 8
"""A credential that is no Moorage key."""
_ENDING: Final = frozenset((ENDING, DROPPED, REQUEST_ID, KEY))
_FIXED: Final = frozenset((FIXED, ENDING))


class Shape(Generic[T]):
    """Heads that differ in some values.

    Args:
        lines: of a head that was read, its first line among them.
        kinds: what each line is.
        head: what that head says.
        prefix: what stands in the head's own lines before those that go on.
        holes: which lines have values that may differ.
        fits: what such a value may be, if it is more than letters and digits.
    """

    __slots__ = (
        "_fits",
        "_front",
        "_front_size",
        "_holes",
        "_kept",
        "_kinds",
        "_lines",
        "_rests",
        "_said",
        "_start",
        "_telling",
        "_type",
    )

    def __init__(  # noqa: PLR0917 - all of it is what a shape is
        self,
        lines: Sequence[bytes],
        kinds: Sequence[int],
        head: T,
        prefix: bytes,
        holes: frozenset[int],
        fits: re.Pattern[bytes],
    ) -> None:
        self._lines, self._kinds, self._holes = lines, kinds, sorted(holes)
        self._type = type(head)
        self._said: list[Any] = list(head)
        self._fits = fits.fullmatch
        parts, self._kept = _cut(lines, kinds, prefix, holes)
        self._front = parts[0]
        self._front_size = len(parts[0])
        self._rests = parts[1:]
        self._telling = [(hole, kinds[at]) for hole, at in enumerate(self._holes) if kinds[at] != ANY]
        whole = b"".join((*(line + b"\r\n" for line in lines), b""))
        as_it_came = not _ENDING.intersection(kinds) and whole.endswith(head[_LINES])
        self._start = len(whole) - len(head[_LINES]) if as_it_came else -1
        """from where on all of it goes on as it came, but for the blank line; -1: that is not so"""

    def read(self, raw: bytes) -> T | None:
        """What this head says, None when it has another shape."""
        mark = self._front
        if not raw.startswith(mark):
            return None
        fits = self._fits
        values = []
        tail = raw[self._front_size :]
        for rest in self._rests:
            value, mark, tail = tail.partition(rest)
            if not (value.isalnum() or fits(value)):
                return None  # among them all that is left, where `rest` does not follow
            values.append(value)
        if tail or not mark:
            return None
        said = self._said.copy()
        for hole, kind in self._telling:
            value = values[hole]
            if kind == LENGTH:
                if not value.isdigit() or len(value) > _LENGTH_DIGITS_MAX:
                    return None
                said[_LENGTH_OF] = int(value)
            elif not _take(said, kind, value.strip(b" \t")):
                return None
            elif kind in _ENDING:
                values[hole] = b""
        if self._start >= 0:
            said[_LINES] = raw[self._start : -2]
        else:
            kept = self._kept.copy()
            kept[1::2] = values
            said[_LINES] = b"".join(kept)
        return _new(self._type, said)

    def holes_with(self, lines: Sequence[bytes], kinds: Sequence[int]) -> frozenset[int] | None:
        """The holes of a shape that these lines have too; None when none would have."""
        if len(lines) != len(self._lines) or kinds != self._kinds:
            return None
        holes = set(self._holes)
        for at, (own, line) in enumerate(zip(self._lines, lines, strict=True)):
            if own != line:
                if kinds[at] in _FIXED or _name(own) != _name(line):
                    return None
                holes.add(at)
        return frozenset(holes) if len(holes) <= _HOLES_MAX else None


class Shapes(Generic[T]):
    """The shapes that heads had lately; emptied when full.

    Args:
        answers: whether these are heads of answers.
    """

    __slots__ = ("_by_first", "_fits", "_last")

    def __init__(self, *, answers: bool = False) -> None:
        self._fits = _NO_EVENTS if answers else _VALUE
        self._by_first: dict[bytes, list[Shape[T]]] = {}
        self._last: Shape[T] | None = None

    def read(self, raw: bytes) -> T | None:
        """What a head says that has a known shape."""
        last = self._last
        if last is None:
            return None
        head = last.read(raw)
        return self._of_another(raw) if head is None else head

    def _of_another(self, raw: bytes) -> T | None:
        for shape in self._by_first.get(raw[: raw.find(b"\r\n")], ()):
            head = shape.read(raw)
            if head is not None:
                self._last = shape
                return head
        return None

    def learn(self, raw: bytes, kinds: Sequence[int], head: T, prefix: bytes = b"") -> None:
        """Learn from a head that was read in full.

        Args:
            kinds: what each of its lines but the first is.
            head: what it says.
            prefix: what stands in `head` before the lines that go on.
        """
        lines = raw.split(b"\r\n")[:-2]
        if len(lines) > _LINES_MAX or len(raw) > _BYTES_MAX:
            return
        kinds = [FIXED, *kinds]
        alike = self._by_first.get(lines[0], [])
        holes, at = frozenset[int](), -1
        for number, shape in enumerate(alike):
            found = shape.holes_with(lines, kinds)
            if found is not None:
                holes, at = found, number
                break
        learnt = Shape(lines, kinds, head, prefix, holes, self._fits)
        if learnt.read(raw) != head:
            return  # what it says is not in its lines alone
        if not alike and len(self._by_first) >= _FIRSTS_MAX:
            self._by_first.clear()
        others = [shape for number, shape in enumerate(alike) if number != at]
        self._by_first[lines[0]] = [learnt, *others][:_ALIKE_MAX]
        self._last = learnt


def _cut(
    lines: Sequence[bytes], kinds: Sequence[int], prefix: bytes, holes: frozenset[int]
) -> tuple[list[bytes], list[bytes]]:
    """The bytes between the holes, and what of them goes on, with a place for the value of each hole."""
    parts: list[bytes] = []
    kept: list[bytes] = []
    part, goes_on = lines[0] + b"\r\n", prefix
    for at, line in enumerate(lines[1:], 1):
        ends_here = kinds[at] in _ENDING
        if at in holes:
            name = _name(line)
            parts.append(part + name)
            kept += (goes_on if ends_here else goes_on + name, b"")
            part = b"\r\n"
            goes_on = b"" if ends_here else part
        else:
            part += line + b"\r\n"
            goes_on += b"" if ends_here else line + b"\r\n"
    return [*parts, part + b"\r\n"], [*kept, goes_on]


def _take(said: list[Any], kind: int, value: bytes) -> bool:
    """Put what stands in a hole, save a length, where it belongs; False where reading in full has to judge it."""
    if kind == SESSION:
        said[_SESSION_OF] = value
    elif kind == REQUEST_ID:
        said[_REQUEST_ID_OF] = value
        return SANE_ID.fullmatch(value) is not None
    elif kind == FOREIGN:
        return MOORAGE_KEY.fullmatch(value) is None
    elif kind == KEY:
        key = MOORAGE_KEY.fullmatch(value)
        if key is None:
            return False
        endpoint, form, upgrade, _ = said[_ASKS_OF]
        said[_ASKS_OF] = Asks(endpoint, form, upgrade, key[1])
    return True


def _name(line: bytes) -> bytes:
    """The line up to its value, as it is spelled."""
    end = line.index(b":") + 1
    return line[: end + 1] if line[end : end + 1] == b" " else line[:end]
