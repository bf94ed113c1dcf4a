"""One scheduling cycle, a pure function of a book and the time.

1. order: units by priority, then submission time (`order`, kept in columns by `queued`; `line`)
2. keep: room of restarting work, and room that others were stopped for (`reserve`); what would exceed the quota of its
   namespace waits, and blocks nobody (`quota`)
3. feasible, score, gang: each unit where it fits best, whole or not at all (`gang`)
4. reserve: the first unit that fits once running work has ended is the head; its room is kept (`reserve`)
5. backfill: what comes after it takes what the head does not need, or ends before the head starts (`assign`)
6. preempt: or work of lower priority is stopped for it (`preempt`)
7. explain: everybody else is told why not (`explain`, written by `writes`)

`assign` walks the queue through steps 2 to 6. Called by `control/scheduling`; `why` and simulations call it with
changed books.
"""

from dataclasses import dataclass

from moorage.decide.scheduling.assign import Outcome, decide
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.snapshot import SchedulingSnapshot
from moorage.decide.scheduling.writes import ACTOR, changes
from moorage.domain.changes import Change, Fence

__all__ = ["ACTOR", "Cycle", "run_cycle", "schedule"]


@dataclass(frozen=True, slots=True)
class Cycle:
    """Result of a cycle: a change for each unit that is placed or newly explained, and the next deadline."""

    changes: tuple[Change, ...]
    wake_at: float | None
    outcome: Outcome


def run_cycle(book: Book, now: float, fence: Fence | None = None) -> Cycle:
    """Decide, and say what to write."""
    outcome = decide(book, now)
    return Cycle(changes(book, outcome, now, fence), outcome.wake_at, outcome)


def schedule(snapshot: SchedulingSnapshot, fence: Fence | None = None) -> Cycle:
    """The same from a snapshot; builds a book of it first."""
    return run_cycle(Book.of(snapshot), snapshot.now, fence)
