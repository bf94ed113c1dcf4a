"""What follows when a machine tells of its GPUs, or of what it is short of: its row, its history, its workers' reasons.

A level is told, not an event: the same told again changes nothing. A worker whose GPU fails is told so and goes on: it
may be in the middle of saving its work, and what it computes with is its owner's to judge; nothing new is placed there.
Pure; called by `control/observe`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.domain.changes import Update
from moorage.domain.nouns import Machine, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import ACTIVE_WORKER

Gpu = Mapping[str, Any]

GONE = "its machine does not report it any more"
FAULT, WELL = "worker.gpu_fault", "worker.gpu_ok"


@dataclass(frozen=True, slots=True)
class Told:
    """What a machine's words make of its row.

    Args:
        fields: that change.
        notes: for its history.
        faulty: GPUs that became faulty, with their fault.
        well: GPUs that were faulty and are not any more.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Reason, ...] = ()
    faulty: Mapping[int, str] = field(default_factory=dict)
    well: frozenset[int] = frozenset()

    @property
    def concerns_workers(self) -> bool:
        """Whether workers there are to be looked at."""
        return bool(self.faulty or self.well)


def told(machine: Machine, gpus: Sequence[Gpu] | None, pressure: Iterable[str] | None) -> Told:
    """Lay over a machine's row what it tells.

    Args:
        machine: as it is.
        gpus: all of them now; None: as before.
        pressure: what it is short of now; None: as before.
    """
    fields: dict[str, Any] = {}
    notes: list[Reason] = []
    faulty: dict[int, str] = {}
    well: set[int] = set()
    if pressure is not None and tuple(pressure) != tuple(machine.pressure):
        fields["pressure"] = tuple(pressure)
        notes += _pressures(set(machine.pressure), set(pressure))
    before = {int(g["index"]): g for g in machine.capacity.get("gpus") or ()}
    if gpus is not None and list(gpus) != list(before.values()):
        fields["capacity"] = {**machine.capacity, "gpus": list(gpus)}
        now = {int(g["index"]): g for g in gpus}
        for index in sorted(before.keys() | now.keys()):
            notes += _gpu_note(index, before.get(index), now.get(index))
            fault = _fault(now.get(index))
            if fault is not None and fault != _fault(before.get(index, _NEW)):
                faulty[index] = fault
            elif fault is None and _fault(before.get(index, _NEW)) is not None:
                well.add(index)
    return Told(fields, tuple(notes), faulty, frozenset(well))


def worker_updates(news: Told, workers: Iterable[Worker]) -> tuple[Update, ...]:
    """New reasons of the workers that have these GPUs; their states stay.

    Args:
        news: what was told.
        workers: placed on the machine.
    """
    found: list[Update] = []
    for worker in workers:
        if worker.state not in ACTIVE_WORKER:
            continue
        faults = sorted(index for index in worker.gpus if index in news.faulty)
        why = None
        if faults:
            why = reason(FAULT, index=faults[0], fault=news.faulty[faults[0]])
        elif worker.reason is not None and worker.reason.code == FAULT and worker.reason.params["index"] in news.well:
            why = reason(WELL, index=worker.reason.params["index"])
        if why is not None:
            found.append(Update(Worker.kind, worker.uid, worker.version, reason=why))
    return tuple(found)


_NEW: Gpu = {"health": "ok"}


def _fault(gpu: Gpu | None) -> str | None:
    """Why work on a GPU is not safe; None where it is."""
    if gpu is None:
        return GONE
    return str(gpu.get("fault") or "unknown") if gpu.get("health", "ok") == "faulty" else None


def _standing(gpu: Gpu) -> tuple[str, str | None]:
    """What matters most about a GPU, in one word, and the words of its fault."""
    health = str(gpu.get("health", "ok"))
    if health == "faulty":
        return "faulty", gpu.get("fault")
    if gpu.get("foreign_bytes"):
        return "foreign", None
    return ("at_risk", gpu.get("fault")) if health == "at_risk" else ("ok", None)


def _gpu_note(index: int, before: Gpu | None, now: Gpu | None) -> list[Reason]:
    if now is None:
        return [reason("machine.gpu_faulty", index=index, fault=GONE)]
    word, fault = _standing(now)
    if (word, fault) == _standing(before if before is not None else _NEW):
        return []
    if word == "foreign":
        pids = list(now.get("foreign_pids") or ())
        return [reason("machine.gpu_foreign", index=index, bytes=int(now["foreign_bytes"]), pids=pids)]
    if word == "ok":
        return [reason("machine.gpu_ok", index=index)]
    return [reason(f"machine.gpu_{word}", index=index, fault=str(fault or "unknown"))]


def _pressures(before: set[str], now: set[str]) -> list[Reason]:
    begun = [reason("machine.pressure", condition=condition) for condition in sorted(now - before)]
    over = [reason("machine.pressure_over", condition=condition) for condition in sorted(before - now)]
    return begun + over
