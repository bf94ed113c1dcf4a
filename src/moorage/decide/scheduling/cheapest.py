"""The cheapest victims on one machine for one worker, exactly, without a look at what every machine holds.

From columns each machine gets a bound below what any set on it costs. Machines are looked at from the lowest bound on,
until none that is left can beat the best set found. Victims alike on a machine are interchangeable but for when they
started, so only how many of each kind are stopped is tried. Called by `preempt`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np

from moorage.decide.scheduling.feasible import takes
from moorage.decide.scheduling.fleet import Bits, Bools, Ints
from moorage.decide.scheduling.holders import Below, Holders
from moorage.decide.scheduling.ledger import Ledger
from moorage.decide.scheduling.order import Unit
from moorage.decide.scheduling.victims import Victim, turn, victims_of

SETS_MAX = 1024
"""Sets of one machine's victims that are all tried; where there are more, a few good ones are."""

Cost = tuple[int, int, int, tuple[int, ...], tuple[float, ...], int]
"""Of a set, as the lifecycle contract orders it: its highest priority, GPUs freed beyond the need, workers, all its
priorities, starts (the latest first, negative), and the machine's place by name."""


def on_one_machine(unit: Unit, ledger: Ledger, holders: Holders) -> list[Victim] | None:
    """Of every machine's best set, the best; None when there is none."""
    return _Search(unit, ledger, holders, holders.below(unit.priority)).best()


@dataclass(frozen=True, slots=True)
class _Choice:
    cost: Cost
    victims: list[Victim]


