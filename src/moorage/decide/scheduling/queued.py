"""What waits, in order and in columns, kept up worker by worker: a cycle looks at kinds of work, not at workers.

Workers that are placed alone and differ in nothing that decides (`Alike`) share a number; a cycle finds out once what
they wait for. Called by `book`; `line` reads it.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from moorage.decide.scheduling.fleet import Ints
from moorage.decide.scheduling.likeness import Kinds
from moorage.decide.scheduling.order import Entry, Key, Unit, may_be_placed, order_key
from moorage.decide.scheduling.snapshot import Ask, Labels, owner_of
from moorage.domain.nouns import Run, Worker


class Stand(IntEnum):
    """Whether a waiting worker may be placed."""

    NOT = 0
    NOW = 1
    LATER = 2
    """from its `restart_at` on"""
    GANG = 3
    """as its gang stands"""


@dataclass(frozen=True, slots=True)
class Alike:
    """What plain workers have in common that wait for the same: nothing else about them decides."""

    ask: Ask
    priority: int
    namespace: str


_COLUMNS: dict[str, tuple[type, Any]] = {
    "alike": (np.int64, -1),
    "stand": (np.int8, 0),
    "limit": (np.float64, np.nan),
    "told": (np.int64, 0),
}
"""Number of its `Alike`, -1 for a worker apart; its `Stand`; seconds after which it is gone, nan without a limit;
number of the code that its row says it waits for, 0 for none."""


@dataclass(slots=True)
class Queue:
    """Waiting workers in order. Rows are put as they change; the result depends on the rows only."""

    pools: Mapping[str, Labels] = field(default_factory=dict)
    """by namespace, the labels of the machines that it may use; without an entry it may use all"""
    keeping: dict[str, Entry] = field(default_factory=dict)
    """those for whom room may be kept: they restart, or others were stopped for them"""
    alikes: list[Alike | None] = field(default_factory=list)
    """by number; None: nobody has it now"""
    codes: dict[str, int] = field(default_factory=lambda: {"": 0})
    """number of every code that was told; only grows"""
    _keys: list[Key] = field(default_factory=list)
    _order: "array[int]" = field(default_factory=lambda: array("q"))
    """slots in the order of `_keys`"""
    _slots: dict[str, int] = field(default_factory=dict)
    _vacant: list[int] = field(default_factory=list)
    _units: list[Unit | None] = field(default_factory=list)
    """by slot, each worker as a unit alone"""
    _columns: dict[str, npt.NDArray[Any]] = field(
        default_factory=lambda: {name: np.zeros(0, dtype) for name, (dtype, _) in _COLUMNS.items()}
    )
    _of_run: dict[str, set[str]] = field(default_factory=dict)
    """by uid of a run, its waiting workers"""
    _borrows: bool = False
    """the sets in `_of_run` are another's"""
    _kinds: Kinds = field(default_factory=Kinds)
    _numbers: dict[tuple[int, int, str], int] = field(default_factory=dict)
    _having: list[int] = field(default_factory=list)
    """how many workers have each number"""
    _spare: list[int] = field(default_factory=list)
    """numbers that nobody has"""

    @staticmethod
    def of(pending: Iterable[Worker], runs: Mapping[str, Run], pools: Mapping[str, Labels] | None = None) -> "Queue":
        """The queue of these workers; those whose run is unknown are left out."""
        queue = Queue(pools=pools or {})
        known = ((worker, run) for worker in pending if (run := runs.get(worker.run)) is not None)
        for worker, run in sorted(known, key=lambda one: order_key(*one)):
            queue.put(worker, run)
        return queue

    def copy(self) -> "Queue":
        """Another one with the same workers; of use until this one changes."""
        return Queue(
            self.pools,
            dict(self.keeping),
            list(self.alikes),
            dict(self.codes),
            list(self._keys),
            self._order[:],
            dict(self._slots),
            list(self._vacant),
            list(self._units),
            {name: column.copy() for name, column in self._columns.items()},
            dict(self._of_run),
            True,
            self._kinds.copy(),
            dict(self._numbers),
            list(self._having),
            list(self._spare),
        )

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Entry]:
        return (unit.members[0] for slot in self._order if (unit := self._units[slot]) is not None)

    def __contains__(self, uid: str) -> bool:
        return uid in self._slots

    def get(self, uid: str) -> Entry | None:
        """That worker, if it waits."""
        unit = self._units[self._slots[uid]] if uid in self._slots else None
        return None if unit is None else unit.members[0]

    @property
    def counts(self) -> dict[Ask, int]:
        """How many workers wait with each ask."""
        return self._kinds.counts()

    def of_run(self, run: str) -> list[Entry]:
        """Its waiting workers, in order."""
        found = (self.get(uid) for uid in self._of_run.get(run, ()))
        return sorted((entry for entry in found if entry is not None), key=lambda entry: entry.key)

    def priorities(self) -> set[int]:
        """Of everything that waits."""
        return {-key[0] for key in self._keys}

    def place(self, entry: Entry) -> int:
        """How many wait before this one."""
        return bisect_left(self._keys, entry.key)

    # What a cycle reads

    def slots(self) -> Ints:
        """Where each worker is kept, in order."""
        return np.array(self._order, np.int64)

    def column(self, name: str, slots: Ints) -> npt.NDArray[Any]:
        """One of `_COLUMNS` for these slots."""
        found: npt.NDArray[Any] = self._columns[name][slots]
        return found

    def units(self, slots: Ints) -> list[Unit]:
        """The workers in these slots, each a unit alone."""
        units = self._units
        return [unit for slot in slots.tolist() if (unit := units[slot]) is not None]

    # Keeping up

    def put(self, worker: Worker, run: Run) -> None:
        """A worker waits, or its row or its run changed."""
        self.drop(worker.uid)
        entry = self._entry(worker, run)
        slot = self._vacant.pop() if self._vacant else self._grow()
        at = bisect_left(self._keys, entry.key)
        self._keys.insert(at, entry.key)
        self._order.insert(at, slot)
        self._slots[worker.uid], self._units[slot] = slot, Unit((entry,))
        self._mates(run.uid).add(worker.uid)
        if worker.restart_at is not None or "plan" in (worker.placement or ()):
            self.keeping[worker.uid] = entry
        limit = np.nan if entry.limit_s is None else entry.limit_s
        values = (self._number(entry), _stand(entry), limit, self._told(worker))
        for name, value in zip(_COLUMNS, values, strict=True):
            self._columns[name][slot] = value

    def drop(self, uid: str) -> None:
        """It does not wait any more."""
        slot = self._slots.pop(uid, None)
        unit = self._units[slot] if slot is not None else None
        if slot is None or unit is None:
            return
        entry = unit.members[0]
        at = bisect_left(self._keys, entry.key)
        del self._keys[at], self._order[at]
        self._units[slot] = None
        self._vacant.append(slot)
        self.keeping.pop(uid, None)
        self._leave(int(self._columns["alike"][slot]))
        self._kinds.go(entry.ask)
        mates = self._mates(entry.run.uid)
        mates.discard(uid)
        if not mates:
            del self._of_run[entry.run.uid]

    def _grow(self) -> int:
        slot = len(self._units)
        self._units.append(None)
        if slot >= len(self._columns["alike"]):
            more = max(64, slot)
            self._columns = {
                name: np.concatenate([column, np.full(more, _COLUMNS[name][1], column.dtype)])
                for name, column in self._columns.items()
            }
        return slot

    def _mates(self, run: str) -> set[str]:
        """Its waiting workers, to be changed."""
        mates = self._of_run.get(run)
        if mates is None or self._borrows:
            mates = self._of_run[run] = set(mates or ())
        return mates

    def _number(self, entry: Entry) -> int:
        if not entry.plain or entry.worker.uid in self.keeping:
            return -1
        key = (id(entry.ask), entry.run.priority, entry.run.namespace)
        number = self._numbers.get(key)
        if number is None:
            number = self._spare.pop() if self._spare else len(self.alikes)
            if number == len(self.alikes):
                self.alikes.append(None)
                self._having.append(0)
            self.alikes[number], self._numbers[key] = Alike(entry.ask, *key[1:]), number
        self._having[number] += 1
        return number

    def _leave(self, number: int) -> None:
        if number < 0:
            return
        self._having[number] -= 1
        alike = self.alikes[number]
        if not self._having[number] and alike is not None:
            self.alikes[number] = None
            self._spare.append(number)
            del self._numbers[id(alike.ask), alike.priority, alike.namespace]

    def _told(self, worker: Worker) -> int:
        if worker.reason is None or worker.placement is None:
            return 0
        return self.codes.setdefault(worker.reason.code, len(self.codes))

    def _entry(self, worker: Worker, run: Run) -> Entry:
        kind = self._kinds.come(worker, run, self.pools)
        apart = (owner_of(worker), *kind.ports) if kind.spread else kind.ports
        asked_about = bool(apart) or kind.topology is not None or worker.deployment is not None
        may = may_be_placed(run)
        return Entry(
            worker,
            run,
            kind.ask,
            apart,
            (owner_of(worker), *kind.ports) if asked_about else (),
            kind.topology,
            kind.limit_s,
            order_key(worker, run),
            may,
            may and worker.waits is None,
            kind.gang,
            not kind.gang and not asked_about,
        )


def _stand(entry: Entry) -> Stand:
    if entry.gang and entry.may:
        return Stand.GANG
    if not entry.able:
        return Stand.NOT
    return Stand.NOW if entry.worker.restart_at is None else Stand.LATER
