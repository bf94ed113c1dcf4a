"""Finds room for a unit, all of it or nothing, and takes it from the ledger.

Workers alike are placed together: the machines that fit are scored once, and each is filled before the next. Rules
about how machines lie to each other (kept on one machine or in one rack, at most so many machines, one worker a rack)
choose among the machines that fit; they never make one fit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from moorage.decide.scheduling.feasible import mask
from moorage.decide.scheduling.fleet import Bools, Ints
from moorage.decide.scheduling.ledger import Ledger, Spot
from moorage.decide.scheduling.order import Entry, Unit
from moorage.decide.scheduling.score import NOWHERE, Mix, fit_keys, keys
from moorage.decide.scheduling.snapshot import Ask, Topology

Found = list[tuple[Entry, Spot]]


@dataclass(slots=True)
class Finder:
    """Finds room in one ledger.

    Args:
        ledger: what is free; taken from when room is found.
        mix: the work the cluster sees, for scores.
    """

    ledger: Ledger
    mix: Mix
    _walks: dict[int, tuple[list[int], int]] = field(default_factory=dict)
    """by ask: the machines that fitted when it was first asked, best first, and how far they are used up. Within a
    cycle room only shrinks, so what did not fit once is never looked at again."""
    spent: set[int] = field(default_factory=set)
    """asks for which no machine is left in this cycle"""

    def on(self, ledger: Ledger) -> "Finder":
        """The same, with what it knows, on a copy of its ledger."""
        return Finder(ledger, self.mix, dict(self._walks), set(self.spent))

    def alone(self, entry: Entry) -> Spot | None:
        """Room for one worker without rules about other machines."""
        if entry.apart:
            found = self._fill(_Search(entry.ask, 1, (entry,), entry.apart))
            return found[0] if found else None
        rows, at = self._walks.get(id(entry.ask)) or (self._ranked(entry.ask), 0)
        while at < len(rows) and not self.ledger.fits(entry.ask, rows[at]):
            at += 1
        self._walks[id(entry.ask)] = (rows, at)
        if at == len(rows):
            self.spent.add(id(entry.ask))
            return None
        spot = self.ledger.spot(entry.ask, rows[at])
        self.ledger.take(spot, entry.owners)
        return spot

    def _ranked(self, ask: Ask) -> list[int]:
        key = fit_keys(self.ledger, ask, self.mix)
        rows = np.flatnonzero(key < NOWHERE)
        ranked: list[int] = rows[np.argsort(key[rows])].tolist() if len(rows) else []
        return ranked

    def unit(self, unit: Unit, within: Bools | None = None) -> Found | None:
        """Room for a whole unit.

        Args:
            within: only these machines.
        """
        topology = unit.first.topology
        if len(unit.members) == 1 and topology is None and within is None:
            if id(unit.first.ask) in self.spent:
                return None
            spot = self.alone(unit.first)
            return None if spot is None else [(unit.first, spot)]
        if topology is None or topology.keep is None:
            return self._whole(unit, topology, within)
        for domain in self._domains(unit, topology, within):
            found = self._whole(unit, topology, domain)
            if found is not None:
                return found
        return None

    def _domains(self, unit: Unit, topology: Topology, within: Bools | None) -> Iterator[Bools]:
        """The machines, or racks, on which the run could be kept: where it is already, else the fullest that may do."""
        fleet = self.ledger.fleet
        names = np.arange(fleet.height) if topology.keep == "machine" else fleet.racks
        used = {int(names[row]) for row in self.ledger.rows_of(unit.first.owner)} - {
            0 if topology.keep == "rack" else -1
        }
        if used:
            for name in sorted(used):
                yield _and(names == name, within)
            return
        first = next(_alike(unit.members))
        fits = _and(mask(self.ledger, first.ask, first.apart), within)
        if topology.keep == "rack":
            fits &= names > 0
        rows = np.flatnonzero(fits)
        counts = self.ledger.how_many(first.ask, rows, first.count)
        sums = np.bincount(names[rows], weights=counts, minlength=int(names.max(initial=0)) + 1)
        enough = np.flatnonzero(sums >= first.count)
        for name in enough[np.argsort(sums[enough], kind="stable")]:
            yield _and(names == name, within)

    def _whole(self, unit: Unit, topology: Topology | None, within: Bools | None) -> Found | None:
        taken: Found = []
        for search in _alike(unit.members, topology, within):
            spots = self._fill(search, [spot.row for _, spot in taken])
            if spots is None:
                for entry, spot in taken:
                    self.ledger.give(spot, entry.owners)
                return None
            taken += zip(search.entries, spots, strict=True)
        return taken

    def _fill(self, search: "_Search", rows_now: Sequence[int] = ()) -> list[Spot] | None:
        """Spots for so many workers alike, taken from the ledger; None, and nothing taken, when there is no room."""
        ledger, ask = self.ledger, search.ask
        key = fit_keys(ledger, ask, self.mix)
        taken = ledger.rows_of_any(search.apart) if search.apart else []
        if taken or search.within is not None:
            key = key.copy() if search.within is None else np.where(search.within, key, NOWHERE)
            key[taken] = NOWHERE
        rows = self._candidates(search, key, rows_now)
        each = 1 if search.apart or search.one_per_rack else search.count
        room = ledger.how_many(ask, rows, each)
        if search.machines_max is not None:
            at = _roomiest(key[rows], room, search.machines_max, self._used(search, rows_now), rows)
            rows, room = rows[at], room[at]
        if int(room.sum()) < search.count:
            return None
        spots: list[Spot] = []
        for row, most in zip(rows.tolist(), room.tolist(), strict=True):
            spots += ledger.take_many(ask, row, min(most, search.count - len(spots)), search.owners)
            if len(spots) == search.count:
                break
        return spots

    def _candidates(self, search: "_Search", key: Ints, rows_now: Sequence[int]) -> Ints:
        """The machines to look at, best first: as many as there are workers do, since each takes one at least."""
        if search.machines_max is not None or search.one_per_rack:
            return self._by_topology(search, np.flatnonzero(key < NOWHERE), rows_now)
        if not len(key):
            return np.zeros(0, np.int64)
        if search.count == 1:
            best: Ints = np.array([key.argmin()])
        elif search.count < len(key):
            best = np.argpartition(key, search.count - 1)[: search.count]
        else:
            best = np.arange(len(key))
        best = best[key[best] < NOWHERE]
        found: Ints = best[np.argsort(key[best])]
        return found

    def _used(self, search: "_Search", rows_now: Sequence[int]) -> set[int]:
        return {*self.ledger.rows_of(search.owner), *rows_now}

    def _by_topology(self, search: "_Search", rows: Ints, rows_now: Sequence[int]) -> Ints:
        """Machines left by the rules about racks: the best one of each rack that has none of its workers yet."""
        if not search.one_per_rack:
            return rows
        racks = self.ledger.fleet.racks
        used = {int(racks[row]) for row in self._used(search, rows_now)} | {0}
        rows = rows[~np.isin(racks[rows], list(used))]
        best = rows[np.argsort(keys(self.ledger, search.ask, rows, self.mix))]
        _, first = np.unique(racks[best], return_index=True)
        return best[np.sort(first)]


@dataclass(slots=True)
class _Search:
    """Workers alike, one after the other in a unit."""

    ask: Ask
    count: int
    entries: tuple[Entry, ...]
    apart: tuple[str, ...] = ()
    topology: Topology | None = None
    within: Bools | None = None

    @property
    def owner(self) -> str:
        return self.entries[0].owner

    @property
    def owners(self) -> tuple[str, ...]:
        return self.entries[0].owners

    @property
    def one_per_rack(self) -> bool:
        return self.topology is not None and self.topology.one_per_rack

    @property
    def machines_max(self) -> int | None:
        return None if self.topology is None else self.topology.max_machines


def _alike(
    members: Iterable[Entry], topology: Topology | None = None, within: Bools | None = None
) -> Iterator[_Search]:
    """Members in stretches of workers alike."""
    for _, stretch in groupby(members, key=lambda e: (id(e.ask), e.apart)):
        entries = tuple(stretch)
        yield _Search(entries[0].ask, len(entries), entries, entries[0].apart, topology, within)


def _roomiest(key: Ints, room: Ints, most: int, used: set[int], rows: Ints) -> Sequence[int]:
    """Which machines are filled, and in which order, where their number is bounded: those in use, then the roomiest."""
    here = np.isin(rows, list(used))
    best = np.lexsort((key, -room, ~here))
    new = max(0, most - len(used))
    return [int(at) for at in best if here[at]] + [int(at) for at in best if not here[at]][:new]


def _and(one: Bools, other: Bools | None) -> Bools:
    return one if other is None else one & other