@dataclass(slots=True)
class _Search:
    unit: Unit
    ledger: Ledger
    holders: Holders
    below: Below
    usable: Bits = field(init=False)
    """GPUs of each machine that would do"""
    ranks: list[int] = field(init=False)
    _by_row: Ints = field(init=False)
    """places in `below`, by machine; `_rows` are their machines"""
    _rows: Ints = field(init=False)
    _of_run: dict[str, list[Victim]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fleet, order = self.ledger.fleet, np.argsort(self.below.row, kind="stable")
        self.usable = fleet.base("usable") & fleet.kind(self.unit.first.ask.request)
        self.ranks = fleet.ranks.tolist()
        self._by_row, self._rows = order, self.below.row[order]

    def best(self) -> list[Victim] | None:
        found: _Choice | None = None
        for level, rows, bounds in self._by_level():
            for row, bound in zip(rows, bounds, strict=True):
                if found is not None and self._bound(level, bound, row, found.cost) > found.cost:
                    break
                here = self._best_on(row)
                if here is not None and (found is None or here.cost < found.cost):
                    found = here
            if found is not None and found.cost[0] <= level:
                break
        return None if found is None else found.victims

    # Bounds

    def _by_level(self) -> Iterator[tuple[int, list[int], list[tuple[int, int, int, float]]]]:
        """By priority, lowest first: the machines on which stopping all up to it makes room, and less does not.

        Each with what a set there costs at least: GPUs beyond the need, workers, the lowest priority, the latest start.
        """
        ledger, below, request = self.ledger, self.below, self.unit.first.ask.request
        gone, counts = _Gone(ledger), np.bitwise_count(below.gpus).astype(np.int64)
        left = takes(ledger.fleet, self.unit.first.ask)
        left[ledger.rows_of_any(self.unit.first.apart)] = False
        short = np.maximum(0, request.gpus - np.bitwise_count(ledger.gpus & self.usable).astype(np.int64))
        for level in np.unique(below.priority).tolist():
            gone.take(below, counts, below.priority == level)
            fits = left & gone.enough(self.unit, self.usable)
            left &= ~fits
            rows = np.flatnonzero(fits)
            beyond = np.maximum(0, gone.least[rows] - request.gpus)
            workers = np.maximum(1, -(-short[rows] // np.maximum(1, gone.most[rows])))
            columns = (beyond, workers, gone.lowest[rows], -gone.latest[rows])
            order = np.lexsort((ledger.fleet.ranks[rows], *reversed(columns)))
            bounds = zip(*(column[order].tolist() for column in columns), strict=True)
            yield level, rows[order].tolist(), list(bounds)

    def _bound(self, level: int, bound: tuple[int, int, int, float], row: int, best: Cost) -> Cost:
        """The least that a set on this machine may cost, to be compared with a cost."""
        beyond, workers, lowest, latest = bound
        several = len(best[3])
        if self.below.gang.any():  # as many workers may be fewer victims then
            return (level, beyond, workers, (), (), 0)
        return (level, beyond, workers, (level, *[lowest] * (several - 1)), (latest,) * several, self.ranks[row])

    # One machine

    def _victims_on(self, row: int) -> list[Victim]:
        begin, end = np.searchsorted(self._rows, row), np.searchsorted(self._rows, row, side="right")
        uids = [self.below.uids[slot] for slot in self.below.slot[self._by_row[begin:end]].tolist()]
        runs = dict.fromkeys(holder.run.uid for uid in uids if (holder := self.holders.get(uid)) is not None)
        found: list[Victim] = []
        for run in runs:
            if run not in self._of_run:
                self._of_run[run] = victims_of(self.holders, run, self.unit.priority)
            found += (victim for victim in self._of_run[run] if row in victim.rows)
        return sorted(found, key=turn)

    def _best_on(self, row: int) -> _Choice | None:
        """The cheapest set of this machine's victims after which the worker fits there."""
        room = _Room(self.unit, self.ledger, row, int(self.usable[row]))
        victims = [(victim, room.share(victim)) for victim in self._victims_on(row)]
        for level in sorted({victim.run.priority for victim, _ in victims}):
            # Whom none of a lower priority can spare: no set needs a higher one than this.
            some = [one for one in victims if one[0].run.priority <= level]
            if room.fits(some):
                sets = _all_sets(some) or (room.pruned(order) for order in _orders(some))
                costs = ([victim for victim, _ in chosen] for chosen in sets if room.fits(chosen))
                made = [_Choice(self._cost(chosen, row), chosen) for chosen in costs]
                return min(made, key=lambda choice: choice.cost, default=None)
        return None

    def _cost(self, chosen: Sequence[Victim], row: int) -> Cost:
        priorities = tuple(sorted((v.run.priority for v in chosen), reverse=True))
        freed = sum(v.gpus for v in chosen)
        beyond = max(0, freed - self.unit.first.ask.request.gpus)
        workers = sum(len(v.holders) for v in chosen)
        starts = tuple(sorted(-v.started for v in chosen))
        return (priorities[0], beyond, workers, priorities, starts, self.ranks[row])


@dataclass(frozen=True, slots=True)
class _Share:
    """What one victim frees on the machine."""

    cpu_milli: int
    memory_bytes: int
    gpus: int
    uids: frozenset[str]


_Some = Sequence[tuple[Victim, _Share]]


@dataclass(frozen=True, slots=True)
class _Room:
    """What the worker needs of one machine.

    Args:
        usable: bits of the GPUs that would do.
    """

    unit: Unit
    ledger: Ledger
    row: int
    usable: int

    def share(self, victim: Victim) -> _Share:
        here = [h for h in victim.holders if h.spot.row == self.row]
        word = 0
        for holder in here:
            word |= holder.spot.gpus
        word &= self.usable & ~int(self.ledger.gpus[self.row])
        return _Share(
            sum(h.spot.cpu_milli for h in here),
            sum(h.spot.memory_bytes for h in here),
            word.bit_count(),
            frozenset(h.worker.uid for h in here),
        )

    def fits(self, gone: _Some) -> bool:
        """Whether there is room for the worker once these are gone."""
        request, ledger, row = self.unit.first.ask.request, self.ledger, self.row
        shares = _each_once(gone)
        cpu = int(ledger.cpu[row]) + sum(share.cpu_milli for share in shares)
        memory = int(ledger.memory[row]) + sum(share.memory_bytes for share in shares)
        gpus = (int(ledger.gpus[row]) & self.usable).bit_count() + sum(share.gpus for share in shares)
        return request.cpu_milli <= cpu and request.memory_bytes <= memory and request.gpus <= gpus

    def pruned(self, order: _Some) -> _Some:
        """The shortest beginning that does, without whom it does not need; the dearest are spared first."""
        chosen: list[tuple[Victim, _Share]] = []
        for one in order:
            chosen.append(one)
            if self.fits(chosen):
                break
        for one in sorted(chosen, key=lambda c: (-c[0].run.priority, -c[0].gpus, c[0].started)):
            rest = [other for other in chosen if other is not one]
            if rest and self.fits(rest):
                chosen = rest
        return chosen


def _each_once(some: _Some) -> list[_Share]:
    """Shares of which none lies in another: a member of a gang may be stopped alone, or with all of it."""
    shares = sorted((share for _, share in some), key=lambda share: -len(share.uids))
    found: list[_Share] = []
    seen: set[str] = set()
    for share in shares:
        if not share.uids <= seen:
            found.append(share)
            seen |= share.uids
    return found


def _all_sets(victims: _Some) -> list[list[tuple[Victim, _Share]]] | None:
    """Every set in which of victims alike the latest started are stopped; None where there are too many."""
    alike: dict[tuple[int, ...], list[tuple[Victim, _Share]]] = {}
    for victim, share in victims:  # of one priority the latest started come first
        key = (victim.run.priority, victim.gpus, len(victim.holders), share.cpu_milli, share.memory_bytes, share.gpus)
        alike.setdefault(key, []).append((victim, share))
    kinds = list(alike.values())
    if prod(len(kind) + 1 for kind in kinds) > SETS_MAX:
        return None
    counts = product(*(range(len(kind) + 1) for kind in kinds))
    sets = ([one for kind, count in zip(kinds, some, strict=True) for one in kind[:count]] for some in counts)
    return [chosen for chosen in sets if chosen]


def _orders(victims: _Some) -> Iterator[_Some]:
    yield victims
    yield sorted(victims, key=lambda one: one[0].gpus)
    yield sorted(victims, key=lambda one: -one[0].gpus)


class _Gone:
    """What is free, machine by machine, once more and more of those below are gone, and what is known of them."""

    def __init__(self, ledger: Ledger) -> None:
        self.cpu, self.memory, self.gpus = ledger.cpu.copy(), ledger.memory.copy(), ledger.gpus.copy()
        height = ledger.fleet.height
        self.least: Ints = np.full(height, 1 << 32)
        self.most: Ints = np.zeros(height, np.int64)
        self.lowest: Ints = np.full(height, 1 << 62)
        self.latest = np.zeros(height)

    def take(self, below: Below, counts: Ints, some: Bools) -> None:
        """These are gone too.

        Args:
            counts: GPUs of each of `below`.
        """
        rows = below.row[some]
        np.add.at(self.cpu, rows, below.cpu[some])
        np.add.at(self.memory, rows, below.memory[some])
        np.bitwise_or.at(self.gpus, rows, below.gpus[some])
        np.minimum.at(self.least, rows, counts[some])
        np.maximum.at(self.most, rows, counts[some])
        np.minimum.at(self.lowest, rows, below.priority[some])
        np.maximum.at(self.latest, rows, below.started[some])

    def enough(self, unit: Unit, usable: Bits) -> Bools:
        """Where the worker fits then."""
        request = unit.first.ask.request
        found: Bools = (self.cpu >= request.cpu_milli) & (self.memory >= request.memory_bytes)
        found &= np.bitwise_count(self.gpus & usable) >= request.gpus
        return found
