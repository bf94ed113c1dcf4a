"""Copies of workers under arbitrary silence: machines that are cut off, come back, boot again, report late, hang, are
drained or removed, in any order.

What really runs is kept apart from what rows say. Whatever happens: no copy runs on a machine that answers unless it is
the counted one, a success is never overwritten by a loss, and the places held are those of what may still run.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moorage.decide.running import fleet
from moorage.decide.running.adoption import HeldProcess, reconcile
from moorage.decide.running.heartbeats import given_up
from moorage.decide.running.reports import Seen, apply, of_deleted
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import ACTIVE_WORKER, ENDED_WORKER, MachineState, WorkerState
from tests.examples import examples, phases
from tests.memory_rows import STARTED, seen_of
from tests.run_world import RunWorld

UP = (MachineState.READY, MachineState.NOT_READY)
WANTED = (*ACTIVE_WORKER, WorkerState.PENDING, WorkerState.STOPPING)


@dataclass
class Copy:
    """One process, wherever it runs and whether or not anybody counts it."""

    worker: str
    machine: str
    epoch: int
    running: bool = False
    hung: bool = False
    over: bool = False
    unsaid: list[Seen] = field(default_factory=list)

    @property
    def place(self) -> tuple[str, int]:
        return (self.worker, self.epoch)


class Fencing(RuleBasedStateMachine):
    """Three machines, one run of three workers."""

    def __init__(self) -> None:
        super().__init__()
        self.world = RunWorld(machines=3, slots=2)
        self.copies: list[Copy] = []
        self.cut_off: set[str] = set()
        self.seq = 0
        self.joined = 3

    @initialize(
        ttl=st.sampled_from([None, 10.0, 60.0, 300.0]),
        policy=st.sampled_from(["OnFailure", "Always", "Never"]),
        gang=st.booleans(),
    )
    def someone_submits(self, ttl: float | None, policy: str, gang: bool) -> None:
        more: dict[str, Any] = {} if ttl is None else {"heartbeat_ttl": ttl}
        self.world.submit(count=3, gang=gang, restart_policy=policy, **more)
        for _ in range(4):
            self.agents_turn()

    # The control plane and the agents

    def recipe(self) -> None:
        self.world.settle(limit=20)

    def linked(self, machine: str) -> bool:
        row = self.world.rows[machine]
        assert isinstance(row, Machine)
        return machine not in self.cut_off and row.state in UP

    def alive_on(self, machine: str) -> list[Copy]:
        return [c for c in self.copies if c.machine == machine and not c.over]

    def row_of(self, copy: Copy) -> Worker | None:
        row = self.world.rows.get(copy.worker)
        return row if isinstance(row, Worker) else None

    def counted(self, copy: Copy) -> bool:
        row = self.row_of(copy)
        if row is None or (row.epoch, row.machine) != (copy.epoch, copy.machine):
            return False
        return row.state in WANTED or given_up(row)

    def say(self, copy: Copy, *words: str, **news: Any) -> None:
        self.seq += 1
        like = Worker(uid=copy.worker, machine=copy.machine, epoch=copy.epoch)
        copy.unsaid.append(seen_of(like, *words, seq=self.seq, **news))
        self.send(copy)

    def send(self, copy: Copy) -> None:
        while copy.unsaid and self.linked(copy.machine):
            seen, row = copy.unsaid[0], self.row_of(copy)
            writes = of_deleted(copy.worker, seen) if row is None else apply(row, seen, self.world.now)
            self.world.commit_writes(writes, "machine:m")
            del copy.unsaid[0]
            self.recipe()

    def end(self, copy: Copy, word: str, code: int | None = None) -> None:
        copy.over = True
        params = {"code": code} if code is not None else {}
        path = () if copy.running else STARTED
        self.say(copy, *(path if code is not None else ()), word, params=params, exit_code=code, gone=True)

    @rule()
    def agents_turn(self) -> None:
        """What waits is placed; every agent that is linked does what its desired set says."""
        self.world.place()
        self.recipe()
        for machine in self.world.of(Machine):
            if self.linked(machine.uid):
                self.stop_what_is_not_wanted(machine)
                self.start_what_is(machine)

    def stop_what_is_not_wanted(self, machine: Machine) -> None:
        for copy in self.alive_on(machine.uid):
            row = self.row_of(copy)
            if row is not None and self.counted(copy):
                if row.state is WorkerState.STOPPING:
                    self.end(copy, "Cancelled:stop_confirmed:stop.confirmed")
            elif copy.worker in self.ask_about(machine, copy):
                self.end(copy, "Cancelled:stop_confirmed:stop.confirmed")

    def ask_about(self, machine: Machine, copy: Copy) -> tuple[str, ...]:
        world = self.world
        row, now = world.rows[machine.uid], self.row_of(copy)
        assert isinstance(row, Machine)
        places = {place: h.gpus for place, h in world.held_on(row).items()}
        runs = {r.uid: r for r in world.of(Run)}
        held = [HeldProcess(copy.worker, copy.epoch, True, copy.running)]
        found = reconcile(row, held, [now] if now else [], runs, world.now, rebooted=False, places=places)
        world.commit(found.decision.change)
        return found.stop

    def start_what_is(self, machine: Machine) -> None:
        for worker in self.world.of(Worker):
            if worker.machine != machine.uid or worker.epoch <= self.newest(worker, machine):
                if worker.machine == machine.uid and worker.state is WorkerState.READY_TO_START and worker.go:
                    self.open_barrier(worker)
                continue
            assert not [c for c in self.alive_on(machine.uid) if c.worker == worker.uid], "the late copy goes first"
            if worker.state is WorkerState.PENDING:
                self.copies.append(Copy(worker.uid, machine.uid, worker.epoch))
                self.begin(worker, self.copies[-1])
            elif worker.state is WorkerState.STOPPING:
                self.copies.append(Copy(worker.uid, machine.uid, worker.epoch))
                self.end(self.copies[-1], "Cancelled:stop_confirmed:stop.confirmed")

    def newest(self, worker: Worker, machine: Machine) -> int:
        return max((c.epoch for c in self.copies if (c.worker, c.machine) == (worker.uid, machine.uid)), default=0)

    def begin(self, worker: Worker, copy: Copy) -> None:
        if self.world.run.spec.get("gang"):
            self.say(copy, STARTED[0], "ReadyToStart:barrier:gang.barrier")
        else:
            copy.running = True
            self.say(copy, *STARTED)

    def open_barrier(self, worker: Worker) -> None:
        for copy in self.alive_on(worker.machine or ""):
            if copy.place == (worker.uid, worker.epoch) and not copy.running:
                copy.running = True
                self.say(copy, "Starting:barrier_open:container.started", STARTED[2])

    # What happens

    @rule(data=st.data(), code=st.sampled_from([0, 0, 1]))
    def a_process_ends(self, data: st.DataObject, code: int) -> None:
        running = [c for c in self.copies if c.running and not c.over]
        if running:
            word = "Failed:exited_nonzero:exited" if code else "Completed:exited_zero:exited"
            self.end(data.draw(st.sampled_from(running)), word, code)

    @rule(data=st.data(), hung=st.booleans())
    def a_process_hangs_or_wakes(self, data: st.DataObject, hung: bool) -> None:
        running = [c for c in self.copies if c.running and not c.over]
        if running:
            data.draw(st.sampled_from(running)).hung = hung

    @rule(data=st.data(), many=st.integers(1, 3))
    def machines_are_cut_off(self, data: st.DataObject, many: int) -> None:
        for machine in self.world.of(Machine)[:many]:
            if data.draw(st.booleans()):
                self.cut_off.add(machine.uid)

    @rule(seconds=st.sampled_from([10.0, 60.0, 120.0]), data=st.data())
    def a_process_hangs_for_a_while(self, seconds: float, data: st.DataObject) -> None:
        self.a_process_hangs_or_wakes(data, hung=True)
        self.time_passes(seconds)

    @rule(seconds=st.sampled_from([10.0, 10.0, 30.0, 60.0, 120.0]))
    def time_passes(self, seconds: float) -> None:
        """In heartbeats of ten seconds."""
        for _ in range(int(seconds // 10)):
            self.world.now += 10.0
            for machine in self.world.of(Machine):
                if self.linked(machine.uid):
                    alive = {c.worker: c.epoch for c in self.alive_on(machine.uid) if c.running and not c.hung}
                    self.world.beat(machine, alive)
                self.world.watch(machine)
            self.recipe()

    @rule(data=st.data(), rebooted=st.sampled_from([False, False, True]))
    def a_machine_comes_back(self, data: st.DataObject, rebooted: bool) -> None:
        silent = [m for m in self.world.of(Machine) if m.uid in self.cut_off]
        machine = data.draw(st.sampled_from(silent or self.world.of(Machine)))
        if machine.state in (*UP, MachineState.DOWN):
            self.come_back(machine, rebooted=rebooted)

    def come_back(self, machine: Machine, *, rebooted: bool) -> None:
        """Its agent starts again: what still runs, and what ended unheard; after a boot nothing runs."""
        if rebooted:
            self.copies = [c for c in self.copies if c.machine != machine.uid or c.over]
        self.cut_off.discard(machine.uid)
        here = [c for c in self.copies if c.machine == machine.uid and (not c.over or c.unsaid)]
        newest = {c.worker: c for c in here}
        held = [HeldProcess(c.worker, c.epoch, not c.over, c.running) for c in newest.values()]
        told = self.world.rejoin(machine, held, rebooted=rebooted)
        self.recipe()
        for copy in here:
            self.send(copy)
        for copy in self.alive_on(machine.uid):
            if copy.worker in told:
                self.end(copy, "Cancelled:stop_confirmed:stop.confirmed")

    @rule(data=st.data(), what=st.sampled_from(["drain", "uncordon", "uncordon", "remove"]))
    def someone_moves_a_machine(self, data: st.DataObject, what: str) -> None:
        world = self.world
        machine = data.draw(st.sampled_from([m for m in world.of(Machine) if m.state is not MachineState.REMOVED]))
        if what == "drain":
            world.commit(fleet.drain(machine, world.now + 60.0, world.now, "person:p").change)
        elif what == "uncordon":
            world.commit(fleet.uncordon(machine, "person:p").change)
        elif self.joined < 6:
            held = list(world.held_on(machine))
            here = [w for w in world.of(Worker) if w.machine == machine.uid or w.uid in {h[0] for h in held}]
            world.commit(fleet.remove(machine, here, held, world.now, "person:p").change)
            if machine.uid not in self.cut_off:  # told so, its agent stops everything and exits
                self.copies = [c for c in self.copies if c.machine != machine.uid]
            world.add_machine(f"m{self.joined}")
            self.joined += 1
        self.recipe()

    @rule()
    def someone_cancels(self) -> None:
        if self.seq > 40 and self.world.of(Run) and not self.world.ended:
            self.world.cancel()
            self.recipe()

    # Always

    @invariant()
    def a_machine_that_answers_runs_only_what_is_counted_or_about_to_be_stopped(self) -> None:
        counted = Counter(c.worker for c in self.copies if not c.over and self.counted(c))
        assert all(n == 1 for n in counted.values()), f"two counted copies: {counted}"

    @invariant()
    def what_may_run_on_a_machine_that_answers_holds_its_place(self) -> None:
        for copy in self.copies:
            if self.linked(copy.machine) and not copy.over:
                hold = self.world.holds.get(copy.place)
                assert hold is not None, f"{copy} runs without a place"
                assert hold.machine == copy.machine

    @invariant()
    def a_place_is_held_only_for_what_may_run(self) -> None:
        for (uid, epoch), hold in self.world.holds.items():
            row, machine = self.world.rows.get(uid), self.world.rows[hold.machine]
            placed = isinstance(row, Worker) and (row.epoch, row.machine) == (epoch, hold.machine) and row.handed_over
            there = [c for c in self.copies if c.place == (uid, epoch) and (not c.over or c.unsaid)]
            assert placed or there, f"epoch {epoch} of {uid} holds a place and cannot run"
            assert isinstance(machine, Machine)
            if machine.state is MachineState.DOWN:
                assert isinstance(row, Worker), "only a worker that may outlast its machine's lease"
                assert row.ttl_set, "only a worker that may outlast its machine's lease"
            assert machine.state is not MachineState.REMOVED, "a removed machine holds nothing"

    @invariant()
    def success_is_not_overwritten_by_a_loss(self) -> None:
        for uid, _, source, to, code in self.world.history:
            if source == "Completed" and to != source and uid.startswith("worker"):
                assert to in ("Pending", "deleted"), f"{uid}: Completed became {to} ({code})"

    @invariant()
    def what_was_lost_with_its_machine_has_no_place(self) -> None:
        for worker in self.world.of(Worker):
            if worker.state in ENDED_WORKER and not worker.handed_over:
                assert (
                    worker.machine is None
                    or (worker.uid, worker.epoch) not in self.world.holds
                    or any(c.place == (worker.uid, worker.epoch) for c in self.copies)
                )

    def teardown(self) -> None:
        """Everybody answers again: soon each machine runs what is counted and nothing else."""
        if not self.world.of(Run):
            return
        for machine in self.world.of(Machine):
            if machine.state in (*UP, MachineState.DOWN):
                self.come_back(machine, rebooted=False)
            if machine.state is MachineState.REMOVED:
                self.copies = [c for c in self.copies if c.machine != machine.uid]
        for copy in self.copies:
            copy.hung = False
        for _ in range(3):
            self.agents_turn()
        alive = [c for c in self.copies if not c.over]
        assert all(self.counted(c) for c in alive), "a copy that nobody counts outlived the return of its machine"
        held = {place for place, h in self.world.holds.items() if place in {c.place for c in alive}}
        assert held == {c.place for c in alive}


Fencing.TestCase.settings = settings(
    max_examples=examples(40),
    stateful_step_count=25,
    deadline=None,
    phases=phases(),
    suppress_health_check=list(HealthCheck),
)
test_copies_are_fenced = Fencing.TestCase
