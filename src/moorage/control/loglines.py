"""What a log's readers get: lines, what happened between them, and in which order. Pure; called by `logtail` and
`logfollow`.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from moorage.domain.errors import InvalidSpec
from moorage.domain.nouns import Worker
from moorage.wire.agent import LogLines
from moorage.wire.patterns import check_pattern, line_search

LINES_DEFAULT, LINES_MAX = 200, 10_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, something that happened (`event`), or a sign of life (`heartbeat`).

    Args:
        kind: which of them.
        line: the text.
        worker: name of the worker it is of.
        seq: its number in that attempt's log.
        attempt: which attempt of the worker wrote it.
        at: when it came, seconds since the epoch by its machine's clock; None: not known.
    """

    kind: Literal["line", "event", "heartbeat"]
    line: str = ""
    worker: str | None = None
    seq: int | None = None
    attempt: int | None = None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class LogSubject:
    """Whose log: exactly one uid is given."""

    name: str
    deployment: str | None = None
    run: str | None = None
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What of it.

    Args:
        lines: how many of each worker's last lines to begin with; None: 200, or with `since_s` as many as there are.
        previous: of the attempt before.
        attempt: of that attempt.
        since_s: only lines of the last so many seconds.
        grep: only lines in which this regular expression is found.
        workers, ranks, groups: only these of the run's workers; empty: all.
    """

    lines: int | None = None
    previous: bool = False
    attempt: int | None = None
    since_s: float | None = None
    grep: str | None = None
    workers: frozenset[str] = field(default_factory=frozenset)
    ranks: frozenset[int] = field(default_factory=frozenset)
    groups: frozenset[str] = field(default_factory=frozenset)

    def check(self) -> None:
        """Raise `InvalidSpec` for what contradicts itself or cannot be searched for."""
        if self.previous and self.attempt is not None:
            raise InvalidSpec("both the previous and a given attempt are asked for", remedy="ask for one of them")
        if self.grep is not None:
            check_pattern(self.grep)

    @property
    def of_the_past(self) -> bool:
        """Whether an attempt is meant that is over, or may be: nothing of it is followed."""
        return self.previous or self.attempt is not None

    def count(self, workers: int = 1) -> int:
        """Lines of each worker to begin with; many workers together are given fewer each."""
        asked = self.lines if self.lines is not None else LINES_DEFAULT if self.since_s is None else LINES_MAX
        return min(asked, LINES_MAX, max(1, 20 * LINES_MAX // max(1, workers)))

    def wants(self, worker: Worker) -> bool:
        """Whether a worker is among those that are asked for."""
        named = not self.workers or worker.name in self.workers or worker.uid in self.workers
        ranked = not self.ranks or worker.rank in self.ranks
        return named and ranked and (not self.groups or worker.group in self.groups)

    @property
    def chooses(self) -> bool:
        """Whether only some workers are asked for."""
        return bool(self.workers or self.ranks or self.groups)


def shown(worker: Worker, got: LogLines, options: LogOptions, *, attempt: int, tell_missed: bool) -> list[LogLine]:
    """An answer's lines; from an agent that cannot search they are searched here."""
    numbers = got.seqs or range(got.first_seq, got.first_seq + len(got.lines))
    times = got.times or (0.0,) * len(got.lines)
    rows: Iterable[tuple[str, int, float]] = zip(got.lines, numbers, times, strict=True)
    if options.grep is not None and not got.seqs:
        search = line_search(options.grep)
        rows = [row for row in rows if search(row[0].encode(), 0) is not None]
    lines = [LogLine("line", text, worker.name, seq, attempt, at or None) for text, seq, at in rows]
    if tell_missed and got.missed:
        lines.insert(0, event(worker, f"{got.missed} lines of {worker.name} are no longer kept"))
    return lines


def recorded(worker: Worker, options: LogOptions) -> list[LogLine]:
    """The last lines that were kept with the worker's last failure; none where there was none."""
    log = str((worker.last_failure or {}).get("log") or "")
    count = options.count()
    kept = log.splitlines()[-count:] if count else []
    if options.grep is not None:
        search = line_search(options.grep)
        kept = [text for text in kept if search(text.encode(), 0) is not None]
    return [LogLine("line", text, worker.name) for text in kept]


def event(worker: Worker, text: str) -> LogLine:
    """Something that happened to a worker."""
    return LogLine("event", text, worker.name, attempt=worker.attempt)


def merged(parts: Sequence[Sequence[LogLine]]) -> list[LogLine]:
    """The lines of several workers by time. Those of one worker keep their order, whatever its clock did; what has no
    time goes with the line before it.
    """
    told = [part for part in parts if part]
    if len(told) < 2:
        return list(told[0]) if told else []
    return [line for _, line in heapq.merge(*(_timed(part) for part in told), key=lambda row: row[0])]


def _timed(part: Sequence[LogLine]) -> list[tuple[float, LogLine]]:
    out, newest = [], next((line.at for line in part if line.at is not None), 0.0)
    for line in part:
        newest = max(newest, line.at or 0.0)
        out.append((newest, line))
    return out
