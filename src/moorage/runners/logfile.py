"""Reading a worker's log: the segments that the shim writes, by line number, time or pattern.

A segment is `log.N` with N the number of its first line, so numbers are counted, never stored. `times.N` beside it
(`shimming/log.py`) says which bytes and lines came when, and so leads near any line: only what is wanted is read, about
a megabyte at a time. Callers on an event loop run these in a thread.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import iter_unpack

from moorage.runners.shimming.log import RECORD_BYTES
from moorage.wire.patterns import Search, line_search

TAIL_LINES, TAIL_BYTES = 50, 16 << 10
"""What is kept with a failure (the lifecycle contract §1)."""
LINE_BYTES_MAX = 64 << 10
"""A longer line is cut in an answer: one without an end would otherwise be 16 MiB."""
PIECE_BYTES = 1 << 20
"""Read at once: a search of so much holds the interpreter for a few milliseconds."""
MORE_BYTES = 64 << 10
UNKNOWN = 0.0
"""The time of lines of which none was noted."""


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Some lines. `next_seq` is the number to go on after, plus one; `missed` lines were asked for and are gone.

    `seqs` and `times` go along with `lines`: the number of each, and when it came in seconds since the epoch (0.0: not
    known). Without a pattern the numbers are those from `first_seq` on.
    """

    lines: tuple[str, ...]
    first_seq: int
    next_seq: int
    missed: int = 0
    seqs: tuple[int, ...] = ()
    times: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Which lines.

    Args:
        lines: how many at most; without `after` the last so many.
        after: read those that follow this number.
        partial: whether a last line without its end counts (the writer has ended).
        since: seconds since the epoch; only what came then or later. Does not go with `after`.
        pattern: only lines in which this regular expression is found.
        total_bytes: of all lines together, about.
    """

    lines: int = 200
    after: int | None = None
    partial: bool = False
    since: float | None = None
    pattern: str | None = None
    total_bytes: int = 64 << 20


def read(folder: Path, *, lines: int = 200, after: int | None = None, partial: bool = False) -> LogSlice:
    """Lines of a log, by number; see `Limits`."""
    return select(folder, Limits(lines, after, partial))


def select(folder: Path, limits: Limits) -> LogSlice:
    """Lines of a log.

    Raises:
        InvalidSpec: the pattern is none.
    """
    search = line_search(limits.pattern) if limits.pattern is not None else None
    segments = _segments_of(folder)
    after = limits.after
    if not segments:
        start = 1 if after is None else after + 1
        return LogSlice((), start, start)
    first, end = segments[0].number, segments[-1].end(partial=limits.partial)
    missed = 0 if after is None else max(0, first - (after + 1))
    if after is not None:
        return _forward(segments, (max(first, min(after + 1, end)), end), limits, search, missed)
    start = first if limits.since is None else min(end, _since(segments, limits.since, end))
    if search is None:
        start = max(start, end - limits.lines)
    return _last(segments, start, end, limits, search)


def tail(folder: Path, *, lines: int = TAIL_LINES, limit: int = TAIL_BYTES) -> str:
    """The last lines as one text of at most `limit` bytes, cut at the front."""
    raw = b""
    for _, path in reversed(_paths(folder)):
        raw = _end_of(path, limit - len(raw)) + raw
        if len(raw) >= limit:
            break
    return b"\n".join(raw.rstrip(b"\n").split(b"\n")[-lines:])[-limit:].decode("utf-8", "replace")


def size(folder: Path) -> int:
    """A number that grows whenever something is logged: the newest segment's first line and its bytes."""
    found = _paths(folder)
    if not found:
        return 0
    number, path = found[-1]
    try:
        return number * (32 << 20) + path.stat().st_size
    except FileNotFoundError:
        return number * (32 << 20)


# Segments and their records


