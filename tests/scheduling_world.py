"""A cluster in memory for the scheduler: rows, machines with GPUs, and cycles of the production scheduler, committed.

Whatever a cycle writes is checked as the store checks it (versions, tables, unique GPUs, limits). A book is kept up
row by row beside it and compared with one built whole. Holds no rule of its own. Used by unit and property tests.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from moorage.decide.scheduling.assign import Wait
from moorage.decide.scheduling.book import Book, room_of
from moorage.decide.scheduling.cycle import Cycle, run_cycle
from moorage.decide.scheduling.snapshot import Room, SchedulingSnapshot, labels_of, owners_of
from moorage.domain.changes import Release, Step, Update
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.quotas import add, held
from moorage.domain.reasons import reason
from moorage.domain.states import RunState, WorkerState
from tests.memory_rows import MemoryRows

GIB = 1 << 30
HOLDING = ("machine", "worker", "epoch", "gpus", "models", "namespace", "cpu_milli", "memory_bytes")
ENDED = (WorkerState.COMPLETED, WorkerState.FAILED, WorkerState.CANCELLED)


def gpus(count: int, model: str = "H100", memory: int = 80, **more: Any) -> tuple[dict[str, Any], ...]:
    """GPUs of one machine, alike."""
    return tuple(
        {"index": n, "vendor": "nvidia", "model": model, "memory_bytes": memory * GIB, **more} for n in range(count)
    )


class SchedulingWorld(MemoryRows):
    """Runs and machines at a time that moves when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: dict[str, dict[str, int]] = {}
        """quotas by namespace"""
        self.pools: dict[str, dict[str, str]] = {}
        """labels of the machines that a namespace may use"""

    def machine(self, name: str, gpu_count: int = 8, **fields: Any) -> Machine:
        """A machine with so many GPUs, ready."""
        capacity = {
            "cpu_milli": 64000,
            "memory_bytes": 512 * GIB,
            "gpus": gpus(gpu_count),
            **fields.pop("capacity", {}),
        }
        return self.add_machine(name, capacity=capacity, **fields)

    def submit(self, name: str, gpu: int = 0, count: int = 1, **spec: Any) -> Run:
        """A run of `count` workers of `gpu` GPUs each, queued now."""
        run_fields = {k: spec.pop(k) for k in ("priority", "namespace", "replica", "deployment") if k in spec}
        request = {"gpus": {"count": gpu}, **spec.pop("request", {})}
        groups = spec.pop("groups", [{"name": "worker", "count": count}])
        run = Run(uid=f"run-{name}", name=name, queued_at=self.now, spec={"groups": groups, **spec}, **run_fields)
        self.rows[run.uid] = run
        for group in groups:
            for rank in range(group["count"]):
                uid = f"{name}-{group['name']}-{rank}"
                self.rows[uid] = Worker(
                    uid=uid,
                    name=f"{name}-{rank}",
                    namespace=run.namespace,
                    run=run.uid,
                    deployment=run.deployment,
                    group=group["name"],
                    rank=rank,
                    request=group.get("request", request),
                    queued_at=self.now,
                )
        return run

    # What the scheduler sees

    def pending(self) -> tuple[Worker, ...]:
        """Waiting for a place."""
        return tuple(w for w in self.of(Worker) if w.state is WorkerState.PENDING and w.machine is None)

    def rooms(self) -> tuple[Room, ...]:
        """Machines with what is held there."""
        return tuple(self.room(m) for m in self.of(Machine))

    def room(self, machine: Machine) -> Room:
        """One machine with what is held there."""
        held = [h for h in self.holds.values() if h.machine == machine.uid]
        plain = [{"cpu_milli": h.cpu_milli, "memory_bytes": h.memory_bytes, "gpus": h.gpus} for h in held]
        return room_of(Room(machine), plain, [owners_of(w, self.run_of(w)) for h in held for w in [self.w(h.worker)]])

    def standing(self) -> tuple[Worker, ...]:
        """Who holds room."""
        return tuple(self.w(uid) for uid in dict.fromkeys(h.worker for h in self.holds.values()))

    def snapshot(self) -> SchedulingSnapshot:
        """Input of a cycle."""
        runs = {r.uid: r for r in self.of(Run)}
        pools = {ns: labels_of(labels) for ns, labels in self.pools.items()}
        rooms, standing = self.rooms(), self.standing()
        return SchedulingSnapshot(self.now, self.pending(), runs, rooms, standing, self.held(), self.limits, pools)

    def held(self) -> dict[str, list[dict[str, Any]]]:
        """Holdings by machine, as the store gives them."""
        found: dict[str, list[dict[str, Any]]] = {}
        for hold in self.holds.values():
            found.setdefault(hold.machine, []).append({f: getattr(hold, f) for f in HOLDING})
        return found

    def used(self, namespace: str) -> dict[str, int]:
        """What a namespace holds."""
        sums: dict[str, int] = {}
        for hold in self.holds.values():
            if hold.namespace == namespace:
                add(sums, held(len(hold.gpus), hold.models, hold.cpu_milli, hold.memory_bytes))
        return sums

    def book(self) -> Book:
        """The same as a book, with those that just failed."""
        book = Book.of(self.snapshot())
        holding = {h.worker: h.machine for h in self.holds.values()}
        for worker in self.of(Worker):
            book.worker(worker, self.run_of(worker), holding.get(worker.uid))
        return book

    def cycle(self) -> Cycle:
        """One cycle, committed."""
        cycle = run_cycle(self.book(), self.now)
        for change in cycle.changes:
            self.commit(change)
        return cycle

    def settle(self, limit: int = 20) -> Cycle:
        """Cycles until nothing is written."""
        for _ in range(limit):
            cycle = self.cycle()
            if not cycle.changes:
                return cycle
        raise AssertionError(f"does not settle: {cycle.changes}")

    # Rows

    def w(self, uid: str) -> Worker:
        """A worker as it is now; `name` alone means its first worker."""
        row = self.rows.get(uid) or self.rows[f"{uid}-worker-0"]
        assert isinstance(row, Worker)
        return row

    def run_of(self, worker: Worker) -> Run:
        """Its run as it is now."""
        row = self.rows[worker.run]
        assert isinstance(row, Run)
        return row

    def code(self, uid: str) -> str:
        """The code of a worker's reason."""
        why = self.w(uid).reason
        return why.code if why is not None else ""

    def params(self, uid: str) -> Mapping[str, Any]:
        """The params of a worker's reason."""
        why = self.w(uid).reason
        return why.params if why is not None else {}

    def where(self, *uids: str) -> list[str | None]:
        """Names of the machines of these workers."""
        return [w.machine_name if w.machine else None for w in map(self.w, uids)]

    # What happens to them

    def write(self, worker: Worker, *steps: tuple[str, str, str], release: bool = False, **fields: Any) -> None:
        """Steps `(state, trigger, code)` of one worker."""
        row = self.w(worker.uid)
        path = tuple(Step(to, trigger, _plain(code)) for to, trigger, code in steps)
        self.commit_writes(
            [Update("Worker", row.uid, row.version, path, fields), *([Release(row.uid)] if release else [])],
            "machine:m",
        )

    def starts(self, uid: str) -> None:
        """Picked up, started, running."""
        self.write(
            self.w(uid),
            ("Preparing", "picked_up", "prepare.started"),
            ("Starting", "started", "container.started"),
            ("Running", "running", "container.running"),
            started_at=self.now,
            ran=True,
            running_since=self.now,
        )

    def start_all(self) -> None:
        """Everything that has a place and does not run yet."""
        for worker in self.of(Worker):
            if worker.state is WorkerState.PENDING and worker.machine is not None:
                self.starts(worker.uid)

    def ends(self, uid: str) -> None:
        """Exited 0 and gone; its run is over with its last worker."""
        self.write(self.w(uid), ("Completed", "exited_zero", "exited"), release=True, handed_over=False)
        run = self.run_of(self.w(uid))
        if all(w.state in ENDED for w in self.of(Worker) if w.run == run.uid):
            self.rows[run.uid] = replace(run, state=RunState.COMPLETED)

    def fails(self, uid: str) -> None:
        """Exited 1 and gone; not queued again yet."""
        fields = {"handed_over": False, "ended_at": self.now}
        self.write(self.w(uid), ("Failed", "exited_nonzero", "exited"), release=True, **fields)

    def queued_again(self, uid: str, restart_at: float | None = None, trigger: str = "restart") -> None:
        """Pending again, as its run's policy has it."""
        row = self.w(uid)
        fields = {"machine": None, "gpus": (), "stop": None, "ran": False, "started_at": None, "placement": None}
        step = ("Pending", trigger, "restart.backoff")
        self.write(row, step, epoch=row.epoch + 1, attempt=row.attempt + 1, restart_at=restart_at, **fields)

    def stopping(self) -> list[Worker]:
        """Asked to stop and not gone."""
        return [w for w in self.of(Worker) if w.state is WorkerState.STOPPING]

    def gone(self, uid: str) -> None:
        """A stopped worker is gone."""
        self.write(self.w(uid), ("Cancelled", "stop_confirmed", "stop.confirmed"), release=True, handed_over=False)

    def requeue_preempted(self) -> None:
        """What the runs' loop does: queued again once gone, a gang once every member is."""
        for run in self.of(Run):
            members = [w for w in self.of(Worker) if w.run == run.uid]
            stopped = [w for w in members if w.state is WorkerState.CANCELLED and w.stop]
            gang = bool(run.spec.get("gang"))
            if not gang or (stopped and not any(w.handed_over or w.state is WorkerState.STOPPING for w in members)):
                for worker in stopped:
                    self.queued_again(worker.uid, trigger="requeued")

    def wait_of(self, cycle: Cycle, uid: str) -> Wait:
        """What a cycle said about one worker."""
        worker = self.w(uid).uid
        return next(w for w in cycle.outcome.waits if any(e.worker.uid == worker for e in w.unit.members))


def _plain(code: str) -> Any:
    given = {"exited": {"code": 0}, "restart.backoff": {"at": 0.0}}.get(code, {})
    return reason(code, **given)


def gpu_holders(world: SchedulingWorld) -> Iterable[tuple[str, int]]:
    """(machine, GPU) of everything that is held, with repetitions."""
    return ((h.machine, gpu) for h in world.holds.values() for gpu in h.gpus)
