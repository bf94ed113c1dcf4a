"""Room that is kept: for work that starts again, for who had others stopped, and for the head of the queue.

- A worker that restarts, and the replacement of a replica, keep the GPUs of the last attempt until 60 s after they may
  start, while the machine is healthy.
- Room freed by preemption belongs to who it was freed for, until it is placed or the plan lapses.
- The head of the queue is the first unit that fits once running work has ended. Its room is the room it would get after
  the shortest beginning of the list of what ends (by end; where that is unknown, the longest placed first). That list
  only loses members, since newer work goes to its end and what the head needs is kept from newer work: so the head
  starts after finitely many ends, and its start never moves back because of others.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.feasible import required, takes
from moorage.decide.scheduling.fleet import Fleet, lowest, word_of
from moorage.decide.scheduling.gang import Finder, Found
from moorage.decide.scheduling.holders import Ending
from moorage.decide.scheduling.ledger import Ledger, Spot
from moorage.decide.scheduling.order import Entry, Unit
from moorage.decide.scheduling.score import Mix
from moorage.decide.scheduling.snapshot import Request
from moorage.domain.nouns import Worker

KEPT_S = 60.0
"""How long after it may start again the room of a restarting worker is kept for it."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room kept for one worker, or for the next one of a deployment.

    Args:
        owner: uid of the worker or deployment.
        until: when it lapses, seconds since the epoch.
        namespace: whose quota it counts in.
        claim: what it counts as: all that was planned, though others hold some of it still.
    """

    owner: str
    spot: Spot
    until: float
    namespace: str
    claim: Spot


# Restarts and replacements


def restarts(entries: Iterable[Entry], now: float) -> Iterator[tuple[str, Worker, float]]:
    """Waiting workers that keep the room of their last attempt: owner, worker, until."""
    for entry in entries:
        at = entry.worker.restart_at
        if at is not None and entry.worker.machine_name is not None and now < at + KEPT_S:
            yield entry.worker.uid, entry.worker, at + KEPT_S


def vacated(
    ended: Iterable[Worker],
    retry_at: Mapping[str, float],
    replacements: Mapping[str, Mapping[str, Worker]],
    now: float,
) -> Iterator[tuple[str, Worker, float]]:
    """Workers that failed and whose restart is not queued, or whose replacement not placed yet.

    Args:
        ended: those whose run, or deployment, goes on.
        retry_at: by uid of a deployment, when it makes the replacement.
        replacements: by uid of a deployment, its workers that hold room.
    """
    used: set[str] = set()
    for worker in sorted(ended, key=lambda w: (w.ended_at or 0.0, w.uid)):
        mates = replacements.get(worker.deployment or "", {})
        later = (u for u, w in mates.items() if u not in used and (w.placed_at or 0.0) >= (worker.ended_at or 0.0))
        replaced = min(later, default=None)
        if replaced is not None:
            used.add(replaced)
            continue
        owner = worker.deployment or worker.uid
        until = max(worker.ended_at or 0.0, retry_at.get(owner, 0.0)) + KEPT_S
        if now < until:
            yield owner, worker, until


def keep(ledger: Ledger, wanted: Iterable[tuple[str, Worker, float]]) -> list[Reservation]:
    """Reserve, in the ledger, what is still free of each one's last place."""
    made: list[Reservation] = []
    opened = ledger.fleet.base("open")
    for owner, worker, until in wanted:
        row = ledger.fleet.row_named(worker.machine_name)
        if row is None or not opened[row]:
            continue
        spot = _last_place(ledger, row, worker)
        if spot is not None:
            ledger.take(spot)
            made.append(Reservation(owner, spot, until, worker.namespace, spot))
    return made


def _last_place(ledger: Ledger, row: int, worker: Worker) -> Spot | None:
    """As many GPUs as it had, the very same where the row still names them; None when they are gone."""
    request = Request.of(worker)
    if request.cpu_milli > ledger.cpu[row] or request.memory_bytes > ledger.memory[row]:
        return None
    free = int(ledger.gpus[row] & ledger.fleet.kind(request)[row]) if request.gpus else 0
    same = free & word_of(ledger.fleet.room(row).machine, worker.gpus)
    word = same if same.bit_count() == request.gpus else lowest(free, request.gpus)
    if word.bit_count() < request.gpus:
        return None
    return Spot(row, word, request.cpu_milli, request.memory_bytes)


# Preemption plans: kept on the waiting worker's row (`placement.plan`), so that they outlive this process


