"""The fleet in columns: one NumPy array a fact, one row a machine. Kept up row by row or built whole, with one result.

Facts that a question needs (a label, an engine, a kind of GPU) become a column the first time it is asked and are kept
up from then on, so that a look at 10,000 machines is a few operations on arrays. A machine's GPUs are the bits of one
64-bit word, in the order in which it reports them. What a cycle takes is taken in a `Ledger`, a copy; nothing here
changes during a cycle.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from moorage.decide.scheduling.snapshot import Request, Room
from moorage.domain.nouns import Machine
from moorage.domain.states import MachineState

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

GPUS_MAX = 64
"""GPUs of one machine that are seen: one word of bits. Machines of today have up to 16."""

COLUMNS_MAX = 512
"""Columns made by questions before all of them are dropped and made anew as they are asked for."""

KEPT_MAX = 256
"""Columns of answers that are kept up (`Fleet.kept`), before all of them are made anew: 20 MB for 10,000 machines."""

RACK_LABEL = "moorage/rack"


class Fleet:
    """Machines and what is held on them.

    Args:
        rooms: what is there at first.
    """

    def __init__(self, rooms: Iterable[Room] = ()) -> None:
        self._rooms: list[Room | None] = []
        self._index: dict[str, int] = {}
        self._vacant: list[int] = []
        self._size = 0
        self._base: dict[str, npt.NDArray[Any]] = {name: np.zeros(0, dtype) for name, dtype in _BASE.items()}
        self._asked: dict[Hashable, tuple[npt.NDArray[Any], Callable[[Machine], Any]]] = {}
        self._ranks: Ints | None = None
        self._by_name: Ints | None = None
        self._kept: dict[Hashable, tuple[Ints, int]] = {}
        """answers, and how many of `_changed` they know of"""
        self._changed: list[int] = []
        """rows in the order in which they changed, since the answers were last made anew"""
        self._racks: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._owners: dict[str, set[int]] = {}
        for room in rooms:
            self.put(room)

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, uid: str) -> bool:
        return uid in self._index

    @property
    def height(self) -> int:
        """Rows of every column; some may be vacant."""
        return len(self._rooms)

    def rooms(self) -> Iterator[Room]:
        """Every machine's room."""
        return (room for room in self._rooms if room is not None)

    def row(self, uid: str) -> int:
        """The row of a machine.

        Raises:
            KeyError: it is not there.
        """
        return self._index[uid]

    def row_named(self, name: str | None) -> int | None:
        """The row of the machine of that name, if there is one."""
        return self._names.get(name or "")

    def room(self, row: int) -> Room:
        """The room in that row."""
        room = self._rooms[row]
        if room is None:
            raise KeyError(f"no machine in row {row}")
        return room

    # Keeping up

    def put(self, room: Room) -> None:
        """A machine joined or changed, or what is held there did."""
        if room.machine.state is MachineState.REMOVED:
            self.drop(room.machine.uid)
            return
        row = self._index.get(room.machine.uid)
        if row is None:
            row = self._vacant.pop() if self._vacant else self._grow()
            self._index[room.machine.uid] = row
        old = self._rooms[row]
        before = None if old is None else old.machine
        if before is None or before.name != room.machine.name:
            self._reorder()
            self._names.pop(before.name if before else "", None)
            self._names[room.machine.name] = row
        self._own(row, room.owners)
        self._rooms[row] = room
        self._write(row, room)
        self._note(row)
        if before is not room.machine:
            for column, of in self._asked.values():
                column[row] = of(room.machine)

    def drop(self, uid: str) -> None:
        """A machine is gone."""
        row = self._index.pop(uid, None)
        if row is None:
            return
        old = self._rooms[row]
        if old is not None and self._names.get(old.machine.name) == row:
            del self._names[old.machine.name]
        self._own(row, frozenset())
        self._rooms[row] = None
        self._vacant.append(row)
        self._reorder()
        for column in self._base.values():
            column[row] = 0
        for column, _ in self._asked.values():
            column[row] = 0

    def rows_of(self, owner: str) -> frozenset[int]:
        """Machines on which a deployment, or a run of its own, has a worker."""
        return frozenset(self._owners.get(owner, ()))

    def _reorder(self) -> None:
        self._ranks = self._by_name = None
        self._kept.clear()
        self._changed.clear()

    def _note(self, row: int) -> None:
        if not self._kept:
            return
        self._changed.append(row)
        if len(self._changed) > self.height + KEPT_MAX:
            self._kept.clear()
            self._changed.clear()

    def _own(self, row: int, owners: frozenset[str]) -> None:
        old = self._rooms[row]
        before = old.owners if old is not None else frozenset()
        for owner in before - owners:
            self._owners[owner].discard(row)
            if not self._owners[owner]:
                del self._owners[owner]
        for owner in owners - before:
            self._owners.setdefault(owner, set()).add(row)

    def _grow(self) -> int:
        if len(self._rooms) == self._size:
            more = max(16, self._size)
            self._size += more
            self._base = {name: _longer(column, more) for name, column in self._base.items()}
            self._asked = {key: (_longer(column, more), of) for key, (column, of) in self._asked.items()}
        self._rooms.append(None)
        return len(self._rooms) - 1

    def _write(self, row: int, room: Room) -> None:
        base, gpus = self._base, seen_gpus(room.machine)
        base["here"][row] = True
        base["open"][row] = not any(closed_by(room.machine))
        base["limit_cpu"][row], base["limit_memory"][row] = room.limit_cpu_milli, room.limit_memory_bytes
        base["cpu"][row], base["memory"][row] = room.free_cpu_milli, room.free_memory_bytes
        base["gpus"][row] = bits(i for i, g in enumerate(gpus) if int(g["index"]) not in room.gpus and usable(g))
        base["usable"][row] = bits(i for i, g in enumerate(gpus) if usable(g))

    # Columns

    def base(self, name: str) -> npt.NDArray[Any]:
        """A column that is always there: here, open, limit_cpu, limit_memory, cpu, memory,
        gpus (free), usable (GPUs, free or not)."""
        return self._base[name][: self.height]

    def column(self, key: Hashable, of: Callable[[Machine], Any], dtype: type = np.bool_) -> npt.NDArray[Any]:
        """The column of a fact about machines, made when first asked for.

        Args:
            key: names the fact.
            of: the fact of one machine; depends on nothing else.
        """
        found = self._asked.get(key)
        if found is None:
            if len(self._asked) >= COLUMNS_MAX:
                self._asked.clear()
            made: npt.NDArray[Any] = np.zeros(self._size, dtype)
            for row, room in enumerate(self._rooms):
                if room is not None:
                    made[row] = of(room.machine)
            found = self._asked[key] = (made, of)
        return found[0][: self.height]

    def kind(self, request: Request) -> Bits:
        """For each machine, which of its GPUs are of the kind asked for (and not at risk, with `healthy_only`)."""
        key = ("kind", request.vendor, request.models, request.gpu_memory_bytes, request.healthy_only)
        return self.column(key, lambda machine: kind_bits(request, machine), np.uint64)

    def kept(self, key: Hashable, of: Callable[[Rows], Ints]) -> Ints:
        """An answer for each machine, made when first asked for; later only for the machines that changed since.

        Args:
            key: names the question.
            of: the answers for these machines, from their columns.
        """
        found, known = self._kept.get(key, (None, 0))
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
                self._changed.clear()
            found = of(np.arange(self.height))
        elif known < len(self._changed):
            rows = np.unique(self._changed[known:])
            found[rows] = of(rows)
        self._kept[key] = (found, len(self._changed))
        return found

    @property
    def by_name(self) -> Ints:
        """Rows of the machines that are there, in the order of their names."""
        if self._by_name is None:
            here = np.flatnonzero(self.base("here"))
            self._by_name = here[np.argsort(self.ranks[here])]
        return self._by_name

    @property
    def ranks(self) -> Ints:
        """Place of each machine by name: what ties are broken by."""
        if self._ranks is None:
            self._ranks = np.full(self._size, self._size, np.int64)
            named = sorted((room.machine.name, uid) for uid, i in self._index.items() if (room := self._rooms[i]))
            for place, (_, uid) in enumerate(named):
                self._ranks[self._index[uid]] = place
        return self._ranks[: self.height]

    @property
    def racks(self) -> Ints:
        """A number for each machine's rack; 0 is a machine without one."""
        return self.column("rack", lambda machine: self._rack(rack_of(machine)), np.int64)

    def _rack(self, name: str | None) -> int:
        return 0 if name is None else self._racks.setdefault(name, len(self._racks) + 1)


