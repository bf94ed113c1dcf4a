"""One scheduling cycle: waiting workers in order, each placed on the best machine that fits, or told why not.

1. order: priority, then submission time, then uid (the lifecycle contract §4)
2. feasible: `feasible.refusals` for each machine
3. score: `score.best` among those that fit
4. hold: cpu, memory and unique GPU rows, taken in the same change that writes machine and epoch
5. explain: who does not fit keeps every machine's reasons, and "never" is told apart from "not now"

Each worker is a change of its own, so that a stale one fails alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from moorage.decide.decision import same_reason
from moorage.decide.scheduling.feasible import free_gpus, matches, refusals, wanted
from moorage.decide.scheduling.score import best
from moorage.decide.scheduling.snapshot import Placement, Request, Room, SchedulingSnapshot, owner_of
from moorage.domain.changes import Change, Fence, Hold, Update
from moorage.domain.nouns import Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import MachineState

ACTOR = "controller:scheduler"


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the fleet found for one worker."""

    fits: tuple[Room, ...]
    refused: tuple[tuple[Room, tuple[Reason, ...]], ...]


@dataclass(frozen=True, slots=True)
class Cycle:
    """Result of a cycle: a change per worker that is placed or newly explained, and the next deadline."""

    changes: tuple[Change, ...]
    wake_at: float | None


def ordered(pending: Iterable[Worker], snapshot: SchedulingSnapshot) -> list[Worker]:
    """Workers in the order in which they are looked at."""

    def key(worker: Worker) -> tuple[int, float, int, str]:
        run = snapshot.runs.get(worker.run)
        return (-(run.priority if run else 0), worker.queued_at, worker.rank, worker.uid)

    return sorted(pending, key=key)


def schedule(snapshot: SchedulingSnapshot, fence: Fence | None = None) -> Cycle:
    """Place what fits, explain the rest. See the recipe at the head of this module."""
    rooms = {room.machine.uid: room for room in snapshot.rooms}
    changes: list[Change] = []
    later: list[float] = []
    for worker in ordered(snapshot.pending, snapshot):
        if worker.restart_at is not None and worker.restart_at > snapshot.now:
            later.append(worker.restart_at)
            continue
        run = snapshot.runs.get(worker.run)
        if run is None or run.cancel is not None:
            continue
        request, placement = Request.of(worker), Placement.of(run)
        look = look_at(request, placement, owner_of(worker), rooms.values())
        if look.fits:
            room = best(request, list(look.fits))
            gpus = free_gpus(request, room)
            rooms[room.machine.uid] = taken(room, request, gpus, owner_of(worker))
            changes.append(_place(worker, room, request, gpus, now=snapshot.now, fence=fence))
        else:
            change = _explain(worker, request, look, fence)
            if change is not None:
                changes.append(change)
    return Cycle(tuple(changes), min(later, default=None))


def look_at(request: Request, placement: Placement, owner: str, rooms: Iterable[Room]) -> Look:
    """Every machine, with its reasons when it refuses."""
    fits: list[Room] = []
    refused: list[tuple[Room, tuple[Reason, ...]]] = []
    for room in rooms:
        if room.machine.state is MachineState.REMOVED:
            continue
        why = refusals(request, placement, owner, room)
        if why:
            refused.append((room, why))
        else:
            fits.append(room)
    return Look(tuple(fits), tuple(refused))


def taken(room: Room, request: Request, gpus: tuple[int, ...], owner: str) -> Room:
    """The room after one more placement."""
    return replace(
        room,
        cpu_milli=room.cpu_milli + request.cpu_milli,
        memory_bytes=room.memory_bytes + request.memory_bytes,
        gpus=room.gpus | frozenset(gpus),
        owners=room.owners | {owner},
    )


def waiting_reason(request: Request, look: Look) -> Reason:
    """Why a worker that fits nowhere waits: no machines, never fits, or not now."""
    rooms = [room for room, _ in look.refused]
    if not rooms:
        return reason("place.no_machines")
    never = [_never(request, room) for room in rooms]
    if all(never):
        return reason("place.never_fits", why=max(never, key=lambda w: w or "") or "")
    ready = sum(room.machine.state is MachineState.READY for room in rooms)
    return reason("place.no_machine_fits", ready=ready, total=len(rooms))


def _never(request: Request, room: Room) -> str | None:
    capacity: Mapping[str, Any] = room.machine.capacity
    if request.cpu_milli > room.limit_cpu_milli:
        return f"asks for {request.cpu_milli / 1000:g} cores, {room.machine.name} has {room.limit_cpu_milli / 1000:g}"
    if request.memory_bytes > room.limit_memory_bytes:
        return (
            f"asks for {request.memory_bytes / 2**30:.1f} GiB of memory, {room.machine.name} has "
            f"{room.limit_memory_bytes / 2**30:.1f}"
        )
    kind = [g for g in capacity.get("gpus", ()) if matches(request, g)]
    if len(kind) < request.gpus:
        return f"asks for {request.gpus} x {wanted(request)}, {room.machine.name} has {len(kind)}"
    return None


def _place(
    worker: Worker, room: Room, request: Request, gpus: tuple[int, ...], *, now: float, fence: Fence | None
) -> Change:
    epoch = worker.epoch + 1
    hold = Hold(
        machine=room.machine.uid,
        worker=worker.uid,
        epoch=epoch,
        gpus=gpus,
        cpu_milli=request.cpu_milli,
        memory_bytes=request.memory_bytes,
        limit_cpu_milli=room.limit_cpu_milli,
        limit_memory_bytes=room.limit_memory_bytes,
    )
    update = Update(
        "Worker",
        worker.uid,
        worker.version,
        fields={
            "machine": room.machine.uid,
            "machine_name": room.machine.name,
            "epoch": epoch,
            "gpus": gpus,
            "handed_over": True,
            "placed_at": now,
            "restart_at": None,
            "placement": None,
        },
        reason=reason("worker.placed", machine=room.machine.name),
    )
    return Change((update, hold), ACTOR, fence=fence)


def _explain(worker: Worker, request: Request, look: Look, fence: Fence | None) -> Change | None:
    why = waiting_reason(request, look)
    placement = {
        "machines": [
            {"machine": room.machine.name, "reasons": [r.to_wire() for r in reasons]} for room, reasons in look.refused
        ]
    }
    if same_reason(worker.reason, why) and _codes(worker.placement) == _codes(placement):
        return None
    update = Update("Worker", worker.uid, worker.version, fields={"placement": placement}, reason=why)
    return Change((update,), ACTOR, fence=fence)


def _codes(placement: Mapping[str, Any] | None) -> list[tuple[str, tuple[str, ...]]]:
    """Machine and reason codes: what must differ before a wait is written again."""
    machines = (placement or {}).get("machines", ())
    return sorted((m["machine"], tuple(r["code"] for r in m["reasons"])) for m in machines)