def plan_row(fleet: Fleet, spot: Spot, gpus: tuple[int, ...], victims: Iterable[str], until: float) -> dict[str, Any]:
    """A plan as it is kept."""
    machine = fleet.room(spot.row).machine
    return {
        "machine": machine.uid,
        "gpus": list(gpus),
        "cpu_milli": spot.cpu_milli,
        "memory_bytes": spot.memory_bytes,
        "victims": sorted(victims),
        "until": until,
    }


def plan_of(worker: Worker, now: float) -> Mapping[str, Any] | None:
    """The plan under which others were stopped for this worker, while it stands."""
    plan: Mapping[str, Any] | None = (worker.placement or {}).get("plan")
    return plan if plan is not None and now < float(plan["until"]) else None


def planned(ledger: Ledger, entries: Iterable[Entry], now: float) -> list[Reservation]:
    """Reserve, in the ledger, what plans were made for, whether or not it is free yet."""
    made: list[Reservation] = []
    for entry in entries:
        plan = plan_of(entry.worker, now)
        if plan is None or str(plan["machine"]) not in ledger.fleet:
            continue
        row = ledger.fleet.row(str(plan["machine"]))
        word = word_of(ledger.fleet.room(row).machine, (int(g) for g in plan["gpus"]))
        spot = Spot(row, word, int(plan["cpu_milli"]), int(plan["memory_bytes"]))
        own = int(ledger.gpus[row]) & word
        kept = Spot(row, own, spot.cpu_milli, spot.memory_bytes)
        ledger.take(kept)
        made.append(Reservation(entry.worker.uid, kept, float(plan["until"]), entry.worker.namespace, spot))
    return made


def all_kept(book: Book, ledger: Ledger, now: float) -> list[Reservation]:
    """Reserve, in the ledger, everything that is kept for somebody; plans first."""
    entries = sorted(book.queue.keeping.values(), key=lambda e: e.key)
    plans = planned(ledger, entries, now)
    gone = vacated(book.ended.values(), book.retry_at, book.holders.by_deployment, now)
    return [*plans, *keep(ledger, [*restarts(entries, now), *gone])]


# The head


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The next unit to run.

    Args:
        room: what is kept for each of its members.
        start: when it starts at the latest, seconds since the epoch; None: not known.
    """

    unit: Unit
    room: Found
    start: float | None


def reserve_for(unit: Unit, ledger: Ledger, ending: Ending, mix: Mix) -> Head | None:
    """The room that running work will leave for a unit; None when it would not fit even then."""

    within = required(ledger.fleet, unit.first.topology)

    def found(count: int) -> Found | None:
        return Finder(ending.after(ledger, count), mix).unit(unit, within)

    best = found(len(ending))
    if best is None:
        return None
    low, high = 0, len(ending)  # it does not fit after `low` ends, it does after `high`
    while high - low > 1:
        middle = min((low + high) // 2, 2 * low + 1)  # most need few ends, and a look at few is cheap
        now = found(middle)
        if now is None:
            low = middle
        else:
            high, best = middle, now
    end = float(ending.ends[high - 1]) if high else None
    return Head(unit, best, None if end is None or np.isinf(end) else end)


def withhold(ledger: Ledger, head: Head, ending: Ending) -> None:
    """Keep from a ledger what the head needs of what is free now: its GPUs by name, CPU and memory as far as what ends
    before it does not bring them."""
    until = np.inf if head.start is None else head.start
    before = int(np.searchsorted(ending.ends, until, side="right"))
    later = ending.after(ledger, before)
    need: dict[int, list[int]] = {}
    for _, spot in head.room:
        sums = need.setdefault(spot.row, [0, 0, 0])
        sums[0] += spot.cpu_milli
        sums[1] += spot.memory_bytes
        sums[2] |= spot.gpus
    for row, (cpu, memory, word) in need.items():
        kept_cpu = max(0, cpu - int(later.cpu[row] - ledger.cpu[row]))
        kept_memory = max(0, memory - int(later.memory[row] - ledger.memory[row]))
        ledger.take(Spot(row, word, kept_cpu, kept_memory))


def could_take(ledger: Ledger, unit: Unit) -> bool:
    """Whether, roughly, there is room for a unit: enough for each kind of its members, taken one kind at a time."""
    within = required(ledger.fleet, unit.first.topology)
    counts: dict[int, tuple[Entry, int]] = {}
    for entry in unit.members:
        _, count = counts.get(id(entry.ask), (entry, 0))
        counts[id(entry.ask)] = (entry, count + 1)
    for entry, count in counts.values():
        fits = takes(ledger.fleet, entry.ask) & ledger.enough(entry.ask)
        rows = np.flatnonzero(fits if within is None else fits & within)
        each = 1 if entry.apart else count
        if int(ledger.how_many(entry.ask, rows, each).sum()) < count:
            return False
    return True


Signature = tuple[object, ...]


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
