"""What would let a waiting run start: single changes, each verified by running the scheduler with the change made.

The smallest changes come first within each kind. A change is kept only if the very same cycle, on the changed book,
places the unit. Called by `moor why`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from moorage.decide.scheduling import quota
from moorage.decide.scheduling.assign import Outcome, Wait, decide
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.gang import Found
from moorage.decide.scheduling.order import Unit
from moorage.domain import quotas
from moorage.domain.nouns import Run, Worker

MACHINES_MAX = 16
"""Closed machines of which it is tried whether opening them would help."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that was tried and helps."""

    change: str
    effect: str


def remedies(book: Book, unit: Unit, now: float) -> list[Remedy]:
    """Every single change after which this unit starts at once."""
    out: list[Remedy] = []
    for change, worker_of, run_of in _changes_of_work(book, unit):
        queue = book.queue.copy()
        run = run_of(unit.run)
        for entry in unit.members:
            queue.put(worker_of(entry.worker), run)
        found = placed(decide(replace(book, queue=queue), now), unit)
        if found is not None:
            out.append(Remedy(change, _effect(book, found)))
            if change.startswith("ask for") and any(r.change.startswith("ask for") for r in out[:-1]):
                out.pop()  # a smaller step of the same kind does already
    return [*out, *_openings(book, unit, now)]


def raised_quota(book: Book, wait: Wait, now: float) -> Iterator[Remedy]:
    """The smallest quota under which a unit that waits for its quota starts at once, if there is one."""
    if wait.full is None:
        return
    namespace = wait.unit.run.namespace
    before = book.limits.get(namespace, {})
    limits = quota.raised(before, wait.full)
    found = placed(decide(replace(book, limits={**book.limits, namespace: limits}), now), wait.unit)
    if found is not None:
        raised = {resource: limit for resource, limit in limits.items() if limit != before.get(resource)}
        said = " and ".join(f"of {resource} to {quotas.shown(resource, limit)}" for resource, limit in raised.items())
        yield Remedy(f"raise the quota {said}", _effect(book, found))


def placed(outcome: Outcome, unit: Unit) -> Found | None:
    """The room that an outcome gives to this unit's first member, and to whom it is placed with."""
    uid = unit.first.worker.uid
    return next((found for found in outcome.placed if any(e.worker.uid == uid for e, _ in found)), None)


def _effect(book: Book, found: Found) -> str:
    names = sorted({book.fleet.room(spot.row).machine.name for _, spot in found})
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"starts on {shown}"


Changed = tuple[str, Callable[[Worker], Worker], Callable[[Run], Run]]


def _changes_of_work(book: Book, unit: Unit) -> Iterator[Changed]:
    request = unit.first.ask.request
    for gpus in range(request.gpus - 1, 0, -1):
        yield f"ask for {gpus} GPUs instead of {request.gpus}", _asking({"count": gpus}), _same
    if request.models:
        yield "allow any GPU model", _asking({"models": ()}), _same
    if request.healthy_only:
        yield "allow GPUs at risk", _asking({"healthy_only": False}), _same
    if request.memory_bytes:
        yield "ask for no memory in particular", _asking_plain("memory_bytes"), _same
    if request.cpu_milli:
        yield "ask for less CPU", _asking_plain("cpu_milli"), _same
    placement: Mapping[str, Any] = unit.run.spec.get("placement") or {}
    for part in ("labels", "machines", "spread", "topology"):
        if placement.get(part):
            yield f"drop placement.{part}", _same, _without(part)
    highest = max((e.run.priority for e in book.queue), default=0)
    held = max((h.run.priority for h in book.holders), default=unit.priority)
    if highest > unit.priority or held >= unit.priority:
        wanted = max(highest, unit.priority) + 1
        yield f"raise its priority to {wanted}", _same, lambda run: replace(run, priority=wanted)


def _same(row: Any) -> Any:
    return row


def _asking(news: Mapping[str, Any]) -> Callable[[Worker], Worker]:
    def changed(worker: Worker) -> Worker:
        gpus = {**(worker.request.get("gpus") or {}), **news}
        return replace(worker, request={**worker.request, "gpus": gpus})

    return changed


def _asking_plain(name: str) -> Callable[[Worker], Worker]:
    return lambda worker: replace(worker, request={**worker.request, name: 0})


def _without(part: str) -> Callable[[Run], Run]:
    def changed(run: Run) -> Run:
        placement = {k: v for k, v in (run.spec.get("placement") or {}).items() if k != part}
        return replace(run, spec={**run.spec, "placement": placement})

    return changed


def _openings(book: Book, unit: Unit, now: float) -> Iterator[Remedy]:
    """Cordoned machines that would take it if they were open."""
    cordoned = sorted((r for r in book.fleet.rooms() if r.machine.cordoned is not None), key=lambda r: r.machine.name)
    for room in cordoned[:MACHINES_MAX]:
        book.fleet.put(replace(room, machine=replace(room.machine, cordoned=None)))
        try:
            found = placed(decide(book, now), unit)
        finally:
            book.fleet.put(room)
        if found is not None:
            yield Remedy(f"uncordon machine {room.machine.name}", _effect(book, found))
