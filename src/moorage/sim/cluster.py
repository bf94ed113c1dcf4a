"""A cluster in memory: what a store, agents and processes would do to what the scheduler decides, at simulated times.

Every write of a decision is checked as the store checks it: transition tables, GPUs that are unique, limits of
machines. A worker runs from the moment it is placed, ends when its time is over, and once it is asked to stop takes
its whole grace. Decides nothing; `play` calls it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from moorage.decide.scheduling.assign import Outcome, decide
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.policies import Policy
from moorage.decide.scheduling.snapshot import Room
from moorage.decide.scheduling.waiting import Waits
from moorage.decide.scheduling.writes import changes
from moorage.domain.changes import Hold, Update
from moorage.domain.lifecycles import WORKER
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import WorkerState
from moorage.sim.traces import Task

EPOCH = 1_000_000_000.0
"""When a simulation begins, in seconds since 1970; what a row says of times is relative to that."""

_TO_RUNNING = (
    (WorkerState.PENDING, WorkerState.PREPARING, "picked_up"),
    (WorkerState.PREPARING, WorkerState.STARTING, "started"),
    (WorkerState.STARTING, WorkerState.RUNNING, "running"),
)


class BrokenPromise(AssertionError):
    """The scheduler decided what no store would have committed: a defect, never the trace's fault."""


@dataclass(frozen=True, slots=True)
class Did:
    """What one cycle brought about.

    Args:
        placed: workers that run now.
        stopping: workers that were asked to stop, each with when it is gone.
        waited: units that were told to wait.
        units: units that were placed.
        backfilled: of those, the ones placed though one before them waits for its room.
    """

    placed: tuple[Worker, ...]
    stopping: tuple[tuple[Worker, float], ...]
    units: int
    waited: int
    backfilled: int