_BASE: dict[str, type] = {
    "here": np.bool_,
    "open": np.bool_,
    "limit_cpu": np.int64,
    "limit_memory": np.int64,
    "cpu": np.int64,
    "memory": np.int64,
    "gpus": np.uint64,
    "usable": np.uint64,
}


def _longer(column: npt.NDArray[Any], more: int) -> npt.NDArray[Any]:
    return np.concatenate([column, np.zeros(more, column.dtype)])


# Facts about one machine


def closed_by(machine: Machine) -> Iterator[tuple[str, str | None]]:
    """What closes a machine to all new work: reason codes, each with its one detail."""
    if machine.state is not MachineState.READY:
        yield "node.not_ready", str(machine.state)
    if not machine.capacity:
        yield "node.no_capacity", None
    if machine.cordoned is not None:
        yield "node.cordoned", machine.cordoned
    elif machine.draining is not None:
        yield "node.refuses_runs", "it is being drained"
    for condition in machine.pressure:
        yield "node.pressure", condition


def seen_gpus(machine: Machine) -> tuple[dict[str, Any], ...]:
    """The GPUs a machine reports, in its order."""
    return tuple(machine.capacity.get("gpus") or ())[:GPUS_MAX]


def usable(gpu: dict[str, Any]) -> bool:
    """Whether work may use a GPU that nobody holds: no fault, and no memory taken by a process that is not ours."""
    return gpu.get("health", "ok") != "faulty" and not gpu.get("foreign_bytes")


