"""Why a unit waits, in codes, and what keeps it off each machine. Made by the predicates that decide (`feasible`).

Machines with the same reasons are found by their columns, so that a fleet of thousands costs a look at a few of them.
What is shown on a worker's row is bounded; `moor why` counts them all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from moorage.decide.scheduling.feasible import (
    capacity,
    ever,
    fabric_refusals,
    in_pool,
    parts,
    pooled,
    refusals,
    wanted,
    with_fabric,
)
from moorage.decide.scheduling.fleet import Fleet, Ints, matches, rack_of, seen_gpus
from moorage.decide.scheduling.ledger import Ledger
from moorage.decide.scheduling.order import Entry, Unit, minimum_of
from moorage.decide.scheduling.snapshot import Ask, Room
from moorage.domain.catalogue import ANOTHER_NAMESPACE
from moorage.domain.nouns import Run
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import MachineState
from moorage.domain.units import show_size

ALL_MACHINES_MAX = 32
"""Machines up to which a worker's row lists every one; of more it lists examples of each set of reasons."""

EXAMPLES = 3


@dataclass(frozen=True, slots=True, eq=False)
class Refused:
    """Machines that refuse a worker for the same reasons.

    Args:
        rows: all of them, by name.
        reasons: of the first one (numbers may differ on the others).
    """

    rows: Ints
    reasons: tuple[Reason, ...]


def named(run: Run, beside: Run) -> str:
    """The name of a run as somebody in `beside`'s namespace may see it."""
    return run.name or run.uid if run.namespace == beside.namespace else ANOTHER_NAMESPACE


# Which machines, and why not


def groups(ledger: Ledger, entry: Entry) -> list[Refused]:
    """Machines that refuse this worker, by what refuses it; the largest group first."""
    columns = [*parts(ledger, entry.ask, entry.apart), *_topology_parts(ledger, entry)]
    signature = np.zeros(ledger.fleet.height, np.int64)
    for at, column in enumerate(columns):
        signature |= (~column).astype(np.int64) << at
    rows = ledger.fleet.by_name
    closed = ~ledger.fleet.base("open")[rows]
    # Closed machines differ by state, cordon and pressure, which only their own words tell apart.
    out = [*_by_words(ledger, entry, rows[closed]), *_by_signature(ledger, entry, rows[~closed], signature)]
    return sorted(out, key=lambda refused: -len(refused.rows))


def _by_signature(ledger: Ledger, entry: Entry, rows: Any, signature: Any) -> Iterator[Refused]:
    for value in np.unique(signature[rows]):
        alike = rows[signature[rows] == value]
        why = machine_refusals(ledger, entry, int(alike[0]))
        if why:
            yield Refused(alike, why)


def _by_words(ledger: Ledger, entry: Entry, rows: Any) -> list[Refused]:
    found: dict[tuple[str, ...], tuple[list[int], tuple[Reason, ...]]] = {}
    for row in rows:
        why = machine_refusals(ledger, entry, int(row))
        found.setdefault(tuple(r.message for r in why), ([], why))[0].append(int(row))
    return [Refused(np.array(alike), why) for alike, why in found.values()]


def machine_refusals(ledger: Ledger, entry: Entry, row: int) -> tuple[Reason, ...]:
    """Every reason that keeps a worker off one machine, rules about its run's other machines included."""
    room = ledger.room(row, entry.apart)
    why = refusals(entry.ask, room, entry.apart)
    return (
        why if room.machine.state is not MachineState.READY else (*why, *_topology_refusals(ledger, entry, room, row))
    )


def _topology_parts(ledger: Ledger, entry: Entry) -> Iterator[Any]:
    if entry.topology is not None and entry.topology.fabric is not None:
        yield with_fabric(ledger.fleet, entry.topology)
    if entry.topology is not None and (used := ledger.rows_of(entry.owner)):
        same = np.array([row in used for row in range(ledger.fleet.height)])
        yield same
        yield np.isin(ledger.fleet.racks, [int(ledger.fleet.racks[row]) for row in used])
        yield ledger.fleet.racks > 0


def _topology_refusals(ledger: Ledger, entry: Entry, room: Room, row: int) -> Iterator[Reason]:
    topology = entry.topology
    if topology is None:
        return
    used = ledger.rows_of(entry.owner)
    rack, racks = rack_of(room.machine), {rack_of(ledger.fleet.room(r).machine) for r in used}
    needs_rack = topology.keep == "rack" or topology.one_per_rack
    if needs_rack and rack is None:
        yield reason("node.no_rack_label")
    elif topology.keep == "rack" and used and rack not in racks:
        yield reason("node.kept_rack", r=min(str(r) for r in racks))
    elif topology.one_per_rack and rack in racks:
        yield reason("node.rack_used", r=str(rack))
    if topology.keep == "machine" and used and row not in used:
        yield reason("node.kept_machine", m=ledger.fleet.room(min(used)).machine.name)
    if topology.fabric is not None and topology.required:
        yield from fabric_refusals(room.machine, topology)
    if topology.max_machines is not None and row not in used and len(used) >= topology.max_machines:
        yield reason("node.max_machines", n=topology.max_machines)


