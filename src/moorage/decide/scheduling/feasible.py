"""Whether a worker fits a machine, and every reason why not. The scheduler and `why` both ask exactly this.

`mask` answers for the whole fleet at once and decides; `refusals` words it for one machine. A property test holds the
two together: a machine fits exactly when it has no refusal.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from moorage.decide.scheduling.fleet import Bools, Fleet, Ints, closed_by, matches, seen_gpus, usable
from moorage.decide.scheduling.ledger import Ledger
from moorage.decide.scheduling.means import means_refusals, port_owner, suits
from moorage.decide.scheduling.snapshot import Ask, Request, Room, Topology
from moorage.domain.nouns import Machine
from moorage.domain.reasons import Reason, reason
from moorage.domain.units import show_size

_DETAIL = {"node.not_ready": "state", "node.cordoned": "why", "node.refuses_runs": "why", "node.pressure": "condition"}
"""The param of each reason that closes a machine."""


def mask(ledger: Ledger, ask: Ask, apart: Sequence[str] = ()) -> Bools:
    """The machines on which one such worker fits now.

    Args:
        apart: it takes a machine on which none of these has a worker yet.
    """
    found = takes(ledger.fleet, ask) & ledger.enough(ask)
    if apart:
        found[ledger.rows_of_any(apart)] = False
    return found


def takes(fleet: Fleet, ask: Ask) -> Bools:
    """The machines that are open and take such work, whatever is free there."""
    found: Bools = fleet.base("open").copy()
    for column in _suits(fleet, ask):
        found &= column
    return found


def _suits(fleet: Fleet, ask: Ask) -> Iterator[Bools]:
    """One column for each rule between the work and a machine."""
    for key, value in ask.labels:
        yield fleet.column(("label", key, value), partial(_labelled, key=key, value=value))
    if ask.pool:
        yield pooled(fleet, ask)
    labels = (*ask.labels, *ask.pool)
    yield fleet.column(("accepts", labels), partial(_accepts, labels=labels))
    yield fleet.column(("engine", ask.runner), lambda machine: ask.runner in machine.engines)
    if ask.means.capabilities or ask.means.drives:
        means = ("means", ask.means.capabilities, ask.means.drives)
        yield fleet.column(means, lambda machine: suits(machine, ask.means))
    if ask.machines:
        yield fleet.column(("named", ask.machines), lambda machine: machine.name in ask.machines)


def parts(ledger: Ledger, ask: Ask, apart: Sequence[str]) -> Iterator[Bools]:
    """What `mask` is made of, one column a rule: machines whose columns are the same refuse for the same reasons."""
    request = ask.request
    yield from _suits(ledger.fleet, ask)
    yield ledger.cpu >= request.cpu_milli
    yield ledger.memory >= request.memory_bytes
    if request.gpus:
        yield ledger.free_gpus(ask) >= request.gpus
        yield ledger.fleet.kind(of_any_health(request)) > 0
        yield (ledger.fleet.kind(of_any_health(request)) & ~ledger.fleet.base("usable")) == 0
    for owner in apart:
        column = np.ones(ledger.fleet.height, np.bool_)
        column[list(ledger.rows_of(owner))] = False
        yield column


def ever(fleet: Fleet, ask: Ask) -> Bools:
    """The machines that could hold one such worker if nothing else were there."""
    request = ask.request
    found: Bools = (fleet.base("limit_cpu") >= request.cpu_milli) & (fleet.base("limit_memory") >= request.memory_bytes)
    if request.gpus:
        found &= np.bitwise_count(fleet.kind(of_any_health(request))) >= request.gpus
    found &= fleet.base("here")
    return found & pooled(fleet, ask) if ask.pool else found


def capacity(fleet: Fleet, ask: Ask, rows: Ints) -> Ints:
    """How many such workers each of these machines would hold if nothing else were there."""
    request = ask.request
    found = np.full(len(rows), 1 << 31)
    if request.cpu_milli:
        found = np.minimum(found, fleet.base("limit_cpu")[rows] // request.cpu_milli)
    if request.memory_bytes:
        found = np.minimum(found, fleet.base("limit_memory")[rows] // request.memory_bytes)
    if request.gpus:
        kind = np.bitwise_count(fleet.kind(of_any_health(request))[rows]).astype(np.int64)
        found = np.minimum(found, kind // request.gpus)
    return found


def pooled(fleet: Fleet, ask: Ask) -> Bools:
    """The machines that the worker's namespace may use."""
    found: Bools = fleet.column(("pool", ask.pool), partial(in_pool, ask=ask)) & fleet.base("here")
    return found


def in_pool(machine: Machine, ask: Ask) -> bool:
    """Whether the worker's namespace may use this machine."""
    return all(_labelled(machine, key=key, value=value) for key, value in ask.pool)


def of_any_health(request: Request) -> Request:
    """The same GPUs, healthy or at risk: a risk passes, a model does not change."""
    return Request(
        gpus=request.gpus,
        vendor=request.vendor,
        models=request.models,
        gpu_memory_bytes=request.gpu_memory_bytes,
    )


def _labelled(machine: Machine, *, key: str, value: str) -> bool:
    return str(machine.labels.get(key)) == value


