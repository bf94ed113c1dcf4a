"""Places many workers alike at once, where their order cannot matter: either all of them get room or none does.

Workers of one priority that are placed alone and differ by their asks only get the same room in whatever order they are
looked at, as long as there is room for all; only which GPU goes to whom differs. So a long stretch of the queue is
tried as a whole, one ask after the other in columns; when it does not fit, its first half is. What is left in the end
is looked at one by one. Called by `assign`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from moorage.decide.scheduling.feasible import mask
from moorage.decide.scheduling.fleet import Bits, Ints
from moorage.decide.scheduling.gang import Found
from moorage.decide.scheduling.ledger import Ledger, Spot
from moorage.decide.scheduling.line import Line
from moorage.decide.scheduling.order import Entry
from moorage.decide.scheduling.queued import Alike
from moorage.decide.scheduling.score import Mix, keys
from moorage.decide.scheduling.snapshot import Ask

BULK_MIN = 32
"""Stretches shorter than this are looked at one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class Fill:
    """Room for workers alike, in columns: one object for each of 80,000 workers would cost more than finding it.

    Args:
        entries: who gets it.
        rows: the machine of each.
        words: bits of the GPUs of each.
    """

    entries: Sequence[Entry]
    rows: Ints
    words: Bits

    def __len__(self) -> int:
        return len(self.entries)

    def found(self) -> Iterator[Found]:
        """The same as for units that were looked at one by one."""
        request = self.entries[0].ask.request
        cpu, memory = request.cpu_milli, request.memory_bytes
        for entry, row, word in zip(self.entries, self.rows.tolist(), self.words.tolist(), strict=True):
            yield [(entry, Spot(row, word, cpu, memory))]


def place(ledger: Ledger, line: Line, where: Ints, mix: Mix) -> tuple[list[Fill], int]:
    """Room for the longest beginning of some units that was found to fit whole, taken from the ledger; its length.

    Args:
        where: their places in the line; each is plain.
    """
    placed: list[Fill] = []
    at, size = 0, len(where)
    while size >= BULK_MIN and at < len(where):
        fills = _all(ledger, line, where[at : at + size], mix)
        if fills is None:
            size //= 2
            continue
        placed += fills
        at += size
        size = min(size, len(where) - at)
    return placed, at


def _all(ledger: Ledger, line: Line, where: Ints, mix: Mix) -> list[Fill] | None:
    """Room for all of them, taken; or None, and nothing taken."""
    before = ledger.cpu.copy(), ledger.memory.copy(), ledger.gpus.copy()
    found: list[tuple[Ints, Ints, Bits]] = []
    for alike, some in _by_alike(line, where):
        room = _fill(ledger, alike.ask, len(some), mix)
        if room is None:
            ledger.cpu, ledger.memory, ledger.gpus = before
            return None
        found.append((some, *room))
    return [Fill([line.units[at].members[0] for at in some.tolist()], rows, words) for some, rows, words in found]


def _by_alike(line: Line, where: Ints) -> Iterator[tuple[Alike, Ints]]:
    """Places of units alike together, in the order in which each kind is seen first."""
    numbers = line.alike[where]
    order = np.argsort(numbers, kind="stable")
    begins = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    kinds = sorted(np.split(where[order], begins[1:]), key=lambda some: int(some[0]))
    for some in kinds:
        alike = line.alikes[line.alike[some[0]]]
        if alike is not None:
            yield alike, some


def _fill(ledger: Ledger, ask: Ask, count: int, mix: Mix) -> tuple[Ints, Bits] | None:
    """A machine and GPUs for each of so many workers, taken; or None, and nothing taken."""
    rows = np.flatnonzero(mask(ledger, ask))
    room = ledger.how_many(ask, rows, count)
    if int(room.sum()) < count:
        return None
    order = np.argsort(keys(ledger, ask, rows, mix))
    rows, room = rows[order], room[order]
    counts = np.minimum(room, np.maximum(0, count - (np.cumsum(room) - room)))
    rows, counts = rows[counts > 0], counts[counts > 0]
    request = ask.request
    ledger.touched = None
    ledger.cpu[rows] -= counts * request.cpu_milli
    ledger.memory[rows] -= counts * request.memory_bytes
    return np.repeat(rows, counts), _take_gpus(ledger, ask, rows, counts)


def _take_gpus(ledger: Ledger, ask: Ask, rows: Ints, counts: Ints) -> Bits:
    """The lowest free GPUs of the asked kind for each worker, machine after machine; taken from the ledger."""
    each = ask.request.gpus
    if not each:
        return np.zeros(int(counts.sum()), np.uint64)
    free = ledger.gpus[rows] & ledger.fleet.kind(ask.request)[rows]
    most = int(counts.max(initial=0))
    words = np.zeros((len(rows), most), np.uint64)
    for turn in range(most):
        takers = counts > turn
        for _ in range(each):
            bit = np.where(takers, free & (~free + np.uint64(1)), np.uint64(0))
            words[:, turn] |= bit
            free ^= bit
    ledger.gpus[rows] &= ~np.bitwise_or.reduce(words, axis=1)
    taken: Bits = words[np.arange(most)[None, :] < counts[:, None]]
    return taken