@dataclass(slots=True)
class Cluster:
    """Machines, runs and workers, and the scheduler's book of them.

    Args:
        services: nothing ends: every run says so to the scheduler.
    """

    book: Book = field(default_factory=Book)
    services: bool = False
    runs: dict[str, Run] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    allocated: int = 0
    """GPUs that are held"""
    gpus_total: int = 0
    _members: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, machines: Iterable[Machine], *, services: bool = False) -> "Cluster":
        """A cluster of these machines, with nothing on them."""
        cluster = cls(services=services)
        for machine in machines:
            cluster.book.room(Room(machine))
            cluster.gpus_total += len(machine.capacity["gpus"])
        return cluster

    # Work comes

    def submit(self, task: Task, number: int, now: float) -> Run:
        """A task as a run with workers that wait.

        Args:
            number: its place in the trace; unique.
        """
        spec: dict[str, Any] = {"groups": [{"name": "worker", "count": task.workers}]}
        if task.gang:
            spec["gang"] = True
        if task.labels:
            spec["placement"] = {"labels": dict(task.labels)}
        if task.time_limit_s is not None:
            spec["time_limit"] = task.time_limit_s
        if self.services:
            spec["lifetime"] = "service"
        uid = f"{number:08}"
        run = Run(uid=uid, name=task.name, spec=spec, priority=task.priority, queued_at=now)
        self.runs[uid] = run
        request = {
            "cpu_milli": task.cpu_milli,
            "memory_bytes": task.memory_bytes,
            "gpus": {"count": task.gpus, "models": task.models},
        }
        self._members[uid] = []
        for rank in range(task.workers):
            worker = Worker(
                uid=f"{uid}-{rank}", name=f"{task.name}-{rank}", run=uid, rank=rank, request=request, queued_at=now
            )
            self._put(worker, None)
            self._members[uid].append(worker.uid)
        return run

    # A cycle of the production scheduler

    def cycle(self, now: float, policy: Policy, draw: int) -> Outcome:
        """What the scheduler decides now."""
        return decide(self.book, now, policy, draw)

    def commit(self, outcome: Outcome, now: float) -> Did:
        """Its placements and preemptions, as a store and agents would carry them out."""
        plans = Waits.of(wait for wait in outcome.waits.single if wait.plan is not None)
        placed: list[Worker] = []
        stopping: list[tuple[Worker, float]] = []
        for change in changes(self.book, replace(outcome, waits=plans), now):
            holds = {write.worker: write for write in change.writes if isinstance(write, Hold)}
            for write in change.writes:
                if not isinstance(write, Update):
                    continue
                if write.kind == "Run":
                    self._rerun(write)
                elif write.uid in holds:
                    placed.append(self._starts(self._updated(write, now), holds[write.uid]))
                else:
                    worker = self._updated(write, None)
                    self._put(worker, worker.machine)
                    if worker.state is WorkerState.STOPPING and worker.stop is not None:
                        stopping.append((worker, now + float(worker.stop["grace_s"])))
        units = len(outcome.alone) + sum(len(fill) for fill in outcome.fills)
        return Did(
            tuple(placed),
            tuple(stopping),
            units,
            len(outcome.waits),
            _backfilled(outcome),
        )

    def _updated(self, write: Update, started_at: float | None) -> Worker:
        """The row after a write; with `started_at` it has run its way from there to `Running`."""
        worker = self.workers[write.uid]
        if worker.version != write.version:
            raise BrokenPromise(f"{write.uid} was decided on at version {write.version}, it is at {worker.version}")
        fields, state = dict(write.fields), worker.state
        for step in write.steps:
            WORKER.check(state, step.to, step.trigger)
            state = WorkerState(step.to)
        if started_at is not None:
            for source, target, trigger in _TO_RUNNING:
                WORKER.check(source, target, trigger)
            state = WorkerState.RUNNING
            fields |= {"started_at": started_at, "running_since": started_at, "ran": True}
        reason = write.steps[-1].reason if write.steps else write.reason
        return replace(worker, state=state, version=worker.version + 1, reason=reason, **fields)

    def _rerun(self, write: Update) -> None:
        run = replace(self.runs[write.uid], **write.fields)
        self.runs[run.uid] = run
        for uid in self._members[run.uid]:
            worker = self.workers[uid]
            if worker.state in (WorkerState.PENDING, WorkerState.RUNNING, WorkerState.STOPPING):
                self._put(worker, worker.machine)

    def _starts(self, worker: Worker, hold: Hold) -> Worker:
        """It takes its room."""
        row = self.book.fleet.row(hold.machine)
        room = self.book.fleet.room(row)
        gpus, cpu, memory = frozenset(hold.gpus), hold.cpu_milli, hold.memory_bytes
        if room.gpus & gpus:
            raise BrokenPromise(f"{worker.uid} was given GPUs {sorted(room.gpus & gpus)} of {hold.machine} twice")
        if cpu > room.free_cpu_milli or memory > room.free_memory_bytes:
            raise BrokenPromise(f"{worker.uid} was given more CPU or memory than {hold.machine} has")
        if len(gpus) != int(worker.request["gpus"]["count"]):
            raise BrokenPromise(f"{worker.uid} was given {len(gpus)} GPUs")
        self._take(room, gpus, cpu, memory)
        self.allocated += len(gpus)
        self._put(worker, hold.machine)
        return worker

    def _take(self, room: Room, gpus: frozenset[int], cpu_milli: int, memory_bytes: int) -> None:
        self.book.room(
            replace(
                room,
                gpus=room.gpus | gpus,
                cpu_milli=room.cpu_milli + cpu_milli,
                memory_bytes=room.memory_bytes + memory_bytes,
            )
        )

    # Work goes

    def ends(self, uid: str) -> bool:
        """A worker's time is over; whether its run is over with it."""
        worker = self.workers[uid]
        WORKER.check(worker.state, WorkerState.COMPLETED, "exited_zero")
        self._leaves(worker)
        del self.workers[uid]
        self.book.forget(uid)
        members = self._members[worker.run]
        members.remove(uid)
        if members:
            return False
        del self._members[worker.run], self.runs[worker.run]
        return True

    def gone(self, uid: str) -> None:
        """A worker that was asked to stop is gone; it waits again, a gang once all of it is gone."""
        worker = self.workers[uid]
        WORKER.check(worker.state, WorkerState.CANCELLED, "stop_confirmed")
        self._leaves(worker)
        self.book.forget(uid)
        self.workers[uid] = replace(worker, state=WorkerState.CANCELLED, machine=None, handed_over=False, gpus=())
        mates = [self.workers[mate] for mate in self._members[worker.run]]
        if self.runs[worker.run].spec.get("gang") and any(mate.state is WorkerState.STOPPING for mate in mates):
            return
        for mate in [w for w in mates if w.state is WorkerState.CANCELLED]:
            self._queue_again(mate)

    def _queue_again(self, worker: Worker) -> None:
        WORKER.check(worker.state, WorkerState.PENDING, "requeued")
        again = replace(
            worker,
            state=WorkerState.PENDING,
            version=worker.version + 1,
            attempt=worker.attempt + 1,
            stop=None,
            placement=None,
            started_at=None,
            running_since=None,
            placed_at=None,
            ran=False,
        )
        self._put(again, None)

    def _leaves(self, worker: Worker) -> None:
        holder = self.book.holders.get(worker.uid)
        if holder is None:
            raise BrokenPromise(f"{worker.uid} runs and holds nothing")
        room = self.book.fleet.room(holder.spot.row)
        self.allocated -= len(worker.gpus)
        self.book.room(
            replace(
                room,
                gpus=room.gpus - frozenset(worker.gpus),
                cpu_milli=room.cpu_milli - holder.spot.cpu_milli,
                memory_bytes=room.memory_bytes - holder.spot.memory_bytes,
            )
        )

    # What there is

    def _put(self, worker: Worker, machine: str | None) -> None:
        self.workers[worker.uid] = worker
        self.book.worker(worker, self.runs[worker.run], machine)

    def waiting(self) -> Iterator[Worker]:
        """Workers that wait for a place, in the order of the queue."""
        return (entry.worker for entry in self.book.queue)


def _backfilled(outcome: Outcome) -> int:
    """Units placed though a unit before them in the queue waits for its room."""
    if outcome.head is None:
        return 0
    head = outcome.head.unit.first.key
    return sum(found[0][0].key > head for found in outcome.placed)
