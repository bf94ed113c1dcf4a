"""Walks the queue once and gives room to whom it is due; everybody else gets what they wait for. The heart of a cycle.

The steps and their order are in `cycle`. A unit that fits nowhere even when running work has ended blocks nobody: it is
no head. One plan of preemption is made a cycle, so that each sees what the one before it left.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from moorage.decide.scheduling import bulk, preempt, reserve
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.bulk import BULK_MIN, Fill
from moorage.decide.scheduling.feasible import takes, with_fabric
from moorage.decide.scheduling.fleet import Bools, Ints
from moorage.decide.scheduling.gang import Finder, Found
from moorage.decide.scheduling.holders import NEVER, START_S, UNKNOWN, Ending, is_service
from moorage.decide.scheduling.ledger import Ledger, Spot
from moorage.decide.scheduling.line import Line, Way, line_of
from moorage.decide.scheduling.order import Entry, Unit
from moorage.decide.scheduling.policies import Policy
from moorage.decide.scheduling.quota import Budget
from moorage.decide.scheduling.reserve import Head, Reservation, Signature
from moorage.decide.scheduling.score import Mix
from moorage.decide.scheduling.waiting import Outcome, Same, Wait, Waits, Why
from moorage.domain.states import WorkerState

__all__ = ["TRIES_MAX", "Outcome", "Wait", "Why", "decide"]

TRIES_MAX = 32
"""Different kinds of units for which room in the future, or victims, are looked for in one cycle. What comes after them
waits a cycle longer for its reservation; each look simulates the fleet some twenty times."""


def decide(book: Book, now: float, policy: Policy = Policy.FGD, draw: int = 0) -> Outcome:
    """Place what fits, and say what everything else waits for; `policy` and its `draw` are for comparisons."""
    work = begin(book, now, policy, draw)
    work.walk()
    return work.outcome()


def begin(book: Book, now: float, policy: Policy = Policy.FGD, draw: int = 0) -> "Pass":
    """A cycle that has looked at nobody yet."""
    line = line_of(book.queue, book.holders.by_run, now)
    work = Pass(book, now, line, Ledger(book.fleet), Mix.of(book.requests().items(), policy, draw))
    work.keep()
    work.budget.settle(line)
    if line.wake_at is not None:
        work.deadlines.append(line.wake_at)
    return work


@dataclass(slots=True)
class Pass:
    """The state of one cycle."""

    book: Book
    now: float
    line: Line
    """whom it is to look at"""
    ledger: Ledger
    mix: Mix
    near: Finder = field(init=False)
    """for what ends before the head starts"""
    far: Finder = field(init=False)
    """for everything else: the head's room is taken out"""
    head: Head | None = None
    placed: list[Found] = field(default_factory=list)
    fills: list[Fill] = field(default_factory=list)
    waits: Waits = field(init=False)
    deadlines: list[float] = field(default_factory=list)
    budget: Budget = field(init=False)
    _kept: dict[str, list[Reservation]] = field(default_factory=dict)
    _unplaced: set[str] = field(default_factory=set)
    """runs whose gang did not get its places"""
    _like: Ints = field(init=False)
    """by number of workers alike: which of `waits.known` they wait for; -1: not known"""
    _hurried: Bools = field(init=False)
    """by the same: whether the head's own room may do for those that end early"""
    _places: Ints = field(init=False)
    """0, 1, 2, …: places in the line"""
    _hopeless: set[Signature] = field(default_factory=set)
    _tries: int = 0
    _planned: bool = False
    _ends: list[tuple[float, Spot]] = field(default_factory=list)
    _ending_then: tuple[tuple[int, int], Ending] | None = None
    _future: tuple[Ledger, dict[Signature, bool]] | None = None

    def __post_init__(self) -> None:
        self.near = self.far = Finder(self.ledger, self.mix)
        self.budget = Budget.of(self.book.fleet, self.book.limits, self.book.usage)
        self.waits = Waits(self.line)
        self._like = np.full(len(self.line.alikes), -1)
        self._hurried = np.zeros(len(self.line.alikes), np.bool_)
        self._places = np.arange(len(self.line.units))

    def copy(self) -> "Pass":
        """Another one at the same point; what it goes on to do changes nothing here."""
        other = Pass(self.book, self.now, self.line, self.ledger.copy(), self.mix)
        other.near = self.near.on(other.ledger)
        other.far = other.near if self.far is self.near else self.far.on(self.far.ledger.copy())
        other.head, other.budget = self.head, self.budget.copy()
        other.placed, other.fills, other._ends = list(self.placed), list(self.fills), list(self._ends)
        other.waits, other.deadlines = self.waits.copy(), list(self.deadlines)
        other._kept = {owner: list(kept) for owner, kept in self._kept.items()}
        other._unplaced, other._hopeless = set(self._unplaced), set(self._hopeless)
        other._like, other._hurried = self._like.copy(), self._hurried.copy()
        other._tries, other._planned, other._ending_then = self._tries, self._planned, self._ending_then
        if self._future is not None:
            other._future = (self._future[0], dict(self._future[1]))
        return other

    def outcome(self) -> Outcome:
        """What was decided so far."""
        later = min((at for at in self.deadlines if at > self.now), default=None)
        done = tuple(self.placed), tuple(self.fills), self.waits
        return Outcome(*done, later, self.far.ledger, self.head)

    # Keep

    def keep(self) -> None:
        """Take out of the ledger what is kept for somebody."""
        for kept in reserve.all_kept(self.book, self.ledger, self.now):
            self._kept.setdefault(kept.owner, []).append(kept)
            self.budget.take(kept.namespace, kept.claim)
            self.deadlines.append(kept.until)

    # The queue

    def walk(self, end: int | None = None) -> None:
        """Every unit in its turn, or those before a place; workers alike that wait are told so at once."""
        end = len(self.line.units) if end is None else end
        for at, stop, way in self.line.stretches(end, self.budget.limits):
            if way is Way.APART:
                for unit in self.line.units[at:stop]:
                    self.look(unit)
            else:
                self._walk_alike(at, stop, bulk=way is Way.FREE)

    def _walk_alike(self, at: int, end: int, *, bulk: bool) -> None:
        """The first alone; if it fits, in bulk as far as all fit; and again without those that nothing is left for."""
        while (at := at + self._past_known(self._places[at:end])) < end:
            unit = self.line.units[at]
            self._look_alike(at)
            at += 1
            if bulk and id(unit.members[0].ask) not in self.far.spent and end - at >= BULK_MIN:
                at = self._in_bulk(at, end)

    def _look_alike(self, at: int) -> None:
        """Look at one, and note what all alike wait for: room only shrinks, and who has no reservation gets none."""
        unit, number = self.line.units[at], int(self.line.alike[at])
        self.look(unit)
        wait = self.waits.last
        if wait is None or wait.unit is not unit or wait.why not in (Why.ROOM, Why.BEHIND, Why.QUOTA):
            return
        self._like[number] = len(self.waits.known)
        self.waits.known.append(wait)
        self._hurried[number] = wait.why is not Why.QUOTA and id(unit.members[0].ask) not in self.near.spent

    def _past_known(self, places: Ints) -> int:
        """How many, from the first on, wait for what is known; they are told so."""
        self._forget_moved()
        at, some = 0, BULK_MIN
        while at < len(places):
            here = places[at : at + some]
            like = self._like[self.line.alike[here]]
            known = (like >= 0) & ~self._may_end_before_head(here)
            count = len(known) if known.all() else int(known.argmin())
            if count:
                self.waits.extend(Same(here[:count], like[:count]))
            at += count
            if count < len(known):
                break
            some *= 4
        return at

    def _may_end_before_head(self, places: Ints) -> Bools:
        """For whom the head's own room is to be tried."""
        if self.head is None or self.head.start is None:
            return np.zeros(len(places), np.bool_)
        slack = self.head.start - self.now - START_S
        found: Bools = self._hurried[self.line.alike[places]] & (self.line.limit[places] <= slack)
        return found

    def _forget_moved(self) -> None:
        """Of a namespace that holds more than it did, what its work waits for is to be found anew."""
        if not self.budget.moved:
            return
        for number, alike in enumerate(self.line.alikes):
            if alike is not None and alike.namespace in self.budget.moved:
                self._like[number] = -1
        self.budget.moved.clear()

    def _in_bulk(self, at: int, end: int) -> int:
        """Place what fits of the units that follow; returns where to go on."""
        left = np.array([one is not None and id(one.ask) not in self.far.spent for one in self.line.alikes])
        places = self._places[at:end]
        open_ = left[self.line.alike[places]]
        rest = places[open_]
        fills, count = bulk.place(self.far.ledger, self.line, rest, self.mix)
        if not count:
            return at
        self.fills += fills
        if self.near is not self.far:
            for found in (one for fill in fills for one in fill.found()):
                for entry, spot in found:
                    self.near.ledger.take(spot, entry.owners)
        stop = int(rest[count]) if count < len(rest) else end
        spent = places[: stop - at][~open_[: stop - at]]
        while (passed := self._past_known(spent)) < len(spent):
            self._look_alike(int(spent[passed]))
            spent = spent[passed + 1 :]
        return stop

    # One unit

    def look(self, unit: Unit) -> None:
        """Place a unit, or note what it waits for."""
        if unit.beyond and unit.run.uid in self._unplaced:
            self.waits.append(Wait(unit, Why.ROOM))
            return
        own = self._give_back(unit) if self._kept else []
        fitting = self.budget.within(unit)
        found: Found | Wait | None = None
        if isinstance(fitting, Unit):
            found = self._own_place(fitting, own) or self._fits_beside(fitting)
        if isinstance(found, list):
            self.placed.append(found)
            self._ends += [(self._end_of(entry), spot) for entry, spot in found]
            self._count(found)
            return
        for kept in own:
            self._on_both(kept.spot, take=True)
            self.budget.take(kept.namespace, kept.claim)
        if unit.gang:
            self._unplaced.add(unit.run.uid)
        wait = (found or self._wait(fitting)) if isinstance(fitting, Unit) else Wait(unit, Why.QUOTA, full=fitting)
        self.waits.append(wait if wait.unit is unit else replace(wait, unit=unit))
        if wait.until is not None:
            self.deadlines.append(wait.until)

    def _on_both(self, spot: Spot, owners: Sequence[str] = (), *, take: bool) -> None:
        for ledger in {id(finder): finder.ledger for finder in (self.near, self.far)}.values():
            (ledger.take if take else ledger.give)(spot, owners)

    def _give_back(self, unit: Unit) -> list[Reservation]:
        own: list[Reservation] = []
        for entry in unit.members:
            own += self._kept.get(entry.worker.uid, ())
            replacement = self._kept.get(entry.worker.deployment or "")
            if replacement:
                own.append(replacement.pop())
        for kept in own:
            self._on_both(kept.spot, take=False)
            self.budget.take(kept.namespace, kept.claim, -1)
        return own

    def _count(self, found: Found) -> None:
        for entry, spot in found:
            self.budget.take(entry.run.namespace, spot)

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
                    self._on_both(spot, earlier.owners, take=False)
                return None
            spot = self._exactly(entry, kept)
            self._on_both(spot, entry.owners, take=True)
            taken.append((entry, spot))
        return taken

    def _exactly(self, entry: Entry, kept: Reservation) -> Spot:
        request, row = entry.ask.request, kept.spot.row
        same = kept.spot.gpus & int(self.ledger.gpus[row] & self.book.fleet.kind(request)[row])
        if same.bit_count() == request.gpus:
            return Spot(row, same, request.cpu_milli, request.memory_bytes)
        return self.ledger.spot(entry.ask, row)

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
        if self.head is None or self.head.start is None or unit.members[0].limit_s is None:
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
        entry = unit.members[0]
        signature = (id(entry.ask), unit.priority) if entry.plain else reserve.signature_of(unit)
        if self.head is not None or self._tries >= TRIES_MAX or signature in self._hopeless:
            return self._behind(unit, signature)
        self._tries += 1
        made = None if self._planned else preempt.plan(unit, self.ledger, self.book.holders, self.mix)
        if made is not None:
            self._planned = True
            self._count(made.room)
            for _, spot in made.room:
                self.ledger.take(_free_part(self.ledger, spot))
            return Wait(unit, Why.STOPPING, plan=made)
        ending = self._ending()
        head = reserve.reserve_for(unit, self.ledger, ending, self.mix)
        if head is None:
            self._hopeless.add(signature)
            return Wait(unit, Why.ROOM)
        self.head = head
        self._count(head.room)
        self.far = Finder(self.ledger.copy(), self.mix, spent=set(self.near.spent))
        reserve.withhold(self.far.ledger, head, ending)
        return Wait(unit, Why.HEAD, head.start)

    def _ending(self) -> Ending:
        then = (len(self._ends), len(self.fills))
        if self._ending_then is None or self._ending_then[0] != then:
            filled = (found[0] for fill in self.fills for found in fill.found())
            ends = [(self._end_of(entry), spot) for entry, spot in filled]
            self._ending_then = then, self.book.holders.ending(self.now, [*self._ends, *ends])
        return self._ending_then[1]

    def _stopping_for(self, unit: Unit) -> int:
        """How many of those stopped for this unit still hold room."""
        if not any(e.worker.uid in self.book.queue.keeping for e in unit.members):
            return 0
        plans = (reserve.plan_of(e.worker, self.now) for e in unit.members)
        victims = {str(uid) for p in plans if p is not None for uid in p["victims"]}
        held = (self.book.holders.get(uid) for uid in victims)
        return sum(1 for h in held if h is not None and h.worker.state is WorkerState.STOPPING)

    def _behind(self, unit: Unit, signature: Signature) -> Wait:
        if self.head is None:
            return Wait(unit, Why.ROOM)
        if signature in self._hopeless:
            return Wait(unit, Why.ROOM)
        if self._future is None:
            ending = self._ending()
            self._future = (ending.after(self.ledger, len(ending)), {})
        future, known = self._future
        if signature not in known:
            known[signature] = reserve.could_take(future, unit)
        return Wait(unit, Why.BEHIND, behind=self.head.unit) if known[signature] else Wait(unit, Why.ROOM)


def _free_part(ledger: Ledger, spot: Spot) -> Spot:
    """Of a spot that is not all free yet, what is to be kept now."""
    return Spot(spot.row, spot.gpus & int(ledger.gpus[spot.row]), spot.cpu_milli, spot.memory_bytes)
