"""What would let a waiting run start: single changes, each verified by running the scheduler with the change made.

The smallest changes come first within each kind. A change is kept only if the very same cycle, on the changed book,
places the unit. Changes that leave the unit's place in the queue are tried at its turn (`turn`). Called by `moor why`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from moorage.decide.scheduling import quota
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.explain import named
from moorage.decide.scheduling.feasible import mask, refusals, takes
from moorage.decide.scheduling.fleet import Bits, Ints, Rows, seen_gpus
from moorage.decide.scheduling.gang import Found
from moorage.decide.scheduling.order import Entry, Unit
from moorage.decide.scheduling.snapshot import Room, owners_of
from moorage.decide.scheduling.turn import Turn, found_for, placed_by_turn
from moorage.decide.scheduling.waiting import Outcome, Wait
from moorage.domain import quotas
from moorage.domain.nouns import Run, Worker

CYCLES_MAX = 2
"""Changes of machines, and ends of runs, that are tried by a cycle each, after a quick look at the unit's turn."""

MODELS_MAX = 8
PRIORITIES_MAX = 3
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that was tried and helps."""

    change: str
    effect: str


def remedies(book: Book, unit: Unit, now: float, turn: Turn | None = None) -> list[Remedy]:
    """Every single change after which this unit starts at once."""
    turn = turn or Turn.of(book, now, unit.first.worker.uid)
    if turn is None or not turn.eligible:
        return []
    kinds = (*_of_work(turn), *_of_place(turn))
    found = (next(_helpful(turn, kind), None) for kind in kinds)
    priority = next(_priorities(turn), None)
    first = [*(r for r in found if r is not None), *((priority,) if priority is not None else ())]
    return [*first, *_openings(turn), *_ends(turn)]


def raised_quota(book: Book, wait: Wait, now: float) -> Iterator[Remedy]:
    """The smallest quota under which a unit that waits for its quota starts at once, if there is one."""
    if wait.full is None:
        return
    namespace = wait.unit.run.namespace
    before = book.limits.get(namespace, {})
    limits = quota.raised(before, wait.full)
    raised_book = replace(book, limits={**book.limits, namespace: limits})
    found = placed_by_turn(raised_book, now, wait.unit.first.worker.uid)
    if found is not None:
        raised = {resource: limit for resource, limit in limits.items() if limit != before.get(resource)}
        said = " and ".join(f"of {resource} to {quotas.shown(resource, limit)}" for resource, limit in raised.items())
        yield Remedy(f"raise the quota {said}", _effect(book, found))


def placed(outcome: Outcome, unit: Unit) -> Found | None:
    """The room that an outcome gives to this unit's first member, and to whom it is placed with."""
    return found_for(outcome, unit.first.worker.uid)


def _effect(book: Book, found: Found) -> str:
    names = sorted({book.fleet.room(spot.row).machine.name for _, spot in found})
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"starts on {shown}"


# Changes of the work itself


@dataclass(frozen=True, slots=True)
class _Change:
    said: str
    worker: Callable[[Worker], Worker] = lambda worker: worker
    run: Callable[[Run], Run] = lambda run: run


def _helpful(turn: Turn, kind: Iterator[_Change]) -> Iterator[Remedy]:
    """Those of one kind, smallest first, that help."""
    for change in kind:
        run = change.run(turn.unit.run)
        found = turn.with_changes([(change.worker(e.worker), run) for e in _of_run(turn)])
        if found is not None:
            yield Remedy(change.said, _effect(turn.book, found))


def _of_run(turn: Turn) -> list[Entry]:
    """Every waiting worker of its run: a spec is changed for all of them."""
    members = {entry.worker.uid for entry in turn.unit.members}
    mates = turn.book.queue.of_run(turn.unit.run.uid)
    return [*turn.unit.members, *(entry for entry in mates if entry.worker.uid not in members)]