def _accepts(machine: Machine, *, labels: Sequence[tuple[str, str]]) -> bool:
    """Whether the work selects one of the labels that the machine insists on, if it insists on any.

    Args:
        labels: that the work selects, by itself or by the pool of its namespace.
    """
    offered = {entry for key, value in labels for entry in (key, f"{key}={value}")}
    return not machine.accepts or any(entry in offered for entry in machine.accepts)


def with_fabric(fleet: Fleet, topology: Topology) -> Bools:
    """The machines with an active port of the fabric that a run wants, fast enough."""
    fabric, gbps = topology.fabric, topology.min_gbps
    found: Bools = fleet.column(("fabric", fabric, gbps), lambda machine: _fastest(machine, fabric) >= max(gbps, 0.0))
    return found


def required(fleet: Fleet, topology: Topology | None) -> Bools | None:
    """The machines to which a run must keep, however long it waits; None: any that take it."""
    if topology is None or topology.fabric is None or not topology.required:
        return None
    return with_fabric(fleet, topology)


def _fastest(machine: Machine, fabric: str | None) -> float:
    """Gb/s of the fastest active port of that fabric; -1 without one. `rdma` is any fabric."""
    ports = (p for p in machine.capacity.get("fabrics") or () if p.get("active", True))
    return max((float(p.get("gbps") or 0) for p in ports if fabric in (p.get("fabric"), "rdma")), default=-1.0)


# In words, for one machine


def fabric_refusals(machine: Machine, topology: Topology) -> Iterator[Reason]:
    """Why a machine does not have the fabric that a run wants."""
    fastest = _fastest(machine, topology.fabric)
    if fastest < 0:
        yield reason("node.no_rdma")
    elif fastest < topology.min_gbps:
        yield reason("node.slow_fabric", gbps=topology.min_gbps, fastest=fastest)


def refusals(ask: Ask, room: Room, apart: Sequence[str] = ()) -> tuple[Reason, ...]:
    """Every reason that keeps the worker off this machine; empty means it fits now."""
    return tuple(_machine_refusals(room.machine)) or tuple(_work_refusals(ask, room, apart))


def _machine_refusals(machine: Machine) -> Iterator[Reason]:
    for code, detail in closed_by(machine):
        yield reason(code, **({_DETAIL[code]: detail} if code in _DETAIL else {}))


def _work_refusals(ask: Ask, room: Room, apart: Sequence[str]) -> Iterator[Reason]:
    machine, request = room.machine, ask.request
    if not in_pool(machine, ask):
        yield reason("node.outside_pool", labels=", ".join(f"{key}={value}" for key, value in ask.pool))
    if ask.machines and machine.name not in ask.machines:
        yield reason("node.not_selected")
    for key, value in ask.labels:
        if not _labelled(machine, key=key, value=value):
            yield reason("node.lacks_label", k=key, v=value)
    if not _accepts(machine, labels=(*ask.labels, *ask.pool)):
        yield reason("node.label_not_accepted")
    if ask.runner not in machine.engines:
        yield reason("node.no_engine", runner=ask.runner)
    ports = {port_owner(port): port for port in ask.means.ports}
    yield from means_refusals(ask.means, machine, (p for owner, p in ports.items() if owner in room.owners))
    if any(owner in room.owners for owner in apart if owner not in ports):
        yield reason("node.holds_worker")
    if request.cpu_milli > room.free_cpu_milli:
        yield reason("node.cpu", need=request.cpu_milli, free=max(0, room.free_cpu_milli))
    if request.memory_bytes > room.free_memory_bytes:
        yield reason("node.memory", need=request.memory_bytes, free=max(0, room.free_memory_bytes))
    if request.gpus:
        yield from _gpu_refusals(request, room)


def _gpu_refusals(request: Request, room: Room) -> Iterator[Reason]:
    kind = [g for g in seen_gpus(room.machine) if matches(request, g)]
    if not kind:
        yield reason("node.no_gpu_match", wanted=wanted(request))
        return
    free = [g for g in kind if int(g["index"]) not in room.gpus]
    good = [g for g in free if usable(g)]
    healthy = [g for g in good if g.get("health", "ok") == "ok"]
    if len(healthy if request.healthy_only else good) >= request.gpus:
        return
    if request.healthy_only:
        yield reason("node.healthy_gpus", need=request.gpus, free=len(healthy), at_risk=len(good) - len(healthy))
    else:
        yield reason("node.gpus", need=request.gpus, free=len(good))
    for gpu in free:
        yield from _spoilt(gpu)


def _spoilt(gpu: Mapping[str, Any]) -> Iterator[Reason]:
    """What keeps all work off one GPU."""
    if gpu.get("health") == "faulty" and gpu.get("fault"):
        yield reason("node.gpu_fault", index=int(gpu["index"]), fault=str(gpu["fault"]))
    if gpu.get("foreign_bytes"):
        yield reason("node.gpu_foreign", index=int(gpu["index"]), bytes=int(gpu["foreign_bytes"]))


def wanted(request: Request) -> str:
    """The kind of GPU asked for, in words."""
    parts = [request.vendor or "", " or ".join(request.models)]
    text = " ".join(p for p in parts if p) or "GPU"
    if request.gpu_memory_bytes:
        text += f" with at least {show_size(request.gpu_memory_bytes)}"
    return text
