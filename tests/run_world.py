"""A small world for decisions about runs of their own: rows in memory, machines with room, a scheduler that counts.

It drives the production decisions (the running recipe, reports, leases, adoption, commands). Used by the unit tests of
`decide/running` and by the property tests; holds no rule of its own beside the store's, and that a gang is placed
whole.
"""

from collections.abc import Iterable
from typing import Any

from moorage.decide.decision import Decision, Draft
from moorage.decide.running.creating import create_run
from moorage.decide.running.cycle import decide
from moorage.decide.running.members import unplaced
from moorage.decide.running.policy import Policy
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.changes import Hold, Step, Update
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import TERMINAL_RUN, MachineState, RunState, StopCause, WorkerState
from tests.memory_machines import MemoryMachines

TO_BARRIER = ("Preparing:picked_up:prepare.started", "ReadyToStart:barrier:gang.barrier")
FROM_BARRIER = ("Starting:barrier_open:container.started", "Running:running:container.running")


def run_spec(**parts: Any) -> dict[str, Any]:
    """A normalised run document, as far as decisions read it; `count` is the size of its only group."""
    policy = parts.pop("restart_policy", "OnFailure")
    group = {"name": "worker", "count": parts.pop("count", 1), "restart_policy": policy}
    groups = parts.pop("groups", [group])
    gang = parts.get("gang", False)
    return {
        "kind": "Run",
        "name": "train",
        "groups": groups,
        "leader": f"{groups[0]['name']}-0" if gang else None,
        "on_failure": "RestartJob" if gang else "RestartTask",
        "restart": {"backoff": 10.0, "backoff_max": 300.0, "budget": 10, "reset_after": 600.0},
        "barrier_timeout": 900.0,
        "ttl_after_finished": 604800.0,
        **parts,
    }


