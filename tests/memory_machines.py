"""Machines in memory: their reports, heartbeats, silence and return, laid over rows by the production decisions.

Used by `serving_world` and `run_world`; holds no rule of its own.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.decide.decision import Decision
from moorage.decide.running.adoption import HeldProcess, reconcile
from moorage.decide.running.heartbeats import excused, heard
from moorage.decide.running.liveness import LeaseTimes, watch
from moorage.decide.running.reports import apply
from moorage.domain.changes import Hold, Step, Update
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import ACTIVE_WORKER, MachineState, WorkerState
from tests.memory_rows import STARTED, MemoryRows, seen_of

TIMES = LeaseTimes()
BEATING = (WorkerState.RUNNING, WorkerState.STALE)


class MemoryMachines(MemoryRows):
    """Rows, and machines that say what they see."""

    def __init__(self) -> None:
        super().__init__()
        self.safe_from = 0.0
        self._seq = 0

    def held_on(self, machine: Machine) -> dict[tuple[str, int], Hold]:
        """Places that are held there."""
        return {place: h for place, h in self.holds.items() if h.machine == machine.uid}

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

    def advance(self, seconds: float) -> None:
        """Time passes, with heartbeats of every machine that is up."""
        self.now += seconds
        for machine in self.of(Machine):
            if machine.state in (MachineState.READY, MachineState.NOT_READY):
                self.beat(machine)


def _settles(worker: Worker) -> bool:
    """What reconciling looks at beside what the machine holds."""
    return _held_or_live(worker) or worker.state is WorkerState.DOWN


def _held_or_live(worker: Worker) -> bool:
    return worker.state in (*ACTIVE_WORKER, WorkerState.PENDING, WorkerState.STOPPING) or worker.handed_over
