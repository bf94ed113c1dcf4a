"""The work that holds room, in columns: where, how much, until when, and how much it matters. Kept up worker by worker.

When it ends (the lifecycle contract §4): started_at + limit + grace once it starts; before that placed_at + 15 min +
limit + grace; unknown without a limit, or once that time has passed. A service ends by itself never.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from moorage.decide.scheduling.fleet import Bits, Fleet, Ints, Rows, word_of
from moorage.decide.scheduling.ledger import Ledger, Spot
from moorage.decide.scheduling.order import grace_s, time_limit_s
from moorage.decide.scheduling.snapshot import Request
from moorage.domain.nouns import Run, Worker
from moorage.domain.states import WorkerState

Times = npt.NDArray[np.float64]

START_S = 900.0
"""Between getting a place and starting: setting up and fetching an image may take so long."""

ENDING_MAX = 3
"""Holders of which it is said that their end would let somebody start."""

UNKNOWN, NEVER = np.inf, np.nan
"""As an end: it ends, nobody knows when; it does not end by itself."""


def ends_at(worker: Worker, run: Run) -> float:
    """When this worker's room is free again, seconds since the epoch, `UNKNOWN` or `NEVER`; may be in the past."""
    if worker.state is WorkerState.STOPPING:
        asked: Mapping[str, Any] = worker.stop or {}
        if asked.get("unkillable_since") is not None:
            return UNKNOWN
        return float(asked.get("since", UNKNOWN)) + float(asked.get("grace_s", grace_s(run, worker)))
    if is_service(run):
        return NEVER
    limit = time_limit_s(run, worker)
    if limit is None:
        return UNKNOWN
    if worker.started_at is not None:
        return worker.started_at + limit
    return UNKNOWN if worker.placed_at is None else worker.placed_at + START_S + limit


def is_service(run: Run) -> bool:
    """Whether it is meant to run for ever: a replica of a deployment, or a run that says so."""
    return run.replica is not None or run.spec.get("lifetime") == "service"


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """One worker that holds room."""

    worker: Worker
    run: Run
    spot: Spot


@dataclass(slots=True)
class Holders:
    """Everybody who holds room."""

    _held: dict[str, Holder] = field(default_factory=dict)
    _slots: dict[str, int] = field(default_factory=dict)
    _vacant: list[int] = field(default_factory=list)
    _uids: list[str] = field(default_factory=list)
    """by slot; of a vacant one, who had it last"""
    _columns: dict[str, npt.NDArray[Any]] = field(
        default_factory=lambda: {name: np.zeros(0, dtype) for name, dtype in _DTYPES.items()}
    )
    by_run: dict[str, dict[str, Worker]] = field(default_factory=dict)
    """by uid of a run: its workers that hold room, by uid"""
    by_deployment: dict[str, dict[str, Worker]] = field(default_factory=dict)
    """by uid of a deployment: its workers that hold room, by uid"""
    mix: dict[Request, int] = field(default_factory=dict)
    """how many workers hold each kind of request"""
    _ending: tuple[int, dict[str, npt.NDArray[Any]]] | None = None
    """what ends by itself in its order, until somebody comes or goes, and how many of it were overdue then"""

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Holder]:
        return iter(self._held.values())

    def get(self, uid: str) -> Holder | None:
        """That worker, if it holds room."""
        return self._held.get(uid)

    def put(self, worker: Worker, run: Run, row: int, fleet: Fleet) -> None:
        """A worker holds room of the machine in that row, or its row changed."""
        self.drop(worker.uid)
        request = Request.of(worker)
        word = word_of(fleet.room(row).machine, worker.gpus)
        holder = Holder(worker, run, Spot(row, word, request.cpu_milli, request.memory_bytes))
        slot = self._vacant.pop() if self._vacant else self._grow()
        self._held[worker.uid], self._slots[worker.uid] = holder, slot
        self.by_run.setdefault(run.uid, {})[worker.uid] = worker
        if worker.deployment is not None:
            self.by_deployment.setdefault(worker.deployment, {})[worker.uid] = worker
        self.mix[request] = self.mix.get(request, 0) + 1
        self._uids[slot] = worker.uid
        values = (True, row, request.cpu_milli, request.memory_bytes, word, ends_at(worker, run))
        times = (worker.placed_at or 0.0, worker.started_at or worker.placed_at or 0.0)
        self._ending = None
        for name, value in zip(_DTYPES, (*values, *times, run.priority, bool(run.spec.get("gang"))), strict=True):
            self._columns[name][slot] = value

    def drop(self, uid: str) -> None:
        """It holds nothing any more."""
        holder = self._held.pop(uid, None)
        if holder is None:
            return
        self._ending = None
        slot = self._slots.pop(uid)
        self._vacant.append(slot)
        self._columns["here"][slot] = False
        _leave(self.by_run, holder.run.uid, uid)
        _leave(self.by_deployment, holder.worker.deployment, uid)
        request = Request.of(holder.worker)
        self.mix[request] -= 1
        if not self.mix[request]:
            del self.mix[request]

    @contextmanager
    def lacking(self, uid: str, fleet: Fleet) -> Iterator[None]:
        """For a question: as if this one held nothing."""
        holder, ending = self._held[uid], self._ending
        self.drop(uid)
        try:
            yield
        finally:
            self.put(holder.worker, holder.run, holder.spot.row, fleet)
            self._ending = ending

    def ending_alone(
        self, enough: Callable[[npt.NDArray[Any], Ints, Ints, Bits], npt.NDArray[np.bool_]]
    ) -> list[Holder]:
        """Those that end by themselves and leave enough room for somebody, in the order in which they end.

        Args:
            enough: of rows and the CPU, memory and GPUs that come free there, which are enough.
        """
        at = np.flatnonzero(self._columns["here"] & ~np.isnan(self._columns["ends"]))
        columns = {name: column[at] for name, column in self._columns.items()}
        some = np.flatnonzero(enough(columns["row"], columns["cpu"], columns["memory"], columns["gpus"]))
        order = some[np.lexsort((columns["placed_at"][some], columns["ends"][some]))]
        return [self._held[self._uids[at[one]]] for one in order[:ENDING_MAX]]

    def end_of(self, uid: str) -> float:
        """When a holder ends, as `ends_at`."""
        return float(self._columns["ends"][self._slots[uid]])

    def _grow(self) -> int:
        slot = len(self._uids)
        self._uids.append("")
        if slot >= len(self._columns["here"]):
            more = max(64, slot)
            self._columns = {
                name: np.concatenate([column, np.zeros(more, column.dtype)]) for name, column in self._columns.items()
            }
        return slot

    def ending(self, now: float, placed: Sequence[tuple[float, Spot]] = ()) -> "Ending":
        """Those that end by themselves, in the order in which they do: by their end, then the longest placed first.

        Args:
            placed: ends and spots of what this cycle placed.
        """
        known = self._columns["here"] & ~np.isnan(self._columns["ends"])
        overdue = int((known & (self._columns["ends"] <= now)).sum())
        if self._ending is None or self._ending[0] != overdue:
            chosen = np.flatnonzero(known)
            columns = {name: self._columns[name][chosen] for name in _ENDING}
            columns["ends"] = np.where(columns["ends"] <= now, UNKNOWN, columns["ends"])
            self._ending = overdue, _in_order(columns)
        columns = self._ending[1]
        new = [(end, spot) for end, spot in placed if not np.isnan(end)]
        if new:
            more = _of_spots(new, now)
            columns = _in_order(
                {name: np.concatenate([columns[name], np.asarray(more[name], columns[name].dtype)]) for name in _ENDING}
            )
        return Ending(*(columns[name] for name in ("ends", "row", "cpu", "memory", "gpus")))

    def priorities(self) -> set[int]:
        """Of everything held."""
        return {int(one) for one in np.unique(self._columns["priority"][self._columns["here"]])}

    def below(self, priority: int) -> "Below":
        """Those of lower priority."""
        at = np.flatnonzero(self._columns["here"] & (self._columns["priority"] < priority))
        columns = {name: self._columns[name][at] for name in _BELOW}
        return Below(at, self._uids, **columns)

    def any_below(self, priority: int) -> bool:
        """Whether anything held is of lower priority."""
        return bool((self._columns["here"] & (self._columns["priority"] < priority)).any())


