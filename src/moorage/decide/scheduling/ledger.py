"""What is free now, in columns, while one cycle takes from it: a copy of the fleet's, thrown away afterwards.

Every stage takes and gives here, so that what one unit was promised is gone for the next. `Spot` is a promise.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from moorage.decide.scheduling.fleet import Bits, Bools, Fleet, Ints, Rows, devices, lowest
from moorage.decide.scheduling.snapshot import Ask, Room
from moorage.domain.written import written_once

TOUCHED_MAX = 512
"""Machines taken from up to which answers kept for the whole fleet are mended; beyond they are made anew."""


@written_once
class Spot:
    """Room on one machine.

    Args:
        row: the machine's row in the fleet.
        gpus: bits of its GPUs.
        cpu_milli, memory_bytes: beside them.
    """

    row: int
    gpus: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0


class Ledger:
    """Free room of a fleet.

    Args:
        fleet: as it is before the cycle.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.cpu: Ints = fleet.base("cpu").copy()
        self.memory: Ints = fleet.base("memory").copy()
        self.gpus: Bits = fleet.base("gpus").copy()
        self.touched: set[int] | None = set()
        """rows that differ from the fleet's; None: any may"""
        self._owners: dict[str, dict[int, int]] = {}
        """owner -> row -> how many of its workers this cycle put there"""

    def copy(self) -> "Ledger":
        """Another one with the same free room."""
        other = Ledger.__new__(Ledger)
        other.fleet = self.fleet
        other.cpu, other.memory, other.gpus = self.cpu.copy(), self.memory.copy(), self.gpus.copy()
        other.touched = None if self.touched is None else set(self.touched)
        other._owners = {owner: dict(rows) for owner, rows in self._owners.items()}
        return other

    # Taking and giving

    def take(self, spot: Spot, owners: Iterable[str] = ()) -> None:
        """Take a spot; may go below zero, as a reservation does on a machine that is not free yet."""
        self._touch(spot.row)
        self.cpu[spot.row] -= spot.cpu_milli
        self.memory[spot.row] -= spot.memory_bytes
        if spot.gpus:
            self.gpus[spot.row] &= np.uint64(~spot.gpus & _WORD)
        for owner in owners:
            self._own(owner, spot.row, 1)

    def give(self, spot: Spot, owners: Iterable[str] = ()) -> None:
        """Give a spot back."""
        self._touch(spot.row)
        self.cpu[spot.row] += spot.cpu_milli
        self.memory[spot.row] += spot.memory_bytes
        if spot.gpus:
            self.gpus[spot.row] |= np.uint64(spot.gpus)
        for owner in owners:
            self._own(owner, spot.row, -1)

    def take_many(self, ask: Ask, row: int, count: int, owners: Iterable[str] = ()) -> list[Spot]:
        """Take room for so many workers alike on one machine; the caller knows that they fit."""
        request = ask.request
        self._touch(row)
        self.cpu[row] -= count * request.cpu_milli
        self.memory[row] -= count * request.memory_bytes
        words = [0] * count
        if request.gpus:
            free = kind = int(self.gpus[row] & self.fleet.kind(request)[row])
            for turn in range(count):
                words[turn] = lowest(free, request.gpus)
                free ^= words[turn]
            self.gpus[row] &= np.uint64(~(kind ^ free) & _WORD)
        for owner in owners:
            self._own(owner, row, count)
        return [Spot(row, word, request.cpu_milli, request.memory_bytes) for word in words]

    def _own(self, owner: str, row: int, count: int) -> None:
        rows = self._owners.setdefault(owner, {})
        rows[row] = rows.get(row, 0) + count

    def _touch(self, row: int) -> None:
        if self.touched is None:
            return
        self.touched.add(row)
        if len(self.touched) > TOUCHED_MAX:
            self.touched = None

    def spot(self, ask: Ask, row: int) -> Spot:
        """What this ask takes of that machine: the lowest free GPUs of its kind. The caller knows that it fits."""
        request = ask.request
        free = int(self.gpus[row] & self.fleet.kind(request)[row]) if request.gpus else 0
        return Spot(row, lowest(free, request.gpus), request.cpu_milli, request.memory_bytes)

    def fits(self, ask: Ask, row: int) -> bool:
        """Whether there is room now on a machine that takes such work at all."""
        request = ask.request
        if request.cpu_milli > self.cpu[row] or request.memory_bytes > self.memory[row]:
            return False
        return not request.gpus or int(self.gpus[row] & self.fleet.kind(request)[row]).bit_count() >= request.gpus

    # Questions about all machines

    def free_gpus(self, ask: Ask) -> Ints:
        """How many free GPUs of the asked kind each machine has."""
        found: Ints = np.bitwise_count(self.gpus & self.fleet.kind(ask.request)).astype(np.int64)
        return found

    def enough(self, ask: Ask, rows: Rows | None = None) -> Bools:
        """Machines (of these, or all) with room for one more such worker."""
        request = ask.request
        some = slice(None) if rows is None else rows
        found: Bools = (self.cpu[some] >= request.cpu_milli) & (self.memory[some] >= request.memory_bytes)
        if request.gpus:
            free = np.bitwise_count(self.gpus[some] & self.fleet.kind(request)[some])
            found &= free >= request.gpus
        return found

    def how_many(self, ask: Ask, rows: Ints, at_most: int) -> Ints:
        """How many such workers each of these machines takes, at most `at_most`."""
        request = ask.request
        found = np.full(len(rows), at_most, np.int64)
        if request.cpu_milli:
            found = np.minimum(found, self.cpu[rows] // request.cpu_milli)
        if request.memory_bytes:
            found = np.minimum(found, self.memory[rows] // request.memory_bytes)
        if request.gpus:
            free = np.bitwise_count(self.gpus[rows] & self.fleet.kind(request)[rows]).astype(np.int64)
            found = np.minimum(found, free // request.gpus)
        return found

    def rows_of(self, owner: str) -> set[int]:
        """Machines that have a worker of this owner, placed now or before."""
        now = (row for row, count in self._owners.get(owner, {}).items() if count > 0)
        return {*self.fleet.rows_of(owner), *now}

    def rows_of_any(self, owners: Iterable[str]) -> list[int]:
        """Machines that have a worker of one of these."""
        return list({row for owner in owners for row in self.rows_of(owner)})

    def room(self, row: int, owners: Iterable[str] = ()) -> Room:
        """The machine with all that is taken there now.

        Args:
            owners: who must be named among its owners if they have a worker there.
        """
        room = self.fleet.room(row)
        taken = int(self.fleet.base("gpus")[row]) & ~int(self.gpus[row]) & _WORD
        here = {owner for owner in owners if row in self.rows_of(owner)}
        return replace(
            room,
            cpu_milli=room.limit_cpu_milli - int(self.cpu[row]),
            memory_bytes=room.limit_memory_bytes - int(self.memory[row]),
            gpus=room.gpus | frozenset(devices(room.machine, taken)),
            owners=room.owners | here,
        )


_WORD = (1 << 64) - 1
