"""Whom to stop so that a unit of higher priority can start. A plan is complete or there is none.

Only work of strictly lower priority is chosen, a gang always whole, never a set that would not let the unit start,
never one of which a part would do. Among the sets that do (the lifecycle contract §4): the lowest priorities, then the
fewest GPUs freed beyond the need, the fewest workers, the most recently started. A run that was preempted `BUDGET`
times is not chosen again until it ran.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from moorage.decide.scheduling.cheapest import on_one_machine
from moorage.decide.scheduling.feasible import required
from moorage.decide.scheduling.gang import Finder, Found
from moorage.decide.scheduling.holders import Below, Holder, Holders
from moorage.decide.scheduling.ledger import Ledger, Spot
from moorage.decide.scheduling.order import Unit
from moorage.decide.scheduling.score import Mix
from moorage.decide.scheduling.victims import Victim, candidates


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Whom to stop, and the room that its unit gets once they are gone."""

    victims: tuple[Victim, ...]
    room: Found

    @property
    def workers(self) -> tuple[Holder, ...]:
        """Everybody who is stopped."""
        return tuple(h for v in self.victims for h in v.holders)


def plan(unit: Unit, ledger: Ledger, holders: Holders, mix: Mix) -> Plan | None:
    """The victims that let this unit start, or None."""
    if not holders.any_below(unit.priority):
        return None
    if len(unit.members) == 1 and unit.first.topology is None:
        chosen = on_one_machine(unit, ledger, holders)
        room = _with_all_gone(unit, ledger, chosen, mix) if chosen is not None else None
        return Plan(tuple(chosen), room) if chosen is not None and room is not None else None
    below = holders.below(unit.priority)
    within = required(ledger.fleet, unit.first.topology)
    if Finder(_without(ledger, below), mix).unit(unit, within) is None:
        return None
    return _across(unit, ledger, candidates(holders, below, unit.priority), mix)


def _without(ledger: Ledger, below: Below) -> Ledger:
    after = ledger.copy()
    after.touched = None
    np.add.at(after.cpu, below.row, below.cpu)
    np.add.at(after.memory, below.row, below.memory)
    np.bitwise_or.at(after.gpus, below.row, below.gpus)
    after.gpus &= ledger.fleet.base("usable")
    return after


def _gone(ledger: Ledger, victims: Iterable[Victim]) -> Ledger:
    after = ledger.copy()
    usable = after.fleet.base("usable")
    for holder in {h.worker.uid: h for v in victims for h in v.holders}.values():
        spot = holder.spot
        kept = spot.gpus & int(usable[spot.row])
        after.give(Spot(spot.row, kept, spot.cpu_milli, spot.memory_bytes))
    return after


def _with_all_gone(unit: Unit, ledger: Ledger, victims: Sequence[Victim], mix: Mix) -> Found | None:
    return Finder(_gone(ledger, victims), mix).unit(unit, required(ledger.fleet, unit.first.topology))


# A gang: the shortest beginning of the list that does, without whom it does not need


def _across(unit: Unit, ledger: Ledger, candidates: Iterator[Victim], mix: Mix) -> Plan | None:
    victims: list[Victim] = []
    low = 0
    while True:
        more = list(islice(candidates, low + 1))  # most need few, and a look at few is cheap
        if not more:
            return None
        victims += more
        if _with_all_gone(unit, ledger, victims, mix) is not None:
            break
        low = len(victims)
    high = len(victims)
    while high - low > 1:
        middle = (low + high) // 2
        if _with_all_gone(unit, ledger, victims[:middle], mix) is None:
            low = middle
        else:
            high = middle
    chosen = victims[:high]
    for victim in sorted(chosen, key=lambda v: (-v.run.priority, -v.gpus, v.started)):
        rest = [v for v in chosen if v is not victim]
        if rest and _with_all_gone(unit, ledger, rest, mix) is not None:
            chosen = rest
    room = _with_all_gone(unit, ledger, chosen, mix)
    return None if room is None else Plan(tuple(chosen), room)