class RunWorld(MemoryMachines):
    """One run (and those it waits for), and machines with so many slots each."""

    def __init__(self, machines: int = 2, slots: int = 8, **spec: Any) -> None:
        super().__init__()
        self.slots = slots
        self.others: dict[str, Run] = {}
        for n in range(machines):
            self.add_machine(f"m{n}")
        if spec:
            self.submit(**spec)

    # Rows

    @property
    def run(self) -> Run:
        """The only one."""
        return self.of(Run)[0]

    @property
    def workers(self) -> list[Worker]:
        """By group and rank."""
        return Policy.of(self.run).ordered(self.of(Worker))

    @property
    def states(self) -> list[str]:
        """Of the workers, by group and rank."""
        return [str(w.state) for w in self.workers]

    def w(self, rank: int, group: str = "worker") -> Worker:
        """One worker, as it is now."""
        return next(w for w in self.of(Worker) if (w.group, w.rank) == (group, rank))

    def code(self, row: Run | Worker) -> str:
        """The code of a row's reason, as it is now."""
        why: Reason | None = self.rows[row.uid].reason
        return why.code if why is not None else ""

    # People

    def submit(self, **spec: Any) -> Run:
        """`moor run -f`, and the first decisions."""
        draft = Draft((), self.now, "person:p")
        create_run(draft, self.ids.new("Run"), "default", "train", run_spec(**spec))
        self.commit(draft.decision().change)
        self.settle()
        return self.run

    def set(self, row: Run | Worker | Machine, **fields: Any) -> None:
        """A person's or another loop's write."""
        current = self.rows[row.uid]
        self.commit_writes([Update(current.kind, current.uid, current.version, fields=fields)], "person:p")

    def cancel(self, text: str | None = "enough") -> None:
        """`moor cancel`."""
        self.set(self.run, cancel={"cause": "user", "text": text, "at": self.now})

    def ask(self, rank: int, cause: StopCause, text: str | None = None) -> None:
        """The scheduler, the machines' loop or a person stops one worker."""
        worker = self.w(rank)
        step = Step(WorkerState.STOPPING, "stop_requested", reason("stop.default"))
        stop = {"cause": str(cause), "text": text, "since": self.now}
        self.commit_writes([Update("Worker", worker.uid, worker.version, (step,), {"stop": stop})], "controller:x")
        self.settle()

    # Decisions

    def snapshot(self) -> RunSnapshot:
        """As the runs loop loads it."""
        machines = {m.uid: m for m in self.of(Machine)}
        return RunSnapshot(self.now, self.run, tuple(self.of(Worker)), machines, self.others)

    def decide(self) -> Decision:
        """One decision, not committed."""
        return decide(self.snapshot(), self.ids)

    def settle(self, limit: int = 5) -> Decision:
        """Decide until nothing is left to do."""
        for _ in range(limit):
            if not self.of(Run):
                return Decision()
            decision = self.decide()
            if decision.change is None:
                return decision
            self.commit(decision.change)
        raise AssertionError(f"does not settle: the last change was {decision.change}")

    # The scheduler

    def free(self) -> list[str]:
        """A machine for each free slot, the emptiest first."""
        taken = {m.uid: len(self.held_on(m)) for m in self.of(Machine)}
        ready = [m for m in self.of(Machine) if m.state is MachineState.READY and m.draining is None]
        return [m.uid for n in range(self.slots) for m in ready if taken[m.uid] + n < self.slots]

    def place(self) -> None:
        """Place what may be placed: of a gang all that is needed or nothing, then the others."""
        if not self.of(Run) or self.run.state in TERMINAL_RUN or self.run.cancel is not None or self.run.deleting:
            return
        policy = Policy.of(self.run)
        needed = {w.uid for w in policy.needed(self.workers)} if policy.gang else set()
        first = [w for w in self.workers if w.uid in needed and unplaced(w)]
        if all(self._eligible(w) for w in first) and len(first) <= len(self.free()):
            self._place_each(first)
        if not any(unplaced(self._now(w)) for w in first):
            self._place_each([w for w in self.workers if w.uid not in needed and unplaced(w) and self._eligible(w)])

    def _eligible(self, worker: Worker) -> bool:
        return worker.waits is None and (worker.restart_at is None or worker.restart_at <= self.now)

    def _place_each(self, workers: Iterable[Worker]) -> None:
        for worker in workers:
            free = self.free()
            if not free:
                return
            machine = self.rows[free[0]]
            fields = {
                "machine": machine.uid,
                "machine_name": machine.name,
                "epoch": worker.epoch + 1,
                "handed_over": True,
                "placed_at": self.now,
                "restart_at": None,
            }
            why = reason("worker.placed", machine=machine.name)
            update = Update("Worker", worker.uid, worker.version, fields=fields, reason=why)
            self.commit_writes([update, Hold(machine.uid, worker.uid, worker.epoch + 1)], "controller:scheduler")

    def _now(self, worker: Worker) -> Worker:
        row = self.rows[worker.uid]
        assert isinstance(row, Worker)
        return row

    # Machines

    def up(self) -> None:
        """Everything that may be placed is, passes the barrier and runs."""
        self.place()
        self.settle()
        if Policy.of(self.run).gang:
            for worker in self.workers:
                if worker.state is WorkerState.PENDING and worker.machine is not None:
                    self.report(worker, *TO_BARRIER)
            self.settle()
            for worker in self.workers:
                if worker.state is WorkerState.READY_TO_START and worker.go:
                    self.report(worker, *FROM_BARRIER)
        else:
            for worker in self.workers:
                if worker.state is WorkerState.PENDING and worker.machine is not None:
                    self.starts(worker)
        self.settle()

    def exit(self, rank: int, code: int = 1, group: str = "worker", *, gone: bool = True) -> None:
        """A process ends, and what follows is decided."""
        self.exits(self.w(rank, group), code, gone=gone)
        self.settle()

    def confirm_stops(self) -> None:
        """Every stop that was asked for is carried out."""
        for worker in self.workers:
            if worker.state is WorkerState.STOPPING:
                self.stops(worker)
        self.settle()

    def machine_of(self, worker: Worker) -> Machine:
        """The machine it is on."""
        row = self.rows[worker.machine or ""]
        assert isinstance(row, Machine)
        return row

    def lose(self, machine: Machine) -> None:
        """Its lease is over; the other machines keep beating."""
        self.now += 31.0
        for other in self.of(Machine):
            if other.uid != machine.uid and other.state in (MachineState.READY, MachineState.NOT_READY):
                self.beat(other)
        self.watch(machine)
        self.settle()

    def wait(self, seconds: float) -> None:
        """Time passes, and what is due is decided."""
        self.advance(seconds)
        self.settle()

    @property
    def ended(self) -> bool:
        """The run is terminal, or gone."""
        return not self.of(Run) or self.run.state in TERMINAL_RUN

    def is_(self, state: RunState, code: str) -> bool:
        """Whether the run is in that state for that reason."""
        return (self.run.state, self.code(self.run)) == (state, code)
