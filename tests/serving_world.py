"""A small world for decisions: rows in memory, one change applied at a time with the checks the store makes.

It drives the production decisions (serving, scheduling, reports, leases, adoption, commands) and plays machines and a
gateway. Used by the unit tests of `decide` and by the property tests; holds no rule of its own beside the store's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from moorage.decide.decision import Decision, Outcome
from moorage.decide.running.adoption import HeldProcess, reconcile
from moorage.decide.running.heartbeats import excused, heard
from moorage.decide.running.liveness import LeaseTimes, watch
from moorage.decide.running.reports import apply
from moorage.decide.scheduling.cycle import Cycle, schedule
from moorage.decide.scheduling.snapshot import Room, SchedulingSnapshot, owner_of
from moorage.decide.serving import commands
from moorage.decide.serving.commands import Intent, Known
from moorage.decide.serving.cycle import decide
from moorage.decide.serving.exposure import Route, route_of
from moorage.decide.serving.phase import OPEN_OPERATION, deployment_phase
from moorage.decide.serving.snapshot import Demand, ServingSnapshot
from moorage.domain.changes import Hold, Step, Update
from moorage.domain.nouns import Deployment, Machine, Operation, Replica, Revision, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import ACTIVE_WORKER, TERMINAL_REPLICA, MachineState, Phase, WorkerState
from tests.memory_rows import START as START
from tests.memory_rows import STARTED, MemoryRows, seen_of

TIMES = LeaseTimes()


def spec(**parts: Any) -> dict[str, Any]:
    """A normalised deployment document, as far as decisions read it."""
    replicas = {"min": 1, "max": 1, **parts.pop("replicas", {})}
    return {
        "kind": "Deployment",
        "name": "gemma",
        "runtime": {"runner": "process", "command": ["serve"]},
        "model": {"id": "gemma"},
        "replicas": replicas,
        **parts,
    }


class World(MemoryRows):
    """Rows of one deployment and its machines, at a time that moves when it is told to."""

    def __init__(self, machines: int = 1, **capacity: Any) -> None:
        super().__init__()
        self.safe_from = 0.0
        self.held = 0
        self.in_flight: dict[str, int] = {}
        self.idle_s: float | None = None
        self.known = True
        self.confirmed = True
        self.published: Route | None = None
        self._seq = 0
        for n in range(machines):
            self.add_machine(f"m{n}", **capacity)

    # Rows

    @property
    def deployment(self) -> Deployment:
        """The only one."""
        return self.of(Deployment)[0]

    @property
    def replicas(self) -> list[Replica]:
        """Those that are not over."""
        return [r for r in self.of(Replica) if r.status not in TERMINAL_REPLICA]

    def worker_of(self, replica: Replica) -> Worker:
        """The worker behind a replica."""
        return next(w for w in self.of(Worker) if w.run == replica.run)

    @property
    def worker(self) -> Worker:
        """The newest one."""
        return self.of(Worker)[-1]

    @property
    def phase(self) -> Phase:
        """As the views derive it."""
        operation = next((o for o in self.of(Operation) if o.state in OPEN_OPERATION), None)
        return deployment_phase(self.deployment, self.of(Revision), self.replicas, operation, self.now)

    # Decisions

    def demand(self) -> Demand:
        """What gateways see."""
        return Demand(
            held=self.held,
            in_flight=sum(self.in_flight.values()),
            by_replica=dict(self.in_flight),
            idle_s=self.idle_s,
            published_mode=self.published.mode if self.published else None,
            published_targets=frozenset(t.replica.uid for t in self.published.targets)
            if self.published
            else frozenset(),
            confirmed=self.confirmed,
            known=self.known,
        )

    def snapshot(self) -> ServingSnapshot:
        """As the serving loop loads it."""
        deployment = self.deployment
        replicas = self.of(Replica) if deployment.deleting else self.replicas
        runs = {r.run for r in replicas}
        workers: dict[str, tuple[Worker, ...]] = {}
        for worker in self.of(Worker):
            if worker.run in runs:
                workers[worker.run] = (*workers.get(worker.run, ()), worker)
        return ServingSnapshot(
            now=self.now,
            deployment=deployment,
            revisions=tuple(self.of(Revision)),
            replicas=tuple(replicas),
            runs={r.uid: r for r in self.of(Run) if r.uid in runs},
            workers=workers,
            operations=tuple(o for o in self.of(Operation) if o.state in OPEN_OPERATION),
            demand=self.demand(),
        )

    def publish(self) -> Route | None:
        """The routes that rows imply now; the gateway takes them at once."""
        if not self.of(Deployment):
            self.published = None
            return None
        workers = {w.run: w for w in self.of(Worker)}
        self.published = route_of(self.deployment, self.replicas, workers)
        return self.published

    def step(self) -> Decision:
        """One serving decision, committed."""
        decision = decide(self.snapshot(), self.ids)
        self.commit(decision.change)
        return decision

    def settle(self, limit: int = 20) -> Decision:
        """Publish and decide until nothing is left to do."""
        for _ in range(limit):
            self.publish()
            if not self.of(Deployment):
                return Decision()
            decision = self.step()
            if decision.change is None:
                return decision
        raise AssertionError(f"does not settle: the last change was {decision.change}")

    @property
    def holders(self) -> set[str]:
        """Workers for which a place is held."""
        return {worker for worker, _ in self.holds}

    def held_on(self, machine: Machine) -> dict[tuple[str, int], Hold]:
        """Places that are held there."""
        return {place: h for place, h in self.holds.items() if h.machine == machine.uid}

    def rooms(self) -> tuple[Room, ...]:
        """Machines with what is held on them."""
        out = []
        for machine in self.of(Machine):
            held = {w: h for (w, _), h in self.holds.items() if h.machine == machine.uid}
            out.append(
                Room(
                    machine,
                    cpu_milli=sum(h.cpu_milli for h in self.held_on(machine).values()),
                    memory_bytes=sum(h.memory_bytes for h in self.held_on(machine).values()),
                    gpus=frozenset(g for h in self.held_on(machine).values() for g in h.gpus),
                    owners=frozenset(owner_of(w) for w in self.of(Worker) if w.uid in held),
                )
            )
        return tuple(out)

    def place(self) -> Cycle:
        """One scheduling cycle, committed."""
        pending = tuple(w for w in self.of(Worker) if w.state is WorkerState.PENDING and w.machine is None)
        cycle = schedule(SchedulingSnapshot(self.now, pending, {r.uid: r for r in self.of(Run)}, self.rooms()), None)
        for change in cycle.changes:
            self.commit(change)
        return cycle

    # People

    def known_rows(self) -> Known:
        """What commands load."""
        open_ones = tuple(o for o in self.of(Operation) if o.state in OPEN_OPERATION)
        return Known(self.deployment, tuple(self.of(Revision)), open_ones)

    def apply(self, document: Mapping[str, Any] | None = None, digest: str = "d1", **more: Any) -> Outcome:
        """`moor apply`, committed."""
        document = document or spec()
        intent = Intent("default", "gemma", document, {k: document[k] for k in ("runtime", "model")}, digest)
        if "resources" in document or "placement" in document:
            extra = {k: document[k] for k in ("resources", "placement") if k in document}
            intent = replace(intent, revision={**intent.revision, **extra})
        known = self.known_rows() if self.of(Deployment) else None
        outcome = commands.apply(intent, known, self.ids, self.now, actor="person:p", create_only=False, **more)
        self.commit(outcome.change)
        return outcome

    def command(self, name: str, **more: Any) -> Outcome:
        """`moor stop | delete | pause | wake | scale`, committed."""
        known = self.known_rows()
        if name == "stop":
            outcome = commands.stop(known, self.ids, self.now, actor="person:p", text=None)
        elif name == "delete":
            outcome = commands.delete(known, self.ids, self.now, actor="person:p")
        elif name == "scale":
            outcome = commands.scale(known, more.get("low"), more.get("high"), self.now, actor="person:p")
        else:
            outcome = getattr(commands, name)(known, self.now, actor="person:p")
        self.commit(outcome.change)
        return outcome

    # Machines

    def report(self, worker: Worker, *words: str, **news: Any) -> None:
        """A numbered report of the machine that holds it; `words` are `State:trigger:code`."""
        self._seq += 1
        seen = seen_of(worker, *words, seq=news.pop("seq", self._seq), **news)
        current = self.rows.get(worker.uid)
        if isinstance(current, Worker):
            self.commit_writes(apply(current, seen, self.now), "machine:m")

    def starts(self, worker: Worker) -> None:
        """Picked up, started, running."""
        self.report(worker, *STARTED, process={"pid": 1})

    def ready(self, worker: Worker) -> None:
        """Its server answers."""
        self.report(worker, ready=True, address="127.0.0.1:18000")

    def exits(self, worker: Worker, code: int = 137, *, gone: bool = True) -> None:
        """Its process ended."""
        word = "Failed:exited_nonzero:exited" if code else "Completed:exited_zero:exited"
        self.report(worker, word, params={"code": code}, exit_code=code, log_tail="boom", gone=gone)

    def stops(self, worker: Worker) -> None:
        """It was stopped and is gone."""
        self.report(worker, "Cancelled:stop_confirmed:stop.confirmed", gone=True)

    def beat(self, machine: Machine, workers: Mapping[str, int] | None = None, **ages: float) -> None:
        """A heartbeat that names these workers; without them, every one that its rows say is running there."""
        row = self.rows[machine.uid]
        assert isinstance(row, Machine)
        steps = ()
        if row.state is MachineState.NOT_READY:
            steps = (Step(MachineState.READY, "heartbeat_back", reason("machine.back")),)
        if workers is None:
            workers = {w.uid: w.epoch for w in self.of(Worker) if w.machine == row.uid and w.state in BEATING}
        fields = {"heartbeat_at": self.now, "beats": heard(row.beats, workers, ages, self.now)}
        self.commit_writes([Update("Machine", row.uid, row.version, steps, fields)], "machine:m")

    def watch(self, machine: Machine) -> Decision:
        """The lease loop, once."""
        row = self.rows[machine.uid]
        assert isinstance(row, Machine)
        workers = [w for w in self.of(Worker) if w.machine == row.uid and (_held_or_live(w))]
        runs = {r.uid: r for r in self.of(Run)}
        held = list(self.held_on(row))
        decision = watch(row, workers, TIMES, safe_from=self.safe_from, now=self.now, held=held, runs=runs)
        self.commit(decision.change)
        return decision

    def rejoin(self, machine: Machine, held: Iterable[HeldProcess], *, rebooted: bool = False) -> tuple[str, ...]:
        """The agent starts again and says what it has; returns what it is told to stop."""
        row = self.rows[machine.uid]
        assert isinstance(row, Machine)
        trigger = "returned" if row.state is MachineState.DOWN else "rejoined"
        step = Step(MachineState.RECONCILING, trigger, reason("machine.returned"))
        fields = {"heartbeat_at": self.now, "beats": excused(row.beats, self.now)}
        self.commit_writes([Update("Machine", row.uid, row.version, (step,), fields)], "machine:m")
        held = list(held)
        fresh = self.rows[machine.uid]
        assert isinstance(fresh, Machine)
        uids = {h.worker for h in held}
        workers = [w for w in self.of(Worker) if (w.machine == row.uid and _settles(w)) or w.uid in uids]
        runs = {r.uid: r for r in self.of(Run)}
        places = {place: h.gpus for place, h in self.held_on(fresh).items()}
        found = reconcile(fresh, held, workers, runs, self.now, rebooted=rebooted, places=places)
        self.commit(found.decision.change)
        return found.stop

    # Whole stretches

    def up(self, document: Mapping[str, Any] | None = None) -> Replica:
        """Applied, placed, started, ready and routed; returns the newest replica."""
        self.apply(document)
        self.settle()
        self.bring_up()
        return self.replicas[-1]

    def bring_up(self) -> None:
        """Everything that waits is placed, started and ready."""
        self.place()
        for worker in self.of(Worker):
            if worker.state is WorkerState.PENDING and worker.machine is not None:
                self.starts(worker)
                self.ready(self.rows[worker.uid])  # type: ignore[arg-type]  # a worker stays one
        self.settle()

    def advance(self, seconds: float) -> None:
        """Time passes, with heartbeats of every machine that is up."""
        self.now += seconds
        for machine in self.of(Machine):
            if machine.state in (MachineState.READY, MachineState.NOT_READY):
                self.beat(machine)


BEATING = (WorkerState.RUNNING, WorkerState.STALE)


def _settles(worker: Worker) -> bool:
    """What reconciling looks at beside what the machine holds."""
    return _held_or_live(worker) or worker.state is WorkerState.DOWN


def _held_or_live(worker: Worker) -> bool:
    return worker.state in (*ACTIVE_WORKER, WorkerState.PENDING, WorkerState.STOPPING) or worker.handed_over