def placement_of(ledger: Ledger, entry: Entry) -> dict[str, Any]:
    """The per-machine reasons kept on a worker's row."""
    found = groups(ledger, entry)
    total = sum(len(refused.rows) for refused in found)
    shown = [
        (row, refused.reasons if row == refused.rows[0] else machine_refusals(ledger, entry, row))
        for refused in found
        for row in refused.rows[: None if total <= ALL_MACHINES_MAX else EXAMPLES]
    ]
    shown.sort(key=lambda one: int(ledger.fleet.ranks[one[0]]))
    machines = [
        {"machine": ledger.fleet.room(row).machine.name, "reasons": [r.to_wire() for r in why]} for row, why in shown
    ]
    return {"machines": machines, **({"machines_total": total} if total > len(machines) else {})}


# The one reason


def plain_wait(unit: Unit, fleet: Fleet) -> Reason:
    """Why a unit waits that nothing in the queue keeps waiting: no machines, never fits, or not now."""
    asks = {id(e.ask): e.ask for e in unit.members}.values()
    if not len(fleet) or any(ask.pool and not pooled(fleet, ask).any() for ask in asks):
        return reason("place.no_machines")
    for ask in asks:
        if not ever(fleet, ask).any():
            return reason("place.never_fits", why=never(fleet, ask))
    too_many = never_whole(unit, fleet) if unit.gang else None
    if too_many is not None:
        return reason("place.never_fits", why=too_many)
    ready = int(fleet.column("ready", lambda machine: machine.state is MachineState.READY).sum())
    return reason(_code(unit), ready=ready, total=len(fleet))


def _code(unit: Unit) -> str:
    if not unit.gang:
        return "place.no_machine_fits"
    return "place.gang_not_whole" if minimum_of(unit.run) is None else "place.min_not_whole"


def never(fleet: Fleet, ask: Ask) -> str:
    """Why no machine could ever take it, said of the machine that lacks the fewest things, and least of them."""
    rooms = (room for room in fleet.rooms() if in_pool(room.machine, ask))
    said = [(_lacks(ask, room), room.machine.name) for room in rooms]
    lacking = [
        (len(lacks), -min(lack.part for lack in lacks), name, "; it ".join(lack.said for lack in lacks))
        for lacks, name in said
        if lacks
    ]
    return min(lacking)[3] if lacking else ""


@dataclass(frozen=True, slots=True)
class _Lack:
    """Something that a machine has too little of: in words, and which part of it is there."""

    said: str
    part: float


def _lacks(ask: Ask, room: Room) -> list[_Lack]:
    request, name = ask.request, room.machine.name
    found: list[_Lack] = []
    cpu, memory = room.limit_cpu_milli, room.limit_memory_bytes
    if request.cpu_milli > cpu:
        said = f"asks for {request.cpu_milli / 1000:g} cores, {name} has {cpu / 1000:g}"
        found.append(_Lack(said, cpu / request.cpu_milli))
    if request.memory_bytes > memory:
        said = f"asks for {show_size(request.memory_bytes)} of memory, {name} has {show_size(memory)}"
        found.append(_Lack(said, memory / request.memory_bytes))
    kind = sum(matches(request, gpu) for gpu in seen_gpus(room.machine))
    if kind < request.gpus:
        said = f"asks for {request.gpus} x {wanted(request)}, {name} has {kind}"
        found.append(_Lack(said, kind / request.gpus))
    return found


def never_whole(unit: Unit, fleet: Fleet) -> str | None:
    """Why all machines together could never take a gang whole, each kind of member looked at by itself; or None."""
    counts: dict[int, list[Entry]] = {}
    for entry in unit.members:
        counts.setdefault(id(entry.ask), []).append(entry)
    for entries in counts.values():
        most = _most(fleet, entries[0])
        if most < len(entries):
            request = entries[0].ask.request
            each = f"{request.gpus} x {wanted(request)}" if request.gpus else "their size"
            return f"asks for {len(entries)} workers of {each} at once, the machines hold {most} of them at most"
    return None


def _most(fleet: Fleet, entry: Entry) -> int:
    """How many such workers the machines would hold if nothing else were there, its rules about machines kept."""
    topology, rows = entry.topology, np.flatnonzero(ever(fleet, entry.ask))
    room = capacity(fleet, entry.ask, rows)
    if entry.apart:
        room = np.minimum(room, 1)
    if topology is None:
        return int(room.sum())
    racks = fleet.racks[rows]
    if topology.one_per_rack:
        return len(np.unique(racks[(racks > 0) & (room > 0)]))
    if topology.keep == "rack":
        return int(np.bincount(racks, weights=room * (racks > 0)).max(initial=0))
    machines = 1 if topology.keep == "machine" else topology.max_machines
    return int(np.sort(room)[::-1][:machines].sum())