def _in_order(columns: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    order = np.lexsort((columns["row"], columns["placed_at"], columns["ends"]))
    return {name: column[order] for name, column in columns.items()}


def _leave(groups: dict[str, dict[str, Worker]], group: str | None, uid: str) -> None:
    mates = groups.get(group or "", {})
    mates.pop(uid, None)
    if not mates:
        groups.pop(group or "", None)


def _of_spots(placed: Sequence[tuple[float, Spot]], now: float) -> dict[str, list[Any]]:
    return {
        "ends": [end for end, _ in placed],
        "row": [spot.row for _, spot in placed],
        "cpu": [spot.cpu_milli for _, spot in placed],
        "memory": [spot.memory_bytes for _, spot in placed],
        "gpus": [spot.gpus for _, spot in placed],
        "placed_at": [now for _ in placed],
    }


_DTYPES: dict[str, type] = {
    "here": np.bool_,
    "row": np.int64,
    "cpu": np.int64,
    "memory": np.int64,
    "gpus": np.uint64,
    "ends": np.float64,
    "placed_at": np.float64,
    "started": np.float64,
    "priority": np.int64,
    "gang": np.bool_,
}

_BELOW = ("row", "cpu", "memory", "gpus", "priority", "started", "gang")
_ENDING = ("ends", "row", "cpu", "memory", "gpus", "placed_at")


@dataclass(frozen=True, slots=True, eq=False)
class Below:
    """Workers that hold room, in columns.

    Args:
        slot, uids: `uids[slot]` is the worker.
        started: when it started, or was placed.
        gang: its run is placed whole.
    """

    slot: Rows
    uids: Sequence[str]
    row: Rows
    cpu: Ints
    memory: Ints
    gpus: Bits
    priority: Ints
    started: Times
    gang: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Ending:
    """Room that becomes free, first to last."""

    ends: Times
    rows: Rows
    cpu: Ints
    memory: Ints
    gpus: Bits

    def __len__(self) -> int:
        return len(self.ends)

    def after(self, ledger: Ledger, count: int) -> Ledger:
        """What would be free once the first `count` of them have ended."""
        found = ledger.copy()
        found.touched = None
        rows = self.rows[:count]
        np.add.at(found.cpu, rows, self.cpu[:count])
        np.add.at(found.memory, rows, self.memory[:count])
        np.bitwise_or.at(found.gpus, rows, self.gpus[:count])
        found.gpus &= ledger.fleet.base("usable")
        return found
