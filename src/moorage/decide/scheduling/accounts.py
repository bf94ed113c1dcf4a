"""The ledger of GPUs as people see it: each one free, held, reserved, faulty or foreign, by whom, since and until when.

Made from what decides: holdings are the store's rows, reservations the scheduler's own of this very moment, faults what
`feasible` refuses for. One state for each GPU, the first that is true of: held, faulty, foreign, reserved, free. Called
by `control/accounts`; `decide/invariants` checks that the sums agree.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Any

from moorage.decide.scheduling.assign import decide
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.fleet import devices, usable
from moorage.decide.scheduling.holders import ends_at
from moorage.decide.scheduling.ledger import Ledger, Spot
from moorage.decide.scheduling.reserve import all_kept, plan_of
from moorage.domain.nouns import Machine, Run, Worker


class Holder(StrEnum):
    """What a GPU is taken by."""

    FREE = "free"
    HELD = "held"
    RESERVED = "reserved"
    FAULTY = "faulty"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Kept:
    """A GPU that is kept for somebody.

    Args:
        machine: uid.
        gpu: its index there.
        owner: uid of the worker, or of the deployment whose next replica it is for.
        until: when the reservation lapses, or (the head of the queue) when it starts; None: not known.
        why: `restart`, `preemption` or `head`.
    """

    machine: str
    gpu: int
    owner: str
    until: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Line:
    """One GPU.

    Args:
        gpu: as its machine reports it; of one that is held and not reported, its index alone.
        holder: what it is taken by.
        worker: uid of who holds it.
        row: that worker's row, if it holds it under its present placement.
        kept: for whom it is reserved.
        since, until: seconds since the epoch; None: not known, or never.
    """

    gpu: Mapping[str, Any]
    holder: Holder
    worker: str | None = None
    row: Worker | None = None
    kept: Kept | None = None
    since: float | None = None
    until: float | None = None

    @property
    def index(self) -> int:
        """Which of the machine's GPUs."""
        return int(self.gpu["index"])


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of work beside its holdings: rows by uid."""

    workers: Mapping[str, Worker] = field(default_factory=dict)
    runs: Mapping[str, Run] = field(default_factory=dict)


def kept_now(book: Book, now: float) -> tuple[Kept, ...]:
    """What the scheduler would keep for somebody if it ran now. What it would place it keeps for nobody."""
    outcome = decide(book, now)
    placed = {entry.worker.uid for found in outcome.placed for entry, _ in found}
    made = [
        Kept(uid, gpu, kept.owner, kept.until, "preemption" if _has_plan(book, kept.owner, now) else "restart")
        for kept in all_kept(book, Ledger(book.fleet), now)
        if kept.owner not in placed
        for uid, gpu in _gpus_of(book, kept.spot)
    ]
    if outcome.head is not None:
        own = {(k.machine, k.gpu, k.owner) for k in made}
        for entry, spot in outcome.head.room:
            owners = (entry.worker.uid, entry.worker.deployment)
            for uid, gpu in _gpus_of(book, spot):
                if not any((uid, gpu, owner) in own for owner in owners):
                    made.append(Kept(uid, gpu, entry.worker.uid, outcome.head.start, "head"))
    return tuple(made)


def _gpus_of(book: Book, spot: Spot) -> Iterator[tuple[str, int]]:
    machine = book.fleet.room(spot.row).machine
    return ((machine.uid, gpu) for gpu in devices(machine, spot.gpus))


def _has_plan(book: Book, uid: str, now: float) -> bool:
    entry = book.queue.keeping.get(uid)
    return entry is not None and plan_of(entry.worker, now) is not None


def lines(
    machine: Machine, holdings: Sequence[Mapping[str, Any]], kept: Iterable[Kept], around: Surroundings
) -> tuple[Line, ...]:
    """Every GPU of a machine, by index.

    Args:
        machine: its row.
        holdings: what is held there: {worker, epoch, gpus}.
        kept: reservations; those of other machines are passed over.
        around: rows of the workers that hold something, and of their runs.
    """
    held = {int(gpu): holding for holding in holdings for gpu in holding["gpus"]}
    mine = {k.gpu: k for k in kept if k.machine == machine.uid}
    reported = {int(g["index"]): g for g in machine.capacity.get("gpus") or ()}
    return tuple(
        _held(reported.get(index, _missing(index)), held[index], around)
        if index in held
        else _not_held(reported[index], mine.get(index))
        for index in sorted(reported.keys() | held.keys())
    )


def _missing(index: int) -> Mapping[str, Any]:
    return {"index": index, "health": "faulty", "fault": "the machine does not report it any more"}


def _held(gpu: Mapping[str, Any], holding: Mapping[str, Any], around: Surroundings) -> Line:
    uid = str(holding["worker"])
    row = around.workers.get(uid)
    if row is None or row.epoch != int(holding["epoch"]):
        return Line(gpu, Holder.HELD, uid)  # of an earlier placement: it is held until that is seen gone
    run = around.runs.get(row.run)
    end = ends_at(row, run) if run is not None else None
    return Line(gpu, Holder.HELD, uid, row, since=row.placed_at, until=end if end and isfinite(end) else None)


def _not_held(gpu: Mapping[str, Any], kept: Kept | None) -> Line:
    if gpu.get("health", "ok") == "faulty":
        return Line(gpu, Holder.FAULTY)
    if not usable(dict(gpu)):
        return Line(gpu, Holder.FOREIGN)
    if kept is not None:
        return Line(gpu, Holder.RESERVED, kept=kept, until=kept.until)
    return Line(gpu, Holder.FREE)


def counts(found: Iterable[Line]) -> Iterator[tuple[str, int]]:
    """How many GPUs are in each state; states with none included."""
    several = [line.holder for line in found]
    return ((str(holder), several.count(holder)) for holder in Holder)
