"""Safety of runs under arbitrary histories: processes that end in every way, machines that fall silent and come back,
stops for every cause, people who change their mind, and time.

After each event the recipe runs until it has nothing to do; the sentences below must hold at every such moment, and
once the world behaves every run must end and leave nothing behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moorage.decide.running import commands
from moorage.decide.running.adoption import HeldProcess
from moorage.decide.running.barrier import ARRIVED
from moorage.decide.running.members import RUNNING, unplaced, window_end
from moorage.decide.running.policy import Policy
from moorage.domain.changes import Step, Update
from moorage.domain.errors import Conflict
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import ACTIVE_WORKER, ENDED_WORKER, TERMINAL_RUN, MachineState, RunState, WorkerState
from tests.examples import examples, phases
from tests.run_world import RunWorld

NEXT = {
    "": ("Preparing", "Preparing:picked_up:prepare.started"),
    "Preparing": ("Starting", "Starting:started:container.started"),
    "ReadyToStart": ("Starting", "Starting:barrier_open:container.started"),
    "Starting": ("Running", "Running:running:container.running"),
}
BARRIER = ("ReadyToStart", "ReadyToStart:barrier:gang.barrier")
T = TypeVar("T")
OVER = ("Failed", "Completed", "Cancelled")


@dataclass
class Process:
    """What really runs on a machine, whatever the rows say."""

    worker: str
    machine: str
    epoch: int
    state: str = ""
    code: int = 0
    told: bool = True
    """its machine has said how it ended"""

    @property
    def alive(self) -> bool:
        return self.state not in OVER


SPECS: list[dict[str, Any]] = [
    {"count": 1},
    {"count": 3},
    {"count": 2, "time_limit": 400.0},
    {"array": {"count": 4, "max_parallel": 2, "fail": "end"}},
    {"array": {"count": 3, "max_parallel": 1, "fail": "first"}},
    {"count": 3, "gang": True},
    {"count": 3, "gang": True, "barrier_timeout": 60.0},
    {"count": 4, "gang": {"min_available": 2}},
    {"count": 3, "gang": True, "on_failure": "RestartTask", "leader": "worker-1"},
    {"count": 2, "on_failure": "RestartJob"},
    {"count": 2, "on_disconnect": "stop", "disconnect_after": 120.0},
    {"count": 2, "max_queue_time": 300.0},
    {
        "groups": [
            {"name": "db", "count": 1, "restart_policy": "Always"},
            {"name": "work", "count": 2, "depends_on": [{"group": "db", "condition": "running"}]},
        ],
        "complete_with": "work",
    },
]


def one_of(data: st.DataObject, rows: Sequence[T]) -> T:
    """One of them, drawn by its number, so that a failing example is short to read."""
    return rows[data.draw(st.integers(0, len(rows) - 1))]


class Runs(RuleBasedStateMachine):
    """Three machines with two places each, one run."""

    def __init__(self) -> None:
        super().__init__()
        self.world = RunWorld(machines=3, slots=2)
        self.processes: dict[tuple[str, int], Process] = {}
        self.cut_off: set[str] = set()
        self.seq = 0
        self.end: tuple[RunState, dict[str, WorkerState]] | None = None
        """how the run ended, and its workers that had ended then"""

    @initialize(
        spec=st.sampled_from(SPECS),
        policy=st.sampled_from(["OnFailure", "OnFailure", "Always", "Never"]),
        budget=st.integers(0, 3),
        up=st.booleans(),
    )
    def someone_submits(self, spec: dict[str, Any], policy: str, budget: int, up: bool) -> None:
        restart = {"backoff": 10.0, "backoff_max": 40.0, "budget": budget, "reset_after": 600.0}
        own = {} if "groups" in spec else {"restart_policy": policy}
        self.world.submit(**spec, **own, restart=restart)
        if up:
            for _ in range(5):
                self.everything_goes_on()

    # The control plane

    @property
    def policy(self) -> Policy:
        return Policy.of(self.world.run)

    def recipe(self) -> None:
        """The control plane does all it can now; one decision is enough, and one more where a run is removed."""
        self.world.settle(limit=3)
        if self.end is None and self.world.of(Run) and self.world.run.state in TERMINAL_RUN:
            ended = {w.uid: w.state for w in self.world.workers if w.state in ENDED_WORKER}
            self.end = (self.world.run.state, ended)

    @rule()
    def the_scheduler_runs(self) -> None:
        self.world.place()
        self.recipe()

    @rule(data=st.data())
    def the_scheduler_preempts(self, data: st.DataObject) -> None:
        self.stop_one(data, "preemption")

    @rule(data=st.data())
    def a_drain_begins_or_ends(self, data: st.DataObject) -> None:
        machine = one_of(data, self.world.of(Machine))
        self.world.set(machine, draining=None if machine.draining else {"until": None})
        self.recipe()

    def stop_one(self, data: st.DataObject, cause: str) -> None:
        active = [w for w in self.world.of(Worker) if w.state in ACTIVE_WORKER]
        if active:
            chosen = one_of(data, active)
            stop = {"cause": cause, "text": "urgent", "since": self.world.now}
            step = Step("Stopping", "stop_requested", reason("stop.preempted", run="urgent"))
            update = Update("Worker", chosen.uid, chosen.version, (step,), {"stop": stop, "ready": False})
            self.world.commit_writes([update], "controller:scheduler")
            self.recipe()

    # People

    @rule(what=st.sampled_from(["cancel", "delete", "restart"]))
    def someone_commands(self, what: str) -> None:
        world = self.world
        if not world.of(Run):
            return
        run, now = world.run, world.now
        try:
            if what == "cancel":
                outcome = commands.cancel(run, now, actor="person:p", text=None)
            elif what == "delete":
                outcome = commands.delete(run, now, actor="person:p")
            elif run.state not in TERMINAL_RUN:
                known = commands.KnownRun(run)
                outcome = commands.restart(run, known, world.ids, now, actor="person:p", text="again")
            else:
                return
        except Conflict:
            return
        world.commit(outcome.change)
        self.recipe()

    @rule(data=st.data(), text=st.sampled_from([None, "wrong"]))
    def someone_stops_a_worker(self, data: st.DataObject, text: str | None) -> None:
        if self.world.of(Worker):
            worker = one_of(data, self.world.of(Worker))
            outcome = commands.stop_worker(worker, self.world.run, self.world.now, actor="person:p", text=text)
            self.world.commit(outcome.change)
            self.recipe()

    # Processes

    def linked(self, machine: str) -> bool:
        row = self.world.rows[machine]
        assert isinstance(row, Machine)
        return machine not in self.cut_off and row.state in (MachineState.READY, MachineState.NOT_READY)

    def arrive(self) -> None:
        """Machines take over what was placed on them."""
        for worker in self.world.of(Worker):
            key = (worker.uid, worker.epoch)
            if worker.machine and worker.handed_over and key not in self.processes and self.linked(worker.machine):
                self.processes[key] = Process(worker.uid, worker.machine, worker.epoch)

    def say(self, own: Process, *words: str, **news: Any) -> None:
        self.seq += 1
        row = self.world.rows.get(own.worker)
        if isinstance(row, Worker):
            self.world.report(row, *words, seq=self.seq, epoch=own.epoch, machine=own.machine, **news)
        elif news.get("gone"):
            self.world.holds.pop((own.worker, own.epoch), None)
        self.recipe()

    def go_on(self, own: Process) -> None:
        """One step of its machine with it."""
        row = self.world.rows.get(own.worker)
        if not isinstance(row, Worker) or not self.linked(own.machine) or row.epoch != own.epoch:
            return
        if row.state is WorkerState.STOPPING:
            own.state = "Cancelled"
            self.say(own, "Cancelled:stop_confirmed:stop.confirmed", gone=True)
        elif own.state == "Preparing" and self.policy.gang:
            own.state, word = BARRIER
            self.say(own, word)
        elif own.state in NEXT and (own.state != "ReadyToStart" or row.go):
            own.state, word = NEXT[own.state]
            self.say(own, word)

    def end_process(self, own: Process, code: int, *, together: bool) -> None:
        own.state, own.code, own.told = ("Failed" if code else "Completed"), code, False
        if self.linked(own.machine):
            self.tell_end(own, together=together)

    def tell_end(self, own: Process, *, together: bool) -> None:
        own.told = True
        trigger = "exited_nonzero" if own.code else "exited_zero"
        self.say(
            own,
            f"{own.state}:{trigger}:exited",
            params={"code": own.code},
            exit_code=own.code,
            log_tail="boom",
            gone=together,
        )
        if not together:
            self.say(own, gone=True)

    def alive(self) -> list[Process]:
        self.arrive()
        return [p for p in self.processes.values() if p.alive]

    @rule(data=st.data())
    def a_process_goes_on(self, data: st.DataObject) -> None:
        if self.alive():
            self.go_on(one_of(data, self.alive()))

    @rule()
    def everything_goes_on(self) -> None:
        self.world.place()
        self.recipe()
        for process in self.alive():
            self.go_on(process)

    @rule(data=st.data(), code=st.sampled_from([0, 1, 1, 137]), together=st.booleans())
    def a_process_ends(self, data: st.DataObject, code: int, together: bool) -> None:
        running = [p for p in self.alive() if p.state in ("Starting", "Running")]
        if running:
            self.end_process(one_of(data, running), code, together=together)

    @rule(data=st.data())
    def a_process_cannot_be_started(self, data: st.DataObject) -> None:
        early = [p for p in self.alive() if p.state == "Preparing" and self.linked(p.machine)]
        if early:
            own = one_of(data, early)
            own.state = "Failed"
            self.say(own, "Failed:failed:create.failed", params={"error": "no"}, gone=True)

    # Machines

    @rule(data=st.data())
    def a_machine_falls_silent_for_good(self, data: st.DataObject) -> None:
        machine = one_of(data, self.world.of(Machine))
        self.cut_off.add(machine.uid)
        self.pass_time(31.0)

    @rule(data=st.data(), rebooted=st.sampled_from([False, False, True]))
    def a_machine_comes_back(self, data: st.DataObject, rebooted: bool) -> None:
        if self.cut_off:
            machine = self.world.rows[data.draw(st.sampled_from(sorted(self.cut_off)))]
            assert isinstance(machine, Machine)
            self.come_back(machine, rebooted=rebooted)

    def come_back(self, machine: Machine, *, rebooted: bool) -> None:
        self.cut_off.discard(machine.uid)
        row = self.world.rows[machine.uid]
        assert isinstance(row, Machine)
        if row.state not in (MachineState.READY, MachineState.NOT_READY, MachineState.DOWN):
            return
        here = [p for p in self.processes.values() if p.machine == machine.uid and (p.alive or not p.told)]
        if rebooted:
            for process in here:
                process.state, process.told = "Cancelled", True
            here = []
        held = [HeldProcess(p.worker, p.epoch, p.alive, p.state == "Running" or p.code != 0) for p in here]
        stop = set(self.world.rejoin(row, held, rebooted=rebooted))
        self.recipe()
        for process in here:
            if not process.alive:
                self.tell_end(process, together=True)
            elif process.worker in stop:
                process.state = "Cancelled"
                self.say(process, "Cancelled:stop_confirmed:stop.confirmed", gone=True)

    @rule(seconds=st.sampled_from([1.0, 11.0, 61.0, 301.0, 601.0]))
    def time_passes(self, seconds: float) -> None:
        self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        self.world.now += seconds
        for machine in self.world.of(Machine):
            if self.linked(machine.uid):
                self.world.beat(machine)
        for machine in self.world.of(Machine):
            self.world.watch(self.world.rows[machine.uid])  # type: ignore[arg-type]  # a machine stays one
        self.recipe()

    # Always

    @invariant()
    def what_is_settled_stays_settled(self) -> None:
        if self.world.of(Run):
            assert self.world.decide().change is None

    @invariant()
    def an_ended_run_stays_as_it_ended_and_success_is_not_overwritten(self) -> None:
        if self.end is None or not self.world.of(Run):
            return
        state, workers = self.end
        assert self.world.run.state is state
        for worker in self.world.workers:
            before = workers.get(worker.uid)
            if before is not None and before is not WorkerState.DOWN:
                assert worker.state is before, f"{worker.name} was {before} when its run ended, and is {worker.state}"

    @invariant()
    def a_terminal_run_restarts_nothing_and_keeps_nothing_that_nobody_asked_to_stop(self) -> None:
        if self.end is not None and self.world.of(Run):
            for worker in self.world.workers:
                assert worker.state in ENDED_WORKER or worker.state is WorkerState.STOPPING, worker.state

    @invariant()
    def success_is_followed_only_by_another_attempt(self) -> None:
        for uid, _, source, to, _ in self.world.history:
            if uid.startswith("worker-") and source == "Completed":
                assert to in ("Completed", "Pending", "deleted")

    @invariant()
    def a_gang_runs_together(self) -> None:
        """Where one needed member runs, the others do as well, are on their way, are done, or may still come back."""
        if not self.world.of(Run) or self.end is not None:
            return
        policy = self.policy
        if not policy.gang or not policy.restarts_whole:
            return
        needed = policy.needed(self.world.workers)
        if any(policy.restart_policy(w) == "Always" for w in needed) or not any(w.state in RUNNING for w in needed):
            return
        for worker in needed:
            if worker.state is WorkerState.DOWN:
                assert self.world.now < (worker.ended_at or 0.0) + 60.0
            else:
                assert worker.state in ARRIVED, f"{worker.name} is {worker.state} while others of its gang run"

    @invariant()
    def nobody_passes_the_barrier_alone(self) -> None:
        if not self.world.of(Run) or self.end is not None or not self.policy.gang:
            return
        passing = any(w.go and w.state is WorkerState.READY_TO_START for w in self.world.workers)
        if passing and self.policy.restarts_whole:
            there = ARRIVED | {WorkerState.DOWN}
            assert all(w.state in there for w in self.policy.needed(self.world.workers))

    @invariant()
    def a_machine_that_answers_has_no_copy_that_is_not_counted(self) -> None:
        for process in self.processes.values():
            row = self.world.rows.get(process.worker)
            if process.alive and self.linked(process.machine):
                assert isinstance(row, Worker)
                assert (row.epoch, row.machine) == (process.epoch, process.machine), f"{row.name} has another copy"

    @invariant()
    def a_process_that_may_run_holds_its_place(self) -> None:
        for worker in self.world.of(Worker):
            if worker.state in ACTIVE_WORKER or worker.state is WorkerState.STOPPING:
                assert (worker.uid, worker.epoch) in self.world.holds, f"{worker.name} is {worker.state}"

    @invariant()
    def no_budget_is_overspent_and_each_attempt_has_its_epoch(self) -> None:
        for worker in self.world.of(Worker):
            assert worker.restarts <= self.policy.budget
            assert worker.epoch >= worker.attempt - 1

    @invariant()
    def an_array_keeps_its_limit(self) -> None:
        if not self.world.of(Run) or self.end is not None or self.policy.max_parallel is None:
            return
        busy = [w for w in self.world.workers if not unplaced(w) and w.state not in ENDED_WORKER]
        assert len(busy) <= self.policy.max_parallel

    @invariant()
    def every_deadline_is_told(self) -> None:
        """What only time can move has a time at which it is looked at again: a lost worker that may still come back.

        One whose window is over may wait for the others of its gang, whose machines say when they are gone.
        """
        if not self.world.of(Run) or self.end is not None:
            return
        wake_at, seen = self.world.decide().wake_at, self.world.snapshot()
        lost = [w for w in self.world.workers if w.state is WorkerState.DOWN and not w.final]
        if any(window_end(w, seen) > seen.now for w in lost) and self.world.run.cancel is None:
            assert wake_at is not None
            assert wake_at > self.world.now

    # In the end

    def teardown(self) -> None:
        """Everybody comes back, does what is asked and finishes its work; what always starts again is cancelled."""
        world = self.world
        if not world.of(Run):
            return
        for machine in world.of(Machine):
            world.set(machine, draining=None)
        for turn in range(40):
            if self.world.ended:
                break
            if turn == 25:
                self.someone_commands("cancel")
            self.calm()
        assert world.ended, f"the run does not end: {world.run.state}, {world.states}"
        for _ in range(3):
            self.calm()
        assert not world.holds, "a place is held by what is gone"
        world.now += 604800.0
        self.recipe()
        assert not world.of(Run)
        assert not world.of(Worker)

    def calm(self) -> None:
        for machine in self.world.of(Machine):
            row = self.world.rows[machine.uid]
            assert isinstance(row, Machine)
            if machine.uid in self.cut_off or row.state is MachineState.DOWN:
                self.come_back(row, rebooted=False)
        self.pass_time(61.0)
        for _ in range(4):
            self.everything_goes_on()
        for process in self.alive():
            if process.state == "Running":
                self.end_process(process, 0, together=True)


Runs.TestCase.settings = settings(
    max_examples=examples(60),
    stateful_step_count=30,
    deadline=None,
    phases=phases(),
    suppress_health_check=list(HealthCheck),
)
test_runs_keep_their_promises = Runs.TestCase
