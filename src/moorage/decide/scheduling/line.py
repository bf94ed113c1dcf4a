"""Who may be placed now, in order, and what is placed together.

The needed members of a gang are one unit, everybody else is a unit alone. Called by `assign`.
"""

from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from operator import itemgetter

import numpy as np

from moorage.decide.scheduling.fleet import Ints
from moorage.decide.scheduling.order import Entry, Unit, member_rank, minimum_of
from moorage.decide.scheduling.queued import Alike, Queue, Stand
from moorage.domain.nouns import Worker


class Way(IntEnum):
    """How units are looked at."""

    APART = 0
    """each by itself"""
    BOUND = 1
    """alike, but one by one: a quota may run out"""
    FREE = 2
    """alike, and in bulk where they fit"""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """The units of a cycle in order, in columns: a copy, so that the queue may change while an outcome is read.

    Args:
        alike: number of what each unit has in common with others; -1: it is looked at alone.
        limit: seconds after which it is gone; nan: nobody knows.
        told: number of the code that its row gives as what it waits for.
        alikes, codes: what the numbers mean.
        wake_at: when the next waiting worker becomes eligible.
    """

    units: list[Unit]
    alike: Ints
    limit: np.ndarray[tuple[int], np.dtype[np.float64]]
    told: Ints
    alikes: tuple[Alike | None, ...]
    codes: Mapping[str, int]
    wake_at: float | None

    def stretches(self, end: int, bound: Container[str]) -> Iterator[tuple[int, int, Way]]:
        """Where stretches of one priority that are looked at in one way begin and end, up to a place.

        Args:
            bound: namespaces whose quota may run out.
        """
        ways = [Way.APART if one is None else Way.BOUND if one.namespace in bound else Way.FREE for one in self.alikes]
        priorities = [0 if one is None else one.priority for one in self.alikes]
        alike = self.alike[:end]
        way = np.array([*ways, Way.APART])[alike]  # the last one is for -1
        priority = np.array([*priorities, 0])[alike]
        breaks = np.flatnonzero((np.diff(way) != 0) | (np.diff(priority) != 0)) + 1
        for at, stop in pairwise([0, *breaks.tolist(), end] if end else ()):
            yield at, stop, Way(way[at])

    def place_of(self, entry: Entry) -> int | None:
        """Where the unit of this worker is; None: it may not be placed now."""
        at = bisect_left(self.units, entry.key, key=lambda unit: unit.members[0].key)
        if at < len(self.units) and entry in self.units[at].members:
            return at
        return next((n for n, unit in enumerate(self.units) if unit.gang and entry in unit.members), None)


def line_of(queue: Queue, standing: Mapping[str, Mapping[str, Worker]], now: float) -> Line:
    """Everything that may be placed now.

    Args:
        standing: by uid of a run, its workers that have a place, by uid.
    """
    slots = queue.slots()
    stand = queue.column("stand", slots)
    chosen = stand == Stand.NOW
    later: list[float] = []
    for at in np.flatnonzero(stand == Stand.LATER).tolist():
        chosen[at] = _eligible(queue.units(slots[at : at + 1])[0].first, now, later)
    whole: dict[int, Unit] = {}
    members = np.flatnonzero(stand == Stand.GANG)
    for unit, at in _of_gangs(queue.units(slots[members]), members.tolist(), standing, now, later):
        chosen[at], whole[at] = True, unit
    where = np.flatnonzero(chosen)
    slots = slots[where]
    units, alike = queue.units(slots), queue.column("alike", slots)
    for at, unit in whole.items():
        place = int(np.searchsorted(where, at))
        units[place], alike[place] = unit, -1
    limit, told = queue.column("limit", slots), queue.column("told", slots)
    return Line(units, alike, limit, told, tuple(queue.alikes), queue.codes, min(later, default=None))


def _eligible(entry: Entry, now: float, later: list[float]) -> bool:
    worker = entry.worker
    if worker.restart_at is not None and worker.restart_at > now:
        later.append(worker.restart_at)
        return False
    return worker.waits is None


def _of_gangs(
    waiting: list[Unit], places: list[int], standing: Mapping[str, Mapping[str, Worker]], now: float, later: list[float]
) -> Iterator[tuple[Unit, int]]:
    """The units of gangs, each with the place of its first member in the queue."""
    gangs: dict[str, list[Entry]] = {}
    place = {unit.first.worker.uid: at for unit, at in zip(waiting, places, strict=True)}
    for unit in waiting:
        gangs.setdefault(unit.run.uid, []).append(unit.first)
    for uid, entries in gangs.items():
        for unit in _gang_units(entries, tuple(standing.get(uid, {}).values()), now, later):
            yield unit, place[unit.first.worker.uid]


def _gang_units(entries: list[Entry], placed: tuple[Worker, ...], now: float, later: list[float]) -> Iterator[Unit]:
    """The needed members that wait as one unit; members above the minimum each alone."""
    if any(worker.stop is not None for worker in placed):
        return  # a member is being stopped: its gang is queued again whole once it is gone, or its run ends
    run = entries[0].run
    minimum = minimum_of(run)
    rank = member_rank(run, [*(e.worker for e in entries), *placed])
    ranked = sorted(((rank(e.worker), e) for e in entries), key=itemgetter(0))
    needed = tuple(e for place, e in ranked if minimum is None or place < minimum)
    able = [e for _, e in ranked if _eligible(e, now, later)]  # each is asked: the next deadline is wanted too
    beyond = able
    if needed:
        uids = {e.worker.uid for e in needed}
        beyond = [e for e in able if e.worker.uid not in uids]
        if len(able) - len(beyond) < len(needed):
            return
        yield Unit(needed, gang=True)
    yield from (Unit((e,), beyond=True) for e in beyond)
