"""Walks the queue once and gives room to whom it is due; everybody else gets what they wait for. The heart of a cycle.

The steps and their order are in `cycle`. A unit that fits nowhere even when running work has ended blocks nobody: it is
no head. One plan of preemption is made a cycle, so that each sees what the one before it left.
"""

from dataclasses import dataclass, field
from enum import Enum

from moorage.decide.scheduling import preempt, reserve
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.feasible import takes, with_fabric
from moorage.decide.scheduling.gang import Finder, Found
from moorage.decide.scheduling.holders import NEVER, START_S, UNKNOWN, Ending, is_service
from moorage.decide.scheduling.ledger import Ledger, Spot
from moorage.decide.scheduling.order import Entry, Unit, units
from moorage.decide.scheduling.reserve import Head, Reservation
from moorage.decide.scheduling.score import Mix
from moorage.decide.scheduling.snapshot import Request
from moorage.domain.states import WorkerState

TRIES_MAX = 32
"""Different kinds of units for which room in the future, or victims, are looked for in one cycle. What comes after them
waits a cycle longer for its reservation; each look simulates the fleet some twenty times."""


class Why(Enum):
    """What a unit waits for."""

    ROOM = "room"
    """it fits nowhere, and nothing that ends by itself would change that"""
    HEAD = "head"
    BEHIND = "behind"
    """there is none left for it beside the head"""
    STOPPING = "stopping"
    """others are being stopped for it, as of this cycle"""
    PLANNED = "planned"
    """others were stopped for it and are not gone yet"""
    FABRIC = "fabric"
    """only its patience keeps it waiting"""


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """A unit that waits.

    Args:
        until: when this wait ends at the latest, where that is known.
        behind: the head it waits behind.
        plan: whom it has stopped.
        left: how many of those are not gone.
    """

    unit: Unit
    why: Why
    until: float | None = None
    behind: Unit | None = None
    plan: preempt.Plan | None = None
    left: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a cycle decides.

    Args:
        placed: units with their room.
        waits: the others, in order.
        wake_at: when to run again even if nothing happens.
        ledger: what is left free, the head's and all other kept room taken out.
        head: the next to run.
    """

    placed: tuple[Found, ...]
    waits: tuple[Wait, ...]
    wake_at: float | None
    ledger: Ledger
    head: Head | None = None


def decide(book: Book, now: float) -> Outcome:
    """Place what fits, and say what everything else waits for."""
    line = units(book.queue, book.holders.by_run, now)
    work = _Pass(book, now, Ledger(book.fleet), _mix(book, line.units))
    work.keep()
    if line.wake_at is not None:
        work.deadlines.append(line.wake_at)
    for unit in line.units:
        work.look(unit)
    later = [at for at in work.deadlines if at > now]
    return Outcome(tuple(work.placed), tuple(work.waits), min(later, default=None), work.far.ledger, work.head)


def _mix(book: Book, line: tuple[Unit, ...]) -> Mix:
    counts: dict[Request, int] = dict(book.holders.mix)
    waiting: dict[int, tuple[Request, int]] = {}
    for unit in line:
        for entry in unit.members:
            request, count = waiting.get(id(entry.ask)) or (entry.ask.request, 0)
            waiting[id(entry.ask)] = (request, count + 1)
    for request, count in waiting.values():
        counts[request] = counts.get(request, 0) + count
    return Mix.of(counts.items())


Signature = tuple[object, ...]


@dataclass(slots=True)
class _Pass:
    """The state of one cycle."""

    book: Book
    now: float
    ledger: Ledger
    mix: Mix
    near: Finder = field(init=False)
    """for what ends before the head starts"""
    far: Finder = field(init=False)
    """for everything else: the head's room is taken out"""
    head: Head | None = None
    placed: list[Found] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)
    _kept: dict[str, list[Reservation]] = field(default_factory=dict)
    _unplaced: set[str] = field(default_factory=set)
    """runs whose gang did not get its places"""
    _hopeless: set[Signature] = field(default_factory=set)
    _tries: int = 0
    _planned: bool = False
    _ends: list[tuple[float, Spot]] = field(default_factory=list)
    _future: tuple[Ledger, dict[Signature, bool]] | None = None

    def __post_init__(self) -> None:
        self.near = self.far = Finder(self.ledger, self.mix)

    # Keep

    def keep(self) -> None:
        """Take out of the ledger what is kept for somebody."""
        entries = list(self.book.queue)
        planned = reserve.planned(self.ledger, (e for e in entries if e.worker.placement), self.now)
        wanted = [
            *reserve.restarts(entries, self.now),
            *reserve.vacated(self.book.ended.values(), self.book.retry_at, self.now),
        ]
        for kept in [*planned, *reserve.keep(self.ledger, wanted)]:
            self._kept.setdefault(kept.owner, []).append(kept)
            self.deadlines.append(kept.until)

    # One unit

    def look(self, unit: Unit) -> None:
        """Place a unit, or note what it waits for."""
        if unit.beyond and unit.run.uid in self._unplaced:
            self.waits.append(Wait(unit, Why.ROOM))
            return
        own = self._give_back(unit)
        found = self._own_place(unit, own) or self._fits_beside(unit)
        if isinstance(found, list):
            self.placed.append(found)
            self._ends += [(self._end_of(entry), spot) for entry, spot in found]
            return
        for kept in own:
            self.ledger.take(kept.spot)
            if self.far is not self.near:
                self.far.ledger.take(kept.spot)
        if unit.gang:
            self._unplaced.add(unit.run.uid)
        wait = found or self._wait(unit)
        self.waits.append(wait)
        if wait.until is not None:
            self.deadlines.append(wait.until)

    def _give_back(self, unit: Unit) -> list[Reservation]:
        own: list[Reservation] = []
        for entry in unit.members:
            own += self._kept.get(entry.worker.uid, ())
            replacement = self._kept.get(entry.worker.deployment or "")
            if replacement:
                own.append(replacement.pop())
        for kept in own:
            self.ledger.give(kept.spot)
            if self.far is not self.near:
                self.far.ledger.give(kept.spot)
        return own

    def _own_place(self, unit: Unit, own: list[Reservation]) -> Found | None:
        """Exactly the room that was kept for each member."""
        if not own or len(own) != len(unit.members):
            return None
        taken: Found = []
        for entry, kept in zip(unit.members, own, strict=True):
            row = kept.spot.row
            apart = row in self.ledger.rows_of_any(entry.apart)
            if apart or not takes(self.book.fleet, entry.ask)[row] or not self.ledger.fits(entry.ask, row):
                for earlier, spot in taken:
                    self._undo(earlier, spot)
                return None
            spot = self._exactly(entry, kept)
            self._take(entry, spot)
            taken.append((entry, spot))
        return taken

    def _exactly(self, entry: Entry, kept: Reservation) -> Spot:
        request, row = entry.ask.request, kept.spot.row
        same = kept.spot.gpus & int(self.ledger.gpus[row] & self.book.fleet.kind(request)[row])
        if same.bit_count() == request.gpus:
            return Spot(row, same, request.cpu_milli, request.memory_bytes)
        return self.ledger.spot(entry.ask, row)

    def _take(self, entry: Entry, spot: Spot) -> None:
        self.ledger.take(spot, entry.owners)
        if self.far is not self.near:
            self.far.ledger.take(spot, entry.owners)

    def _undo(self, entry: Entry, spot: Spot) -> None:
        self.ledger.give(spot, entry.owners)
        if self.far is not self.near:
            self.far.ledger.give(spot, entry.owners)

    # Backfill

    def _fits_beside(self, unit: Unit) -> Found | Wait | None:
        """Room that the head does not need; or any, for what ends before the head starts."""
        found = self._search(self.far, unit)
        other: Finder | None = self.near
        if not isinstance(found, list) and self._ends_before_head(unit):
            found, other = self._search(self.near, unit), self.far
        if isinstance(found, list) and self.near is not self.far and other is not None:
            for entry, spot in found:
                other.ledger.take(spot, entry.owners)
        return found

    def _ends_before_head(self, unit: Unit) -> bool:
        if self.head is None or self.head.start is None:
            return False
        ends = [self._end_of(entry) for entry in unit.members]
        return all(end <= self.head.start for end in ends)  # False where an end is NEVER

    def _end_of(self, entry: Entry) -> float:
        if is_service(entry.run):
            return NEVER
        return UNKNOWN if entry.limit_s is None else self.now + START_S + entry.limit_s

    def _search(self, finder: Finder, unit: Unit) -> Found | Wait | None:
        topology = unit.first.topology
        if topology is None or topology.fabric is None:
            return finder.unit(unit)
        found = finder.unit(unit, with_fabric(self.book.fleet, topology))
        if found is not None or topology.required:
            return found
        until = unit.first.worker.queued_at + topology.patience_s
        if self.now >= until:
            return finder.unit(unit)
        if Finder(finder.ledger.copy(), self.mix).unit(unit) is None:
            return None
        return Wait(unit, Why.FABRIC, until)

    # Reserve, preempt

    def _wait(self, unit: Unit) -> Wait:
        left = self._stopping_for(unit)
        if left:
            return Wait(unit, Why.PLANNED, left=left)
        signature = signature_of(unit)
        if self.head is not None or self._tries >= TRIES_MAX or signature in self._hopeless:
            return self._behind(unit, signature)
        self._tries += 1
        made = None if self._planned else preempt.plan(unit, self.ledger, self.book.holders, self.mix)
        if made is not None:
            self._planned = True
            for _, spot in made.room:
                self.ledger.take(_free_part(self.ledger, spot))
            return Wait(unit, Why.STOPPING, plan=made)
        ending = self._ending()
        head = reserve.reserve_for(unit, self.ledger, ending, self.mix)
        if head is None:
            self._hopeless.add(signature)
            return Wait(unit, Why.ROOM)
        self.head = head
        self.far = Finder(self.ledger.copy(), self.mix)
        reserve.withhold(self.far.ledger, head, ending)
        return Wait(unit, Why.HEAD, head.start)

    def _ending(self) -> Ending:
        return self.book.holders.ending(self.now, self._ends)

    def _stopping_for(self, unit: Unit) -> int:
        """How many of those stopped for this unit still hold room."""
        plans = (reserve.plan_of(e.worker, self.now) for e in unit.members)
        victims = {str(uid) for p in plans if p is not None for uid in p["victims"]}
        held = (self.book.holders.get(uid) for uid in victims)
        return sum(1 for h in held if h is not None and h.worker.state is WorkerState.STOPPING)

    def _behind(self, unit: Unit, signature: Signature) -> Wait:
        if self.head is None:
            return Wait(unit, Why.ROOM)
        if self._future is None:
            ending = self._ending()
            self._future = (ending.after(self.ledger, len(ending)), {})
        future, known = self._future
        if signature not in known:
            known[signature] = reserve.could_take(future, unit)
        return Wait(unit, Why.BEHIND, behind=self.head.unit) if known[signature] else Wait(unit, Why.ROOM)


def signature_of(unit: Unit) -> Signature:
    """What makes two units alike for the question whether they fit."""
    first = unit.first
    apart = (first.owner, *first.apart) if first.apart or first.topology is not None else None
    if len(unit.members) == 1:
        return (id(first.ask), apart, first.topology, unit.priority)
    counts: dict[int, int] = {}
    for entry in unit.members:
        counts[id(entry.ask)] = counts.get(id(entry.ask), 0) + 1
    return (*counts.items(), apart, first.topology, unit.priority)


def _free_part(ledger: Ledger, spot: Spot) -> Spot:
    """Of a spot that is not all free yet, what is to be kept now."""
    return Spot(spot.row, spot.gpus & int(ledger.gpus[spot.row]), spot.cpu_milli, spot.memory_bytes)
