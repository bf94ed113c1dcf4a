"""Whom to stop so that a unit of higher priority can start. A plan is complete or there is none.

Only work of strictly lower priority is chosen, a gang always whole, never a set that would not let the unit start,
never one of which a part would do. Among the sets that do (the lifecycle contract §4): the lowest priorities, then the
fewest GPUs freed beyond the need, the fewest workers, the most recently started. A run that was preempted `BUDGET`
times is not chosen again until it ran.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from moorage.decide.scheduling.feasible import takes
from moorage.decide.scheduling.gang import Finder, Found
from moorage.decide.scheduling.holders import Holder, Holders
from moorage.decide.scheduling.ledger import Ledger, Spot
from moorage.decide.scheduling.order import Unit, member_rank, minimum_of
from moorage.decide.scheduling.score import Mix
from moorage.domain.nouns import Run, Worker
from moorage.domain.states import ENDED_WORKER, WorkerState

BUDGET = 5
"""Preemptions of one run without it having run between them."""

EXACT_MAX = 10
"""Candidates on one machine up to which every set of them is tried: 1,023 of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """What is stopped together: one worker, or the needed members of a gang."""

    holders: tuple[Holder, ...]

    @property
    def run(self) -> Run:
        """Whose it is."""
        return self.holders[0].run

    @property
    def gpus(self) -> int:
        """GPUs that it frees."""
        return sum(h.spot.gpus.bit_count() for h in self.holders)

    @property
    def started(self) -> float:
        """When the last of it started, or was placed."""
        return max(h.worker.started_at or h.worker.placed_at or 0.0 for h in self.holders)

    @property
    def rows(self) -> set[int]:
        """Machines on which it frees something."""
        return {h.spot.row for h in self.holders}


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
    victims = candidates(holders, unit.priority)
    if not victims or _with_all_gone(unit, ledger, victims, mix) is None:
        return None
    if len(unit.members) == 1 and unit.first.topology is None:
        chosen = _on_one_machine(unit, ledger, victims)
        if chosen is not None:
            room = _with_all_gone(unit, ledger, chosen, mix)
            if room is not None:
                return Plan(tuple(chosen), room)
    return _across(unit, ledger, victims, mix)


def candidates(holders: Holders, priority: int) -> list[Victim]:
    """Everything of lower priority that may be stopped, the first to be chosen first."""
    found: list[Victim] = []
    for by_uid in holders.by_run.values():
        here = [h for uid in by_uid if (h := holders.get(uid)) is not None]
        if here[0].run.priority < priority and _may_be_stopped(here[0].run, by_uid.values()):
            found += _victims_of(here)
    return sorted(found, key=lambda v: (v.run.priority, -v.started, v.holders[0].worker.uid))


def _may_be_stopped(run: Run, workers: Iterable[Worker]) -> bool:
    """Not what is on its way out already, nor who was stopped too often."""
    if run.cancel is not None or run.deleting or run.restarting is not None:
        return False
    return run.preemptions < BUDGET or any(w.ran for w in workers)


def _victims_of(here: list[Holder]) -> list[Victim]:
    run = here[0].run
    live = [h for h in here if h.worker.state not in ENDED_WORKER and h.worker.state is not WorkerState.STOPPING]
    if not run.spec.get("gang"):
        return [Victim((h,)) for h in live]
    if len(live) < len(here):
        return []  # a member is on its way out: the gang is queued again, or ends, by itself
    minimum = minimum_of(run)
    rank = member_rank(run, [h.worker for h in live])
    needed = [h for h in live if minimum is None or rank(h.worker) < minimum]
    alone = [Victim((h,)) for h in live if h not in needed]
    # The needed ones take everybody along: the gang starts again as a whole.
    return [*alone, Victim(tuple(live))] if needed else alone


def _gone(ledger: Ledger, victims: Iterable[Victim]) -> Ledger:
    after = ledger.copy()
    usable = after.fleet.base("usable")
    for holder in {h.worker.uid: h for v in victims for h in v.holders}.values():
        spot = holder.spot
        kept = spot.gpus & int(usable[spot.row])
        after.give(Spot(spot.row, kept, spot.cpu_milli, spot.memory_bytes))
    return after


def _with_all_gone(unit: Unit, ledger: Ledger, victims: Sequence[Victim], mix: Mix) -> Found | None:
    return Finder(_gone(ledger, victims), mix).unit(unit)


# One worker: the best set of one machine


