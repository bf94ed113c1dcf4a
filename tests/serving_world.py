"""A small world for decisions: rows in memory, one change applied at a time with the checks the store makes.

It drives the production decisions (serving, scheduling, reports, leases, adoption, commands) and plays machines and a
gateway. Used by the unit tests of `decide` and by the property tests; holds no rule of its own beside the store's.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from moorage.decide.decision import Decision, Outcome
from moorage.decide.scheduling.cycle import Cycle, schedule
from moorage.decide.scheduling.snapshot import Room, SchedulingSnapshot, owner_of
from moorage.decide.serving import commands
from moorage.decide.serving.commands import Intent, Known
from moorage.decide.serving.cycle import decide
from moorage.decide.serving.exposure import Route, route_of
from moorage.decide.serving.gang import fronts
from moorage.decide.serving.phase import OPEN_OPERATION, deployment_phase
from moorage.decide.serving.snapshot import Demand, Load, ServingSnapshot
from moorage.domain.nouns import Deployment, Machine, Operation, Replica, Revision, Run, Worker
from moorage.domain.states import ENDED_WORKER, TERMINAL_REPLICA, MachineState, Phase, WorkerState
from tests.memory_machines import MemoryMachines
from tests.memory_rows import START as START
from tests.memory_rows import STARTED as STARTED
from tests.memory_rows import seen_of as seen_of


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


class World(MemoryMachines):
    """Rows of one deployment and its machines, at a time that moves when it is told to."""

    def __init__(self, machines: int = 1, **capacity: Any) -> None:
        super().__init__()
        self.held = 0
        self.held_told_s = 0.0
        self.in_flight: dict[str, int] = {}
        self.idle_s: float | None = None
        self.known = True
        self.load = Load()
        self.confirmed = True
        self.published: Route | None = None
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
            held_told_s=self.held_told_s,
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
            leftovers=self.leftovers(),
            demand=self.demand(),
            load=self.load,
            machines={m.uid: m for m in self.of(Machine) if m.draining is not None},
            lost=self._of_workers(deployment, workers, MachineState.DOWN),
            held=self.holders if deployment.deleting else frozenset(),
        )

    def _of_workers(
        self, deployment: Deployment, workers: Mapping[str, tuple[Worker, ...]], state: MachineState
    ) -> dict[str, Machine]:
        """Machines in that state with a worker of it, as a deletion asks for them."""
        placed = {w.machine for group in workers.values() for w in group} if deployment.deleting else set()
        return {m.uid: m for m in self.of(Machine) if m.uid in placed and m.state is state}

    def leftovers(self) -> frozenset[str]:
        """Revisions of which a worker may still be on a machine."""
        revisions = {r.run: r.revision for r in self.of(Replica)}
        return frozenset(
            revisions[w.run]
            for w in self.of(Worker)
            if w.run in revisions and (w.handed_over or w.state not in ENDED_WORKER)
        )

    def publish(self) -> Route | None:
        """The routes that rows imply now; the gateway takes them at once."""
        if not self.of(Deployment):
            self.published = None
            return None
        workers = fronts(self.of(Worker))
        self.published = route_of(self.deployment, self.replicas, workers, self.of(Revision))
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
    def holders(self) -> frozenset[str]:
        """Workers for which a place is held."""
        return frozenset(worker for worker, _ in self.holds)

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
        if "workers" in document["replicas"]:
            size = {"workers": document["replicas"]["workers"]}
            intent = replace(intent, revision={**intent.revision, "replicas": size})
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