class _Segment:
    """One `log.N` as it was when it was first looked at; what is written later is not seen."""

    def __init__(self, number: int, path: Path) -> None:
        self.number = number
        self.path = path
        self.size = path.stat().st_size
        raw = _content(path.with_name(f"times.{number}"))
        whole = len(raw) - len(raw) % RECORD_BYTES
        self.places: list[int] = []
        self.counts: list[int] = []
        self.at: list[float] = []
        for place, count, at_ms in iter_unpack("<IIq", raw[:whole]):
            if place >= self.size:
                break
            if place and not self.places:  # its writer was killed, or its disk full, before the first time was noted
                self.places, self.counts, self.at = [0], [0], [UNKNOWN]
            self.places.append(place)
            self.counts.append(count)
            self.at.append(at_ms / 1000)

    def end(self, *, partial: bool) -> int:
        """Number after its last line; one without its end counts where `partial` says so."""
        place, count = (self.places[-1], self.counts[-1]) if self.places else (0, 0)
        rest = self.span(place, self.size)
        ends = bool(rest) and rest[-1:] != b"\n"
        return self.number + count + rest.count(b"\n") + (1 if partial and ends else 0)

    def span(self, start: int, end: int) -> bytes:
        """Bytes of it; fewer where it was rotated away meanwhile."""
        try:
            with self.path.open("rb") as source:
                source.seek(start)
                return source.read(end - start)
        except FileNotFoundError:
            return b""

    def time_of(self, place: int) -> float:
        """When what begins at this byte came; `UNKNOWN` where nothing was noted."""
        index = bisect_right(self.places, place) - 1
        return self.at[index] if index >= 0 else UNKNOWN


@dataclass(frozen=True, slots=True)
class _Piece:
    """Whole lines of one segment: the first one's number and place, and their bytes, the last end included."""

    segment: _Segment
    number: int
    place: int
    raw: bytes


def _pieces(segments: list[_Segment], start: int, end: int) -> list[tuple[_Segment, int, int, int]]:
    """(segment, index of a record, from byte, to byte) that together hold the lines from `start` to before `end`."""
    out = []
    for index, segment in enumerate(segments):
        following = segments[index + 1].number if index + 1 < len(segments) else None
        if (following is not None and following <= start) or segment.number >= end:
            continue
        # A line that a record counts as next may have been begun before it: the last record with fewer lines.
        record = max(0, bisect_left(segment.counts, start - segment.number) - 1)
        place = segment.places[record] if segment.places else 0
        while place < segment.size:
            later = bisect_left(segment.places, place + PIECE_BYTES)
            until = segment.places[later] if later < len(segment.places) else segment.size
            out.append((segment, record, place, until))
            record, place = later, until
    return out


def _whole_lines(segment: _Segment, record: int, place: int, until: int) -> _Piece:
    """The lines that begin between two bytes, each to its end."""
    number = segment.number + (segment.counts[record] if record < len(segment.counts) else 0)
    raw = segment.span(max(0, place - 1), until)
    if place:
        before, raw = raw[:1], raw[1:]
        if before != b"\n":
            cut = raw.find(b"\n") + 1
            if not cut:
                return _Piece(segment, number, until, b"")
            number, place, raw = number + 1, place + cut, raw[cut:]
    while raw and raw[-1:] != b"\n" and until < segment.size:
        more = segment.span(until, min(segment.size, until + MORE_BYTES))
        cut = more.find(b"\n") + 1
        raw, until = raw + (more[:cut] if cut else more), until + (cut or len(more) or MORE_BYTES)
    return _Piece(segment, number, place, raw)


def _lines_in(piece: _Piece, start: int, end: int, search: Search | None) -> Iterator[tuple[int, float, bytes]]:
    """(number, time, text) of the lines from `start` to before `end` in which the pattern is found."""
    if search is not None:
        yield from _found_in(piece, start, end, search)
        return
    place, number = piece.place, piece.number
    rows = piece.raw.split(b"\n")
    if not rows[-1]:
        rows.pop()  # after the end of the last line
    for raw in rows:
        if start <= number < end:
            yield number, piece.segment.time_of(place), raw
        place, number = place + len(raw) + 1, number + 1


