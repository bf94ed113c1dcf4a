"""What a cycle's outcome asks the store to write: a change for each unit placed, stopped for, or newly explained.

A unit's placements are one change, so that a gang commits whole; a plan of preemption is one change with the stops it
asks for, so that it is recorded before any of them is acted on. A wait is written when its code or a key param changes;
of those far back in the queue only the code counts, so that the start of one run does not write 10,000 rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moorage.decide.decision import same_reason
from moorage.decide.scheduling import explain, quota, reserve
from moorage.decide.scheduling.assign import Outcome, Wait, Why
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.fleet import devices, seen_gpus
from moorage.decide.scheduling.gang import Found
from moorage.decide.scheduling.holders import Holder
from moorage.decide.scheduling.ledger import Spot
from moorage.decide.scheduling.order import Entry, Key, Unit, grace_s
from moorage.decide.scheduling.preempt import Plan
from moorage.decide.scheduling.snapshot import Room
from moorage.decide.scheduling.waiting import Same
from moorage.domain.changes import Change, Fence, Hold, Release, Step, Update, Write
from moorage.domain.nouns import Run
from moorage.domain.quotas import models_of
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import StopCause, WorkerState

ACTOR = "controller:scheduler"

NEAR = 64
"""Places in the queue up to which every param of a wait is kept up; `moor why` is exact for all."""

LAPSE_S = 600.0
"""How long room is kept for who had others stopped, beyond their grace; by then the story is one that will not die."""


def changes(book: Book, outcome: Outcome, now: float, fence: Fence | None = None) -> tuple[Change, ...]:
    """Every change of an outcome, in the order of the queue within each kind."""
    writer = _Writer(book, outcome, now, fence)
    return (*writer.placements(), *writer.waits())


def wait_reason(book: Book, outcome: Outcome, wait: Wait) -> Reason:
    """The reason of one wait of an outcome."""
    return _Writer(book, outcome, 0.0, None).why(wait)


@dataclass(slots=True)
class _Writer:
    book: Book
    outcome: Outcome
    now: float
    fence: Fence | None
    _placements: dict[tuple[int, tuple[str, ...]], dict[str, Any]] = field(default_factory=dict)
    _reasons: dict[tuple[str, int], Reason] = field(default_factory=dict)
    _seats: dict[int, "_Seat"] = field(default_factory=dict)
    _codes: list[int] = field(default_factory=list)
    """of each of `Waits.known`, the number of its code; -1: nobody was ever told that one"""
    _waiting_on_quota: set[str] | None = None
    """runs that wait for their quota and were told so"""

    def placements(self) -> Iterator[Change]:
        """A change for each unit that is placed.

        In the order of the queue: what was submitted together lies together in the store, and is written together.
        """
        actor, fence, write = ACTOR, self.fence, self._place
        for found in sorted(self.outcome.placed, key=_turn):
            if len(found) == 1:
                yield Change(write(*found[0]), actor, fence=fence)
            else:
                yield Change(tuple(w for entry, spot in found for w in write(entry, spot)), actor, fence=fence)

    def _place(self, entry: Entry, spot: Spot) -> tuple[Update, Hold]:
        """Both are made by place, not by name: 80,000 are made at once."""
        worker, seat = entry.worker, self._seats.get(spot.row) or self._seat(spot.row)
        uid, machine, epoch, (gpus, models) = worker.uid, seat.machine, worker.epoch + 1, seat.taken(spot.gpus)
        fields = {
            "machine": machine,
            "machine_name": seat.name,
            "epoch": epoch,
            "gpus": gpus,
            "handed_over": True,
            "placed_at": self.now,
            "restart_at": None,
            "placement": None,
        }
        limits = seat.limit_cpu_milli, seat.limit_memory_bytes
        room = spot.cpu_milli, spot.memory_bytes
        return (
            Update("Worker", uid, worker.version, (), fields, seat.why),
            Hold(machine, uid, epoch, gpus, *room, *limits, worker.namespace, models, within_quota=True),
        )

    def _seat(self, row: int) -> "_Seat":
        seat = self._seats[row] = _Seat.on(self.book.fleet.room(row))
        return seat

    # Waits

    def waits(self) -> Iterator[Change]:
        """A change for each unit that is to be told something new."""
        waits, place = self.outcome.waits, 0
        for part in waits.parts:
            if isinstance(part, Wait):
                yield from self._tell(part, exact=place < NEAR)
                place += 1
                continue
            near = min(len(part), max(0, NEAR - place))
            for wait in waits.each(part, 0, near):
                yield from self._tell(wait, exact=True)
            for wait in self._untold(part, near):
                yield from self._tell(wait, exact=False)
            place += len(part)

    def _untold(self, same: Same, begin: int) -> Iterator[Wait]:
        """Those from a place on whose rows do not say yet what they wait for, as far as its code."""
        waits = self.outcome.waits
        if waits.line is None or begin >= len(same):
            return
        for wait in waits.known[len(self._codes) :]:
            self._codes.append(waits.line.codes.get(self.why(wait).code, -1))
        where, like = same.where[begin:], same.like[begin:]
        new = np.flatnonzero(waits.line.told[where] != np.array(self._codes)[like])
        yield from waits.each(Same(where[new], like[new]))

    def _tell(self, wait: Wait, *, exact: bool) -> Iterator[Change]:
        if wait.plan is not None:
            yield Change(tuple(self._stop_others(wait)), ACTOR, fence=self.fence)
            return
        writes = tuple(self._told(wait, exact=exact))
        if writes:
            yield Change((*writes, *self._reached(wait)), ACTOR, fence=self.fence)

    def _reached(self, wait: Wait) -> Iterator[Write]:
        """A note on the run when its wait for the quota begins."""
        if wait.full is None or wait.full.never:
            return
        if self._waiting_on_quota is None:
            units = (w.unit for w in self.outcome.waits if w.full is not None)
            self._waiting_on_quota = {unit.run.uid for unit in units if any(_on_quota(e) for e in unit.members)}
        run = wait.unit.run
        if run.uid not in self._waiting_on_quota:
            self._waiting_on_quota.add(run.uid)
            yield Update("Run", run.uid, run.version, notes=(quota.reached(wait.full),))

    def _told(self, wait: Wait, *, exact: bool) -> Iterator[Write]:
        why = self.why(wait)
        for entry in wait.unit.members:
            worker = entry.worker
            known = worker.reason is not None and worker.reason.code == why.code and worker.placement is not None
            if known and (not exact or same_reason(worker.reason, why)):
                if not exact:
                    continue
                placement = self.placement(entry)
                if _codes(worker.placement) == _codes(placement):
                    continue
            kept = reserve.plan_of(worker, self.now) if wait.why is Why.PLANNED else None
            placement = {**self.placement(entry), **({"plan": kept} if kept is not None else {})}
            yield Update("Worker", worker.uid, worker.version, fields={"placement": placement}, reason=why)

    def why(self, wait: Wait) -> Reason:
        """The reason of a wait."""
        unit = wait.unit
        if wait.full is not None:
            return quota.reason_of(wait.full, unit)
        if wait.why is Why.HEAD:
            if wait.until is None:
                return reason("queue.head_unknown", priority=unit.priority)
            return reason("queue.head", priority=unit.priority, starts_by=wait.until)
        if wait.why is Why.BEHIND and wait.behind is not None:
            return self._behind(unit, wait.behind)
        if wait.plan is not None:
            return _stopping(wait.plan, unit)
        if wait.why is Why.PLANNED:
            return reason("preempt.waiting", k=wait.left)
        if wait.why is Why.FABRIC and unit.first.topology is not None:
            fabric, until = unit.first.topology.fabric, wait.until
            return reason("topology.patience", fabric=fabric, until=until, alternative="other machines")
        if unit.gang:  # of members that may ask for different things; and one alone is not to be told of a gang
            return explain.plain_wait(unit, self.book.fleet)
        key = ("", id(unit.first.ask))
        if key not in self._reasons:
            self._reasons[key] = explain.plain_wait(unit, self.book.fleet)
        return self._reasons[key]

    def _behind(self, unit: Unit, head: Unit) -> Reason:
        above = head.priority > unit.priority
        key = (unit.run.namespace, int(above))
        if key not in self._reasons:
            name = explain.named(head.run, unit.run)
            start = self.outcome.head.start if self.outcome.head is not None else None
            self._reasons[key] = (
                reason("queue.behind_priority", run=name)
                if above
                else reason("queue.behind", run=name, starts_by=start)
            )
        return self._reasons[key]

    def placement(self, entry: Entry) -> dict[str, Any]:
        """Per-machine reasons, made once for workers alike."""
        near = entry.apart if entry.topology is None else (*entry.apart, entry.owner)
        key = (id(entry.ask), near)
        if key not in self._placements:
            self._placements[key] = explain.placement_of(self.outcome.ledger, entry)
        return self._placements[key]

    # Preemption

    def _stop_others(self, wait: Wait) -> Iterator[Write]:
        plan, unit = wait.plan, wait.unit
        if plan is None:
            return
        victims = plan.workers
        grace = max(_preempt_grace_s(h) for h in victims)
        why = _stopping(plan, unit)
        uids = [h.worker.uid for h in victims]
        for entry, spot in plan.room:
            kept = self._kept(spot, uids, self.now + grace + LAPSE_S)
            placement = {**self.placement(entry), "plan": kept}
            worker = entry.worker
            yield Update("Worker", worker.uid, worker.version, fields={"placement": placement}, reason=why)
        for holder in victims:
            yield from self._stop(holder, unit.run)
        for run in {h.run.uid: h.run for h in victims}.values():
            ran = any(h.worker.ran for h in victims if h.run.uid == run.uid)
            times = 1 if ran else run.preemptions + 1
            yield Update("Run", run.uid, run.version, fields={"preemptions": times})

    def _kept(self, spot: Spot, victims: list[str], until: float) -> dict[str, Any]:
        gpus = devices(self.book.fleet.room(spot.row).machine, spot.gpus)
        return reserve.plan_row(self.book.fleet, spot, gpus, victims, until)

    def _stop(self, holder: Holder, beneficiary: Run) -> Iterator[Write]:
        worker = holder.worker
        name = explain.named(beneficiary, holder.run)
        why = reason("stop.preempted", run=name)
        asked = {
            "cause": str(StopCause.PREEMPTION),
            "text": None,
            "run": name,
            "since": self.now,
            "grace_s": _preempt_grace_s(holder),
        }
        if worker.state is WorkerState.PENDING and not worker.handed_over:
            step = Step(WorkerState.CANCELLED, "cancelled", why)
            fields: dict[str, Any] = {"stop": asked, "ended_at": self.now}
            yield Update("Worker", worker.uid, worker.version, (step,), fields)
            yield Release(worker.uid, worker.epoch)
            return
        step = Step(WorkerState.STOPPING, "stop_requested", why)
        yield Update("Worker", worker.uid, worker.version, (step,), {"stop": asked, "ready": False})


@dataclass(frozen=True, slots=True)
class _Seat:
    """What all who are placed on one machine are told alike.

    Args:
        gpus: index and model of each GPU, in the order of its bits.
    """

    machine: str
    name: str
    why: Reason
    limit_cpu_milli: int
    limit_memory_bytes: int
    gpus: tuple[tuple[int, str], ...]

    @staticmethod
    def on(room: Room) -> "_Seat":
        machine = room.machine
        indexes = tuple(int(gpu["index"]) for gpu in seen_gpus(machine))
        return _Seat(
            machine.uid,
            machine.name,
            reason("worker.placed", machine=machine.name),
            room.limit_cpu_milli,
            room.limit_memory_bytes,
            tuple(zip(indexes, models_of(machine.capacity, indexes), strict=True)),
        )

    def taken(self, word: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Indexes and models of the GPUs whose bits are set, by index."""
        if word and not word & (word - 1):  # the usual one, without a walk over all
            index, model = self.gpus[word.bit_length() - 1]
            return (index,), (model,)
        found = sorted(gpu for bit, gpu in enumerate(self.gpus) if word >> bit & 1)
        return tuple(index for index, _ in found), tuple(model for _, model in found)


def _turn(found: Found) -> Key:
    """Whose place in the queue a unit has."""
    return found[0][0].key


def _on_quota(entry: Entry) -> bool:
    return entry.worker.reason is not None and entry.worker.reason.code == "quota.waiting"


def _stopping(plan: Plan, unit: Unit) -> Reason:
    names = sorted({explain.named(h.run, unit.run) for h in plan.workers})
    return reason("preempt.stopping", k=len(plan.workers), runs=names)


def _preempt_grace_s(holder: Holder) -> float:
    asked = holder.run.spec.get("preempt_grace")
    return float(asked) if asked is not None else grace_s(holder.run, holder.worker)


def _codes(placement: Mapping[str, Any] | None) -> list[tuple[str, tuple[str, ...]]]:
    """Machine and reason codes: what must differ before a wait is written again."""
    machines = (placement or {}).get("machines", ())
    return sorted((m["machine"], tuple(r["code"] for r in m["reasons"])) for m in machines)
