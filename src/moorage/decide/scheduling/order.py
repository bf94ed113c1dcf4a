"""Who is looked at, and in which order: priority, submission time, rank, uid (the lifecycle contract §4).

A `Queue` keeps what waits in that order while rows come and go; `units` says which of it may be placed now and what is
placed together: the needed members of a gang are one unit, everybody else is a unit alone.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from moorage.decide.scheduling.likeness import Kinds, grace_s, time_limit_s
from moorage.decide.scheduling.snapshot import Ask, Labels, SchedulingSnapshot, Topology, owner_of
from moorage.domain.nouns import Run, Worker
from moorage.domain.states import TERMINAL_RUN
from moorage.domain.written import written_once_by_identity

__all__ = ["Entry", "Key", "Line", "Queue", "Unit", "grace_s", "order_key", "ordered", "time_limit_s", "units"]

Key = tuple[int, float, int, str]


@written_once_by_identity
class Entry:
    """One waiting worker, with what of its run decides about its place.

    Args:
        ask: the very same object for workers alike, so that it can be compared by identity.
        apart: owners of whose other workers its machine must be free: its own with `spread: machine`, and its ports.
        owners: what it counts under on its machine, as far as anybody asks within a cycle.
        limit_s: seconds after which it is stopped, with its grace; None: it has no time limit.
        may: its run lets its workers be placed; `able`: and nothing of its own keeps it back but the time.
        gang: its run is placed whole.
        plain: it is placed alone, and nothing matters but its ask.
    """

    worker: Worker
    run: Run
    ask: Ask
    apart: tuple[str, ...]
    owners: tuple[str, ...]
    topology: Topology | None
    limit_s: float | None
    key: Key
    may: bool
    able: bool
    gang: bool
    plain: bool

    @property
    def owner(self) -> str:
        """Its deployment, or its run."""
        return owner_of(self.worker)


@written_once_by_identity
class Unit:
    """What is placed whole or not at all.

    Args:
        members: in the order of groups and ranks.
        gang: the needed members of a gang; False: one worker alone.
        beyond: a member of a gang above its minimum: placed only while its gang has its places.
    """

    members: tuple[Entry, ...]
    gang: bool = False
    beyond: bool = False

    @property
    def first(self) -> Entry:
        """Whose place in the queue the unit has."""
        return self.members[0]

    @property
    def run(self) -> Run:
        """Whose it is."""
        return self.members[0].run

    @property
    def priority(self) -> int:
        """Of its run."""
        return self.members[0].run.priority


@dataclass(slots=True)
class Queue:
    """Waiting workers in order. Rows are put as they change; the result depends on the rows only."""

    _keys: list[Key] = field(default_factory=list)
    _units: dict[str, Unit] = field(default_factory=dict)
    """each worker as a unit alone"""
    _kinds: Kinds = field(default_factory=Kinds)
    keeping: dict[str, Entry] = field(default_factory=dict)
    """those for whom room may be kept: they restart, or others were stopped for them"""
    pools: Mapping[str, Labels] = field(default_factory=dict)
    """by namespace, the labels of the machines that it may use; without an entry it may use all"""

    @staticmethod
    def of(pending: Iterable[Worker], runs: Mapping[str, Run], pools: Mapping[str, Labels] | None = None) -> "Queue":
        """The queue of these workers; those whose run is unknown are left out."""
        queue = Queue(pools=pools or {})
        for worker in pending:
            run = runs.get(worker.run)
            if run is not None:
                queue._add(queue._entry(worker, run))
        queue._keys = sorted(unit.first.key for unit in queue._units.values())
        return queue

    def copy(self) -> "Queue":
        """Another one with the same workers."""
        return Queue(list(self._keys), dict(self._units), self._kinds.copy(), dict(self.keeping), self.pools)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Entry]:
        return (self._units[key[3]].first for key in self._keys)

    def __contains__(self, uid: str) -> bool:
        return uid in self._units

    def units(self) -> Iterator[Unit]:
        """Every worker as a unit alone, in order."""
        units = self._units
        return (units[key[3]] for key in self._keys)

    @property
    def counts(self) -> dict[Ask, int]:
        """How many workers wait with each ask."""
        return self._kinds.counts()

    def get(self, uid: str) -> Entry | None:
        """That worker, if it waits."""
        unit = self._units.get(uid)
        return None if unit is None else unit.first

    def put(self, worker: Worker, run: Run) -> None:
        """A worker waits, or its row or its run changed."""
        self.drop(worker.uid)
        entry = self._entry(worker, run)
        self._add(entry)
        insort(self._keys, entry.key)

    def drop(self, uid: str) -> None:
        """It does not wait any more."""
        unit = self._units.pop(uid, None)
        if unit is None:
            return
        entry = unit.first
        del self._keys[bisect_left(self._keys, entry.key)]
        self.keeping.pop(uid, None)
        self._kinds.go(entry.ask)

    def _add(self, entry: Entry) -> None:
        worker = entry.worker
        self._units[worker.uid] = Unit((entry,))
        if worker.restart_at is not None or "plan" in (worker.placement or ()):
            self.keeping[worker.uid] = entry

    def _entry(self, worker: Worker, run: Run) -> Entry:
        kind = self._kinds.come(worker, run, self.pools)
        apart = (owner_of(worker), *kind.ports) if kind.spread else kind.ports
        asked_about = bool(apart) or kind.topology is not None or worker.deployment is not None
        may = _may(run)
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


def order_key(worker: Worker, run: Run | None) -> Key:
    """Place in the queue: lower is earlier."""
    return (-(run.priority if run else 0), worker.queued_at, worker.rank, worker.uid)


def ordered(pending: Iterable[Worker], snapshot: SchedulingSnapshot) -> list[Worker]:
    """Workers in the order in which they are looked at."""
    return sorted(pending, key=lambda worker: order_key(worker, snapshot.runs.get(worker.run)))


# What may be placed now


@dataclass(frozen=True, slots=True)
class Line:
    """The units of a cycle in order, and when the next waiting worker becomes eligible."""

    units: tuple[Unit, ...]
    wake_at: float | None


def units(queue: Queue, standing: Mapping[str, Mapping[str, Worker]], now: float) -> Line:
    """Everything that may be placed now.

    Args:
        standing: by uid of a run, its workers that have a place, by uid.
    """
    found: list[Unit] = []
    gangs: dict[str, list[Entry]] = {}
    later: list[float] = []
    for unit in queue.units():
        entry = unit.members[0]
        if entry.gang and entry.may:
            gangs.setdefault(entry.run.uid, []).append(entry)
        elif entry.able and (entry.worker.restart_at is None or _eligible(entry, now, later)):
            found.append(unit)
    for uid, entries in gangs.items():
        found += _gang_units(entries, tuple(standing.get(uid, {}).values()), now, later)
    if gangs:
        found.sort(key=lambda unit: unit.first.key)
    return Line(tuple(found), min(later, default=None))


def _may(run: Run) -> bool:
    """Whether anything of this run may be placed at all."""
    return (
        run.cancel is None
        and not run.deleting
        and run.deleted_at is None
        and run.restarting is None
        and run.state not in TERMINAL_RUN
    )


def _eligible(entry: Entry, now: float, later: list[float]) -> bool:
    worker = entry.worker
    if worker.restart_at is not None and worker.restart_at > now:
        later.append(worker.restart_at)
        return False
    return worker.waits is None


def _gang_units(entries: list[Entry], placed: tuple[Worker, ...], now: float, later: list[float]) -> Iterator[Unit]:
    """The needed members that wait as one unit; members above the minimum each alone."""
    if any(worker.stop is not None for worker in placed):
        return  # a member is being stopped: its gang is queued again whole once it is gone, or its run ends
    run = entries[0].run
    minimum = minimum_of(run)
    rank = member_rank(run, [*(e.worker for e in entries), *placed])
    ranked = sorted(((rank(e.worker), e) for e in entries), key=itemgetter(0))
    needed = tuple(e for place, e in ranked if minimum is None or place < minimum)
    able = [e for _, e in ranked if _eligible(e, now, later)]  # each is asked: the next deadline is wanted too
    beyond = able
    if needed:
        uids = {e.worker.uid for e in needed}
        beyond = [e for e in able if e.worker.uid not in uids]
        if len(able) - len(beyond) < len(needed):
            return
        yield Unit(needed, gang=True)
    yield from (Unit((e,), beyond=True) for e in beyond)


def minimum_of(run: Run) -> int | None:
    """`min_available` of a gang; None: every member is needed."""
    asked = run.spec.get("gang")
    return int(asked["min_available"]) if isinstance(asked, Mapping) and asked.get("min_available") else None


def member_rank(run: Run, known: Iterable[Worker]) -> Any:
    """A function from worker to its number in the gang: groups in the order of the spec, then ranks."""
    sizes: dict[str, int] = {}
    for worker in known:
        sizes[worker.group] = max(sizes.get(worker.group, 0), worker.rank + 1)
    before: dict[str, int] = {}
    total = 0
    for group in run.spec.get("groups") or ():
        name = str(group.get("name", "worker"))
        before[name] = total
        total += max(int(group.get("count") or 0), sizes.get(name, 0))
    return lambda worker: before.get(worker.group, total) + worker.rank