def _found_in(piece: _Piece, start: int, end: int, search: Search) -> Iterator[tuple[int, float, bytes]]:
    raw, at, number = piece.raw, 0, piece.number
    while found := search(raw, at):
        begin = max(at, raw.rfind(b"\n", at, found[0]) + 1)
        stop = raw.find(b"\n", found[0])
        stop = len(raw) if stop < 0 else stop
        number += raw.count(b"\n", at, begin)
        if number >= end or begin >= len(raw):
            return
        if number >= start:
            yield number, piece.segment.time_of(piece.place + begin), raw[begin:stop]
        at, number = stop + 1, number + 1
        if at >= len(raw):
            return


def _since(segments: list[_Segment], since: float, end: int) -> int:
    """Number of the first line after the last that is known to have come earlier."""
    for segment in reversed(segments):
        old = next((i for i in range(len(segment.at) - 1, -1, -1) if UNKNOWN < segment.at[i] < since), None)
        if old is None:
            continue
        return end if old + 1 == len(segment.at) and segment is segments[-1] else _after_record(segments, segment, old)
    return segments[0].number


def _after_record(segments: list[_Segment], segment: _Segment, record: int) -> int:
    if record + 1 < len(segment.counts):
        return segment.number + segment.counts[record + 1]
    return segments[segments.index(segment) + 1].number


# Choosing


class _Chosen:
    """Lines that were chosen, with their numbers and times."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, float, str]] = []
        self.bytes = 0

    def add(self, number: int, at: float, raw: bytes) -> None:
        """One more."""
        self.rows.append((number, at, raw[:LINE_BYTES_MAX].decode("utf-8", "replace").rstrip("\r")))
        self.bytes += min(len(raw), LINE_BYTES_MAX)

    def slice(self, first: int, following: int, missed: int = 0) -> LogSlice:
        """As an answer."""
        numbers = tuple(number for number, _, _ in self.rows)
        return LogSlice(
            tuple(text for _, _, text in self.rows),
            numbers[0] if numbers else first,
            following,
            missed,
            numbers,
            tuple(at for _, at, _ in self.rows),
        )


def _forward(
    segments: list[_Segment], span: tuple[int, int], limits: Limits, search: Search | None, missed: int
) -> LogSlice:
    """From a line on, until there are enough."""
    (start, end), chosen = span, _Chosen()
    if limits.lines <= 0:
        return chosen.slice(start, start, missed)
    for place in _pieces(segments, start, end):
        for number, at, raw in _lines_in(_whole_lines(*place), start, end, search):
            chosen.add(number, at, raw)
            if len(chosen.rows) >= limits.lines or chosen.bytes >= limits.total_bytes:
                return chosen.slice(start, number + 1, missed)
    return chosen.slice(start, end, missed)


def _last(segments: list[_Segment], start: int, end: int, limits: Limits, search: Search | None) -> LogSlice:
    """The last ones of a range: piece by piece from its end."""
    parts: list[list[tuple[int, float, bytes]]] = []
    wanted, room = limits.lines, limits.total_bytes
    for place in reversed(_pieces(segments, start, end)):
        if wanted <= 0 or room <= 0:
            break
        found = list(_lines_in(_whole_lines(*place), start, end, search))[-wanted:]
        parts.append(found)
        wanted -= len(found)
        room -= sum(min(len(raw), LINE_BYTES_MAX) for _, _, raw in found)
    chosen = _Chosen()
    for row in (row for found in reversed(parts) for row in found):
        chosen.add(*row)
    return chosen.slice(start if search is not None or not chosen.rows else chosen.rows[0][0], end)


def _segments_of(folder: Path) -> list[_Segment]:
    out = []
    for number, path in _paths(folder):
        try:
            out.append(_Segment(number, path))
        except FileNotFoundError:
            continue  # rotated away while we read: what it held counts as missed
    return out


def _paths(folder: Path) -> list[tuple[int, Path]]:
    found = [(int(p.suffix[1:]), p) for p in folder.glob("log.*") if p.suffix[1:].isdigit()]
    return sorted(found)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _end_of(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as source:
            source.seek(max(0, path.stat().st_size - limit))
            return source.read(limit)
    except FileNotFoundError:
        return b""
