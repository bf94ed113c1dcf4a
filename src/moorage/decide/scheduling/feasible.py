"""Whether a worker fits a machine, and every reason why not. The scheduler and `why` both call exactly this."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moorage.decide.scheduling.snapshot import Placement, Request, Room
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import MachineState


def refusals(request: Request, placement: Placement, owner: str, room: Room) -> tuple[Reason, ...]:
    """Every reason that keeps the worker off this machine; empty means it fits now."""
    return tuple(_machine_refusals(room)) or tuple(_work_refusals(request, placement, owner, room))


def _machine_refusals(room: Room) -> Iterator[Reason]:
    machine = room.machine
    if machine.state is not MachineState.READY:
        yield reason("node.not_ready", state=str(machine.state))
    if not machine.capacity:
        yield reason("node.no_capacity")
    if machine.cordoned is not None:
        yield reason("node.cordoned", why=machine.cordoned)
    for condition in machine.pressure:
        yield reason("node.pressure", condition=condition)


def _work_refusals(request: Request, placement: Placement, owner: str, room: Room) -> Iterator[Reason]:
    machine = room.machine
    labels: Mapping[str, Any] = machine.labels
    if placement.machines and machine.name not in placement.machines:
        yield reason("node.not_selected")
    for key, value in placement.labels.items():
        if str(labels.get(key)) != str(value):
            yield reason("node.lacks_label", k=key, v=value)
    if machine.accepts and not _accepted(machine.accepts, placement.labels):
        yield reason("node.label_not_accepted")
    if placement.runner not in machine.engines:
        yield reason("node.no_engine", runner=placement.runner)
    if placement.spread == "machine" and owner in room.owners:
        yield reason("node.holds_worker")
    if request.cpu_milli > room.free_cpu_milli:
        yield reason("node.cpu", need=request.cpu_milli, free=max(0, room.free_cpu_milli))
    if request.memory_bytes > room.free_memory_bytes:
        yield reason("node.memory", need=request.memory_bytes, free=max(0, room.free_memory_bytes))
    if request.gpus:
        yield from _gpu_refusals(request, room)


def _accepted(accepts: Sequence[str], labels: Mapping[str, str]) -> bool:
    return any(entry in labels or entry in {f"{k}={v}" for k, v in labels.items()} for entry in accepts)


def _gpu_refusals(request: Request, room: Room) -> Iterator[Reason]:
    kind = [g for g in room.machine.capacity.get("gpus", ()) if matches(request, g)]
    if len(kind) == 0:
        yield reason("node.no_gpu_match", wanted=wanted(request))
        return
    free = [g for g in kind if int(g["index"]) not in room.gpus]
    usable = [g for g in free if g.get("health", "ok") != "faulty"]
    if request.healthy_only:
        healthy = [g for g in usable if g.get("health", "ok") == "ok"]
        if len(healthy) < request.gpus:
            yield reason("node.healthy_gpus", need=request.gpus, free=len(healthy), at_risk=len(usable) - len(healthy))
    elif len(usable) < request.gpus:
        yield reason("node.gpus", need=request.gpus, free=len(usable))


def free_gpus(request: Request, room: Room) -> tuple[int, ...]:
    """Indexes of the GPUs this request would take, lowest first; shorter than asked when it does not fit."""
    usable = [
        int(g["index"])
        for g in room.machine.capacity.get("gpus", ())
        if matches(request, g)
        and int(g["index"]) not in room.gpus
        and g.get("health", "ok") != "faulty"
        and (not request.healthy_only or g.get("health", "ok") == "ok")
    ]
    return tuple(sorted(usable)[: request.gpus])


def matches(request: Request, gpu: Mapping[str, Any]) -> bool:
    """Whether a GPU is of the kind asked for."""
    return (
        (request.vendor is None or gpu.get("vendor") == request.vendor)
        and (not request.models or gpu.get("model") in request.models)
        and int(gpu.get("memory_bytes", 0)) >= request.gpu_memory_bytes
    )


def wanted(request: Request) -> str:
    """The kind asked for, in words."""
    parts = [request.vendor or "", " or ".join(request.models)]
    text = " ".join(p for p in parts if p) or "GPU"
    if request.gpu_memory_bytes:
        text += f" with at least {request.gpu_memory_bytes / 2**30:.0f} GiB"
    return text
