"""A cycle up to one unit's turn, for questions about it: what comes after it in the queue decides nothing about it.

A change to the unit that leaves its place in the queue is tried at that point: all that is before it goes on as it did,
unless the change alters how machines are scored; then the cycle is run again. Called by `whatif` and `moor why`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from moorage.decide.scheduling.assign import Outcome, Pass, begin
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.gang import Found
from moorage.decide.scheduling.order import Entry, Unit
from moorage.decide.scheduling.queued import Queue
from moorage.decide.scheduling.score import Mix
from moorage.domain.nouns import Run, Worker


@dataclass(slots=True)
class Turn:
    """A unit's turn in a cycle.

    Args:
        before: the cycle when all before it were looked at.
        unit: what has its turn; a worker that may not be placed now is a unit alone.
        waits: it did not get its place, or may not be placed.
    """

    book: Book
    now: float
    before: Pass
    unit: Unit
    eligible: bool

    @staticmethod
    def of(book: Book, now: float, uid: str) -> "Turn | None":
        """The turn of a waiting worker; None: it does not wait."""
        entry = book.queue.get(uid)
        if entry is None:
            return None
        work = begin(book, now)
        at = work.line.place_of(entry)
        if at is None:
            return Turn(book, now, work, Unit((entry,)), False)
        work.walk(at)
        return Turn(book, now, work, work.line.units[at], True)

    def outcome(self) -> Outcome:
        """What the cycle decides about the unit and all before it."""
        work = self.before.copy()
        if self.eligible:
            work.look(self.unit)
        return work.outcome()

    def with_changes(self, members: Sequence[tuple[Worker, Run]]) -> Found | None:
        """The place it gets when these rows are so, its members' first; None: it waits.

        Their place in the queue is the same as before.
        """
        if not self.eligible:
            return None
        queue = Queue(pools=self.book.queue.pools)
        for worker, run in members:
            queue.put(worker, run)
        changed = [entry for worker, _ in members if (entry := queue.get(worker.uid)) is not None]
        if len(members) > len(self.unit.members) or self._mix(changed) != self.before.mix:
            whole = self.book.queue.copy()
            for worker, run in members:
                whole.put(worker, run)
            return placed_by_turn(replace(self.book, queue=whole), self.now, self.unit.first.worker.uid)
        work = self.before.copy()
        work.look(replace(self.unit, members=tuple(changed)))
        return found_for(work.outcome(), self.unit.first.worker.uid)

    def _mix(self, changed: Sequence[Entry]) -> Mix:
        counts = self.book.requests()
        for entry in self.unit.members:
            counts[entry.ask.request] -= 1
        for entry in changed:
            counts[entry.ask.request] = counts.get(entry.ask.request, 0) + 1
        return Mix.of((request, count) for request, count in counts.items() if count)


def placed_by_turn(book: Book, now: float, uid: str) -> Found | None:
    """The place that a worker, and whom it is placed with, gets in a cycle."""
    turn = Turn.of(book, now, uid)
    return None if turn is None or not turn.eligible else found_for(turn.outcome(), uid)


def found_for(outcome: Outcome, uid: str) -> Found | None:
    """The room that an outcome gives to this worker, and to whom it is placed with."""
    return next((found for found in outcome.placed if any(e.worker.uid == uid for e, _ in found)), None)
