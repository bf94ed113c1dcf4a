"""Reading a worker's log: the segments that the shim writes, by line number.

A segment is `log.N` with N the number of its first line, so numbers are counted, never stored. Reads are bounded by
the shim's two segments; callers on an event loop run these in a thread.
"""

from dataclasses import dataclass
from pathlib import Path

TAIL_LINES, TAIL_BYTES = 50, 16 << 10
"""What is kept with a failure (the lifecycle contract §1)."""
LINE_BYTES_MAX = 64 << 10
"""A longer line is cut in an answer: one without an end would otherwise be 16 MiB."""


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Some lines. `next_seq` is the number to go on after, plus one; `missed` lines were asked for and are gone."""

    lines: tuple[str, ...]
    first_seq: int
    next_seq: int
    missed: int = 0


def read(folder: Path, *, lines: int = 200, after: int | None = None, partial: bool = False) -> LogSlice:
    """Lines of a log.

    Args:
        folder: the worker's directory.
        lines: how many at most; without `after` the last so many.
        after: read those that follow this number.
        partial: whether a last line without its end counts (the writer has ended).
    """
    kept = _kept(folder, after)
    if not kept:
        return LogSlice((), 1 if after is None else after + 1, 1 if after is None else after + 1)
    first, texts = kept[0][0], []
    for _, raw in kept:
        texts.extend(raw.split(b"\n"))
        rest = texts.pop()
        if rest and (raw is not kept[-1][1] or partial):
            texts.append(rest)
    end = first + len(texts)
    start = max(first, end - lines) if after is None else max(first, min(after + 1, end))
    chosen = texts[start - first : start - first + lines]
    missed = 0 if after is None else max(0, first - (after + 1))
    shown = tuple(t[:LINE_BYTES_MAX].decode("utf-8", "replace").rstrip("\r") for t in chosen)
    return LogSlice(shown, start, start + len(shown), missed)


def tail(folder: Path, *, lines: int = TAIL_LINES, limit: int = TAIL_BYTES) -> str:
    """The last lines as one text of at most `limit` bytes, cut at the front."""
    raw = b""
    for _, path in reversed(_segments(folder)):
        raw = _end_of(path, limit - len(raw)) + raw
        if len(raw) >= limit:
            break
    return b"\n".join(raw.rstrip(b"\n").split(b"\n")[-lines:])[-limit:].decode("utf-8", "replace")


def size(folder: Path) -> int:
    """A number that grows whenever something is logged: the newest segment's first line and its bytes."""
    found = _segments(folder)
    if not found:
        return 0
    number, path = found[-1]
    try:
        return number * (32 << 20) + path.stat().st_size
    except FileNotFoundError:
        return number * (32 << 20)


def _segments(folder: Path) -> list[tuple[int, Path]]:
    found = [(int(p.suffix[1:]), p) for p in folder.glob("log.*") if p.suffix[1:].isdigit()]
    return sorted(found)


def _kept(folder: Path, after: int | None) -> list[tuple[int, bytes]]:
    """Number of the first line and content of the segments that matter."""
    found = _segments(folder)
    if after is not None:
        while len(found) > 1 and found[1][0] <= after + 1:
            found.pop(0)
    out = []
    for number, path in found:
        try:
            out.append((number, path.read_bytes()))
        except FileNotFoundError:
            continue  # rotated away while we read: what it held counts as missed
    return out


def _end_of(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as source:
            source.seek(max(0, path.stat().st_size - limit))
            return source.read(limit)
    except FileNotFoundError:
        return b""