def _of_work(turn: Turn) -> Iterator[Iterator[_Change]]:
    request = turn.unit.first.ask.request
    steps = range(request.gpus - 1, 0, -1)
    yield (_Change(f"ask for {n} GPUs instead of {request.gpus}", _asking({"count": n})) for n in steps)
    if request.models:
        others = [model for model in _models(turn.book) if model not in request.models][:MODELS_MAX]
        yield (_Change(f"allow the GPU model {m} too", _asking({"models": (*request.models, m)})) for m in others)
        if len(others) > 1:
            yield iter((_Change("allow any GPU model", _asking({"models": ()})),))
    if request.healthy_only:
        yield iter((_Change("allow GPUs at risk", _asking({"healthy_only": False})),))
    yield (
        _Change(
            f"ask for {amount / GIB:.1f} GiB of memory instead of {request.memory_bytes / GIB:.1f}",
            _less("memory_bytes", amount),
        )
        for amount in _smaller(turn, "memory_bytes", GIB // 10)
    )
    yield (
        _Change(f"ask for {amount / 1000:g} cores instead of {request.cpu_milli / 1000:g}", _less("cpu_milli", amount))
        for amount in _smaller(turn, "cpu_milli", 100)
    )


def _models(book: Book) -> list[str]:
    gpus = (gpu for room in book.fleet.rooms() for gpu in seen_gpus(room.machine))
    return sorted({str(gpu["model"]) for gpu in gpus if gpu.get("model")})


def _smaller(turn: Turn, resource: str, step: int) -> Iterator[int]:
    """Smaller amounts to try, largest first: what is free where all else fits, then halves."""
    entry, ledger = turn.unit.first, turn.before.far.ledger
    asked = int(getattr(entry.ask.request, resource))
    if not asked:
        return
    cpu = resource == "cpu_milli"
    less = replace(entry.ask.request, cpu_milli=0) if cpu else replace(entry.ask.request, memory_bytes=0)
    free = (ledger.cpu if cpu else ledger.memory)[mask(ledger, replace(entry.ask, request=less), entry.apart)]
    most = int(free.max(initial=0)) // step * step
    if 0 < most < asked:
        yield most
    if len(turn.unit.members) > 1:
        yield from (part for part in (asked // 2, asked // 4, asked // 8) if 0 < part < most)


def _of_place(turn: Turn) -> Iterator[Iterator[_Change]]:
    placement: Mapping[str, Any] = turn.unit.run.spec.get("placement") or {}
    labels: Mapping[str, Any] = placement.get("labels") or {}
    for key, value in sorted(labels.items()):
        yield iter((_Change(f"drop the label {key}={value}", run=_without("labels", key)),))
    if len(labels) > 1:
        yield iter((_Change("drop placement.labels", run=_without("labels")),))
    for part in ("machines", "spread", "topology"):
        if placement.get(part):
            yield iter((_Change(f"drop placement.{part}", run=_without(part)),))


def _asking(news: Mapping[str, Any]) -> Callable[[Worker], Worker]:
    def changed(worker: Worker) -> Worker:
        gpus = {**(worker.request.get("gpus") or {}), **news}
        return replace(worker, request={**worker.request, "gpus": gpus})

    return changed


def _less(name: str, amount: int) -> Callable[[Worker], Worker]:
    return lambda worker: replace(worker, request={**worker.request, name: amount})


def _without(part: str, key: str | None = None) -> Callable[[Run], Run]:
    def changed(run: Run) -> Run:
        placement = dict(run.spec.get("placement") or {})
        if key is None:
            del placement[part]
        else:
            placement[part] = {k: v for k, v in placement[part].items() if k != key}
        return replace(run, spec={**run.spec, "placement": placement})

    return changed


# Changes of its place in the queue


def _priorities(turn: Turn) -> Iterator[Remedy]:
    """Higher priorities that help, lowest first."""
    book, unit = turn.book, turn.unit
    levels = book.queue.priorities() | book.holders.priorities()
    above = sorted(level + 1 for level in levels if level >= unit.priority)
    for wanted in [*above[: PRIORITIES_MAX - 1], *above[PRIORITIES_MAX - 1 :][-1:]]:
        queue = book.queue.copy()
        run = replace(unit.run, priority=wanted)
        for entry in _of_run(turn):
            queue.put(entry.worker, run)
        found = placed_by_turn(replace(book, queue=queue), turn.now, unit.first.worker.uid)
        if found is not None:
            yield Remedy(f"raise its priority to {wanted}", _effect(book, found))


# Changes of machines, and of what they hold


def _openings(turn: Turn) -> Iterator[Remedy]:
    """Cordoned machines that would take it if they were open."""
    book, entry = turn.book, turn.unit.first
    cordoned = np.flatnonzero(book.fleet.column("cordoned", lambda machine: machine.cordoned is not None)).tolist()
    rooms = (book.fleet.room(row) for row in cordoned)
    opened = (replace(room, machine=replace(room.machine, cordoned=None)) for room in rooms)
    promising = sorted(
        (room for room in opened if not refusals(entry.ask, room, entry.apart)), key=lambda room: room.machine.name
    )
    for room in promising[:CYCLES_MAX]:
        found = _with_rooms(turn, [room], book)
        if found is not None:
            yield Remedy(f"uncordon machine {room.machine.name}", _effect(book, found))


def _with_rooms(turn: Turn, rooms: list[Room], book: Book) -> Found | None:
    """What a cycle does when these machines are so; the book is as before when this returns."""
    fleet = turn.book.fleet
    before = [fleet.room(fleet.row(room.machine.uid)) for room in rooms]
    for room in rooms:
        fleet.put(room)
    try:
        return placed_by_turn(book, turn.now, turn.unit.first.worker.uid)
    finally:
        for room in before:
            fleet.put(room)


def _ends(turn: Turn) -> Iterator[Remedy]:
    """Runs of one worker whose end would let it start, the first to end first."""
    unit, book = turn.unit, turn.book
    if len(unit.members) > 1:
        return
    ledger, entry = turn.before.far.ledger, unit.first
    ask, request = entry.ask, entry.ask.request
    open_rows = takes(book.fleet, ask)
    kind = book.fleet.kind(request) & book.fleet.base("usable")

    def enough(rows: Rows, cpu: Ints, memory: Ints, gpus: Bits) -> Any:
        fits = open_rows[rows] & (ledger.cpu[rows] + cpu >= request.cpu_milli)
        fits &= ledger.memory[rows] + memory >= request.memory_bytes
        return fits & (np.bitwise_count((ledger.gpus[rows] | gpus) & kind[rows]) >= request.gpus)

    for holder in book.holders.ending_alone(enough)[:CYCLES_MAX]:
        if len(book.holders.by_run[holder.run.uid]) > 1:
            continue
        room = book.fleet.room(holder.spot.row)
        left = replace(
            room,
            cpu_milli=room.cpu_milli - holder.spot.cpu_milli,
            memory_bytes=room.memory_bytes - holder.spot.memory_bytes,
            gpus=room.gpus - frozenset(holder.worker.gpus),
            owners=room.owners - frozenset(owners_of(holder.worker, holder.run)),
        )
        with book.holders.lacking(holder.worker.uid, book.fleet):
            found = _with_rooms(turn, [left], book)
        if found is not None:
            yield Remedy(
                f"when {named(holder.run, unit.run)} ends",
                _effect(book, found) + _by(book, holder.worker.uid, turn.now),
            )


def _by(book: Book, uid: str, now: float) -> str:
    end = book.holders.end_of(uid)
    if np.isinf(end) or end <= now:
        return ""
    return f", by {datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M:%S} UTC"
