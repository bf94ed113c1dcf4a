"""Why a unit waits, in codes, and what keeps it off each machine. Made by the predicates that decide (`feasible`).

Machines with the same reasons are found by their columns, so that a fleet of thousands costs a look at a few of them.
What is shown on a worker's row is bounded; `moor why` counts them all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from moorage.decide.scheduling.feasible import (
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
    ready = int(fleet.column("ready", lambda machine: machine.state is MachineState.READY).sum())
    return reason(_code(unit), ready=ready, total=len(fleet))


def _code(unit: Unit) -> str:
    if not unit.gang:
        return "place.no_machine_fits"
    return "place.gang_not_whole" if minimum_of(unit.run) is None else "place.min_not_whole"


def never(fleet: Fleet, ask: Ask) -> str:
    """Why no machine could ever take it, said of the machine that comes nearest."""
    rooms = (room for room in fleet.rooms() if in_pool(room.machine, ask))
    said = [(text, room.machine.name) for room in rooms if (text := _never(ask, room)) is not None]
    return max(said)[0] if said else ""


def _never(ask: Ask, room: Room) -> str | None:
    request, name = ask.request, room.machine.name
    if request.cpu_milli > room.limit_cpu_milli:
        return f"asks for {request.cpu_milli / 1000:g} cores, {name} has {room.limit_cpu_milli / 1000:g}"
    if request.memory_bytes > room.limit_memory_bytes:
        return f"asks for {show_size(request.memory_bytes)} of memory, {name} has {show_size(room.limit_memory_bytes)}"
    kind = [g for g in seen_gpus(room.machine) if matches(request, g)]
    return f"asks for {request.gpus} x {wanted(request)}, {name} has {len(kind)}" if len(kind) < request.gpus else None
