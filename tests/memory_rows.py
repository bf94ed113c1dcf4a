"""Rows in memory: what the store does with a change, for worlds in which decisions are tested.

One change is applied at a time with the checks that the store makes; here also is how machines say what they saw. Holds
no rule of its own. Used by `serving_world` and `run_world`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from moorage.decide.running.reports import Seen
from moorage.domain.changes import Change, Create, Hold, Release, Remove, Step, Update
from moorage.domain.errors import StaleVersion
from moorage.domain.lifecycles import TABLES
from moorage.domain.nouns import Machine, Noun, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import MachineState

N = TypeVar("N", bound=Noun)
START = 1_000_000.0


class CountedIds:
    """Uids that count up."""

    def __init__(self) -> None:
        self.count = 0

    def new(self, kind: str) -> str:
        """The next one."""
        self.count += 1
        return f"{kind.lower()}-{self.count:04d}"


class MemoryRows:
    """Rows, places and history, at a time that moves when it is told to."""

    def __init__(self) -> None:
        self.now = START
        self.ids = CountedIds()
        self.rows: dict[str, Noun] = {}
        self.holds: dict[tuple[str, int], Hold] = {}
        """by worker and epoch"""
        self.history: list[tuple[str, int, str | None, str, str]] = []
        """(uid, version, from, to, reason code)"""
        self.removed: dict[str, Noun] = {}
        self.removed_reasons: dict[str, Reason] = {}

    def add_machine(self, name: str, **fields: Any) -> Machine:
        capacity = {"cpu_milli": 8000, "memory_bytes": 64 << 30, "gpus": (), **fields.pop("capacity", {})}
        machine = Machine(
            uid=f"machine-{name}",
            name=name,
            state=fields.pop("state", MachineState.READY),
            capacity=capacity,
            heartbeat_at=self.now,
            **fields,
        )
        self.rows[machine.uid] = machine
        return machine

    def of(self, kind: type[N]) -> list[N]:
        """Rows of one noun in order of creation."""
        return [r for r in self.rows.values() if isinstance(r, kind)]

    @property
    def codes(self) -> list[str]:
        """Every reason of history, in order."""
        return [h[4] for h in self.history]

    def commit_writes(self, writes: Iterable[Any], actor: str) -> None:
        """Writes as one change."""
        writes = tuple(writes)
        self.commit(Change(writes, actor) if writes else None)

    def commit(self, change: Change | None) -> None:
        """All of it, or an error and nothing."""
        if change is None:
            return
        rows, holds, history = dict(self.rows), dict(self.holds), len(self.history)
        try:
            seen: set[str] = set()
            for write in change.writes:
                uid = getattr(write, "uid", None)
                assert uid is None or uid not in seen, f"{uid} is written twice by one change"
                if uid is not None:
                    seen.add(uid)
                self._write(write)
        except BaseException:
            self.rows, self.holds = rows, holds
            del self.history[history:]
            raise

    def _write(self, write: Any) -> None:
        if isinstance(write, Create):
            self._create(write)
        elif isinstance(write, Update):
            self._update(write)
        elif isinstance(write, Hold):
            self._hold(write)
        elif isinstance(write, Release):
            for key in [k for k in self.holds if k[0] == write.worker and write.epoch in (None, k[1])]:
                del self.holds[key]
        elif isinstance(write, Remove):
            row = self._at(write.uid, write.version)
            self.removed[write.uid] = self.rows.pop(write.uid)
            self.removed_reasons[write.uid] = write.reason
            self.history.append((row.uid, row.version + 1, row.state_word, "deleted", write.reason.code))

    def _create(self, write: Create) -> None:
        row = write.row
        assert row.uid not in self.rows
        assert row.state_word in TABLES[row.kind].initial, f"{row.kind} is created in {row.state_word}"
        self.rows[row.uid] = replace(row, version=1, created_at=self.now, updated_at=self.now, reason=write.reason)
        self.history.append((row.uid, 1, None, row.state_word, write.reason.code))

    def _at(self, uid: str, version: int) -> Noun:
        row = self.rows.get(uid)
        if row is None or row.version != version:
            raise StaleVersion(f"{uid} moved on")
        return row

    def _update(self, write: Update) -> None:
        row = self._at(write.uid, write.version)
        table, state, why = TABLES[row.kind], row.state_word, row.reason
        version = row.version + 1
        for step in write.steps:
            table.check(state, step.to, step.trigger)
            self.history.append((row.uid, version, state, str(step.to), step.reason.code))
            state, why = str(step.to), step.reason
        for extra in (*((write.reason,) if write.reason else ()), *write.notes):
            self.history.append((row.uid, version, state, state, extra.code))
        fields = dict(write.fields)
        assert row.state_field not in fields
        changed: Any = row
        self.rows[row.uid] = replace(
            changed,
            version=version,
            updated_at=self.now,
            reason=write.reason or why,
            **{row.state_field: table.states(state)},
            **fields,
        )

    def _hold(self, write: Hold) -> None:
        assert (write.worker, write.epoch) not in self.holds, "a place is taken twice for one epoch"
        others = [h for h in self.holds.values() if h.machine == write.machine]
        if {g for h in others for g in h.gpus} & set(write.gpus):
            raise StaleVersion("a GPU is held already")
        if write.limit_cpu_milli is not None and sum(h.cpu_milli for h in others) + write.cpu_milli > (
            write.limit_cpu_milli
        ):
            raise StaleVersion("the machine is full")
        self.holds[write.worker, write.epoch] = write


STARTED = (
    "Preparing:picked_up:prepare.started",
    "Starting:started:container.started",
    "Running:running:container.running",
)


def seen_of(worker: Worker, *words: str, params: Mapping[str, Any] | None = None, **news: Any) -> Seen:
    """A report about a worker; `params` go to the last step's reason."""
    steps = []
    for index, word in enumerate(words):
        to, trigger, code = word.split(":")
        given = dict(params or {}) if index == len(words) - 1 else {}
        steps.append(Step(to, trigger, reason(code, **given), news.get("at")))
    news.pop("at", None)
    machine = news.pop("machine", worker.machine) or ""
    return Seen(machine=machine, epoch=news.pop("epoch", worker.epoch), steps=tuple(steps), **news)