def kind_bits(request: Request, machine: Machine) -> int:
    """Which GPUs of a machine are of the kind asked for."""
    return bits(
        i
        for i, gpu in enumerate(seen_gpus(machine))
        if matches(request, gpu) and (not request.healthy_only or gpu.get("health", "ok") == "ok")
    )


def matches(request: Request, gpu: dict[str, Any]) -> bool:
    """Whether a GPU is of the vendor, model and memory asked for."""
    return (
        (request.vendor is None or gpu.get("vendor") == request.vendor)
        and (not request.models or gpu.get("model") in request.models)
        and int(gpu.get("memory_bytes", 0)) >= request.gpu_memory_bytes
    )


def bits(positions: Iterable[int]) -> int:
    """A word with these bits set."""
    word = 0
    for position in positions:
        word |= 1 << position
    return word


def lowest(word: int, count: int) -> int:
    """The lowest `count` bits that are set in a word."""
    taken = 0
    for _ in range(count):
        bit = word & -word
        taken |= bit
        word ^= bit
    return taken


def devices(machine: Machine, word: int) -> tuple[int, ...]:
    """Device indexes of the GPUs whose bits are set."""
    return tuple(sorted(int(g["index"]) for i, g in enumerate(seen_gpus(machine)) if word >> i & 1))


def word_of(machine: Machine, held: Iterable[int]) -> int:
    """The reverse of `devices`."""
    wanted = set(held)
    return bits(i for i, g in enumerate(seen_gpus(machine)) if int(g["index"]) in wanted)


def rack_of(machine: Machine) -> str | None:
    """The rack a machine stands in."""
    name = machine.labels.get(RACK_LABEL)
    return None if name is None else str(name)