def _on_one_machine(unit: Unit, ledger: Ledger, victims: Sequence[Victim]) -> list[Victim] | None:
    """Of every machine's best set, the best."""
    entry = unit.first
    open_rows = takes(ledger.fleet, entry.ask)
    open_rows[ledger.rows_of_any(entry.apart)] = False
    by_row: dict[int, list[Victim]] = {}
    for victim in victims:
        for row in victim.rows:
            if open_rows[row]:
                by_row.setdefault(row, []).append(victim)
    best: tuple[Any, list[Victim]] | None = None
    for row in sorted(by_row, key=lambda r: int(ledger.fleet.ranks[r])):
        for chosen in _sets(unit, ledger, row, by_row[row]):
            cost = (*_cost(unit, chosen), int(ledger.fleet.ranks[row]))
            if best is None or cost < best[0]:
                best = (cost, chosen)
    return best[1] if best else None


def _sets(unit: Unit, ledger: Ledger, row: int, victims: list[Victim]) -> Iterable[list[Victim]]:
    """Sets of one machine's candidates after which the worker fits there; all small ones, or a few good ones."""
    if not _fits_after(unit, ledger, row, victims):
        return
    # Whom none of a lower priority can spare: no set needs a higher one than this.
    level = next(
        p
        for p in sorted({v.run.priority for v in victims})
        if _fits_after(unit, ledger, row, [v for v in victims if v.run.priority <= p])
    )
    victims = [v for v in victims if v.run.priority <= level]
    if len(victims) <= EXACT_MAX:
        for size in range(1, len(victims) + 1):
            for some in combinations(victims, size):
                if _fits_after(unit, ledger, row, some):
                    yield list(some)
        return
    for order in (victims, sorted(victims, key=lambda v: v.gpus), sorted(victims, key=lambda v: -v.gpus)):
        chosen: list[Victim] = []
        for victim in order:
            chosen.append(victim)
            if _fits_after(unit, ledger, row, chosen):
                break
        yield _pruned(unit, ledger, row, chosen)


def _pruned(unit: Unit, ledger: Ledger, row: int, chosen: list[Victim]) -> list[Victim]:
    """Without whom it does not need, the dearest spared first."""
    for victim in sorted(chosen, key=lambda v: (-v.run.priority, -v.gpus, v.started)):
        rest = [v for v in chosen if v is not victim]
        if rest and _fits_after(unit, ledger, row, rest):
            chosen = rest
    return chosen


def _fits_after(unit: Unit, ledger: Ledger, row: int, gone: Iterable[Victim]) -> bool:
    ask = unit.first.ask
    request = ask.request
    cpu, memory, word = int(ledger.cpu[row]), int(ledger.memory[row]), int(ledger.gpus[row])
    for holder in {h.worker.uid: h for v in gone for h in v.holders if h.spot.row == row}.values():
        cpu += holder.spot.cpu_milli
        memory += holder.spot.memory_bytes
        word |= holder.spot.gpus
    word &= int(ledger.fleet.base("usable")[row] & ledger.fleet.kind(request)[row])
    return request.cpu_milli <= cpu and request.memory_bytes <= memory and request.gpus <= word.bit_count()


def _cost(unit: Unit, chosen: Sequence[Victim]) -> tuple[Any, ...]:
    """What a set costs, as the contract orders it."""
    priorities = tuple(sorted((v.run.priority for v in chosen), reverse=True))
    freed = sum(v.gpus for v in chosen)
    workers = sum(len(v.holders) for v in chosen)
    need = sum(e.ask.request.gpus for e in unit.members)
    return (priorities[0], max(0, freed - need), workers, priorities, sorted(-v.started for v in chosen))


# A gang: the shortest beginning of the list that does, without whom it does not need


def _across(unit: Unit, ledger: Ledger, victims: Sequence[Victim], mix: Mix) -> Plan | None:
    low, high = 0, len(victims)
    while high - low > 1:
        middle = (low + high) // 2
        if _with_all_gone(unit, ledger, victims[:middle], mix) is None:
            low = middle
        else:
            high = middle
    chosen = list(victims[:high])
    for victim in sorted(chosen, key=lambda v: (-v.run.priority, -v.gpus, v.started)):
        rest = [v for v in chosen if v is not victim]
        if rest and _with_all_gone(unit, ledger, rest, mix) is not None:
            chosen = rest
    room = _with_all_gone(unit, ledger, chosen, mix)
    if room is None:
        return None
    return Plan(tuple(chosen), room)
