"""Safety of serving under arbitrary histories: machines that crash, fall silent and come back, processes that end in
every way, reports that arrive twice, gateways that hold and stream, people who change their mind, and time.

After each event the recipe runs until it has nothing to do; the sentences below must hold at every such moment, and
once the world is calm it must come to rest.
"""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moorage.decide.running import fleet
from moorage.decide.running.adoption import HeldProcess
from moorage.decide.running.reports import Seen, apply, of_deleted
from moorage.decide.serving.phase import desired_replicas
from moorage.domain.errors import Conflict
from moorage.domain.lifecycles import WORKER
from moorage.domain.nouns import Deployment, Machine, Operation, Replica, Run, Worker
from moorage.domain.states import (
    ACTIVE_WORKER,
    TERMINAL_REPLICA,
    TERMINAL_RUN,
    DeploymentStatus,
    MachineState,
    OperationState,
    Phase,
    WorkerState,
)
from tests.examples import examples, phases
from tests.serving_world import STARTED, World, seen_of, spec

GPUS = tuple({"index": n, "vendor": "nvidia", "model": "H100", "memory_bytes": 80 << 30} for n in range(2))
ENDS = (
    ("Failed:exited_nonzero:exited", {"code": 137}),
    ("Completed:exited_zero:exited", {"code": 0}),
    ("Failed:failed:ready.timed_out", {"d": 60.0}),
    ("Failed:failed:start.invalid", {"error": "no such file"}),
)


@dataclass
class Process:
    """What really runs on a machine, whatever the rows say."""

    machine: str
    epoch: int
    state: str = "Pending"
    ready: bool = False
    gpus: tuple[int, ...] = ()
    said: list[Seen] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.state not in ("Failed", "Completed", "Cancelled")


class Serving(RuleBasedStateMachine):
    """Two machines with two GPUs each, one deployment of up to three replicas, one gateway."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(machines=2, capacity={"gpus": GPUS})
        self.processes: dict[str, Process] = {}
        self.cut_off: set[str] = set()
        self.seq = 0

    @initialize(low=st.integers(0, 3), initial=st.integers(0, 2), gpus=st.integers(0, 2), up=st.booleans())
    def someone_applies(self, low: int, initial: int, gpus: int, up: bool) -> None:
        self.document = spec(
            replicas={"min": low, "max": 3, "initial": initial if low == 0 else max(low, initial)},
            resources={"gpus": {"count": gpus}},
            scaling={"idle_timeout": 30.0},
            gateway={"drain": 20.0},
        )
        self.world.apply(self.document)
        self.recipe()
        if up:
            self.everything_comes_up()
        if up:
            self.everything_comes_up()
        if up:
            self.everything_comes_up()
        if up:
            self.everything_comes_up()
        if up:
            self.everything_comes_up()

    # What runs after everything

    def recipe(self) -> None:
        """The control plane does all it can now."""
        world = self.world
        if not world.of(Deployment):
            return
        before = {r.uid for r in world.of(Replica)}
        may_create = world.deployment.status in (DeploymentStatus.CREATED, DeploymentStatus.PAUSED)
        doomed = not may_create or world.deployment.deleting
        world.settle(limit=30)
        if doomed:
            assert {r.uid for r in world.of(Replica)} <= before, "a stopped or deleting deployment created a replica"

    # People

    @rule(what=st.sampled_from(["stop", "delete", "pause", "wake"]))
    def someone_commands(self, what: str) -> None:
        if self.world.of(Deployment):
            self.try_command(what)

    @rule(low=st.integers(0, 3))
    def someone_scales(self, low: int) -> None:
        if self.world.of(Deployment):
            self.try_command("scale", low=low, high=3)

    def try_command(self, what: str, **more: int) -> None:
        try:
            self.world.command(what, **more)
        except Conflict:
            assert what != "delete", "a delete is never refused"
        self.recipe()

    # Machines

    @rule()
    def the_scheduler_runs(self) -> None:
        self.world.place()
        self.recipe()

    def pick(self, data: st.DataObject) -> tuple[Worker, Process] | None:
        """A process of a machine that is not cut off, with its worker's row."""
        for worker in self.world.of(Worker):
            held = self.processes.get(worker.uid)
            fresh = held is None or held.epoch < worker.epoch
            if fresh and worker.state is WorkerState.PENDING and worker.machine and self.linked(worker.machine):
                self.processes[worker.uid] = Process(worker.machine, worker.epoch, gpus=worker.gpus)
        choices = [
            (w, p)
            for w in self.world.of(Worker)
            if (p := self.processes.get(w.uid)) is not None and self.linked(p.machine) and p.alive
        ]
        return data.draw(st.sampled_from(choices)) if choices else None

    def linked(self, machine: str) -> bool:
        row = self.world.rows[machine]
        assert isinstance(row, Machine)
        return machine not in self.cut_off and row.state in (MachineState.READY, MachineState.NOT_READY)

    def say(self, worker: Worker, own: Process, *words: str, **news: object) -> None:
        self.seq += 1
        seen = seen_of(worker, *words, seq=self.seq, epoch=own.epoch, machine=own.machine, **news)  # type: ignore[arg-type]  # drawn news
        own.said.append(seen)
        self.hear(worker, seen)

    def hear(self, worker: Worker, seen: Seen) -> None:
        row = self.world.rows.get(worker.uid)
        writes = apply(row, seen, self.world.now) if isinstance(row, Worker) else of_deleted(worker.uid, seen)
        self.world.commit_writes(writes, "machine:m")
        self.recipe()

    @rule(data=st.data())
    def a_process_comes_up(self, data: st.DataObject) -> None:
        found = self.pick(data)
        if found is None:
            return
        worker, process = found
        if process.state == "Pending":
            process.state = "Running"
            self.say(worker, process, *STARTED, process={"pid": self.seq})
        else:
            process.ready = data.draw(st.booleans())
            self.say(worker, process, ready=process.ready, address="127.0.0.1:18000")

    @rule()
    def everything_comes_up(self) -> None:
        """What waits is placed, started and ready, where its machine is linked."""
        self.world.place()
        for worker in self.world.of(Worker):
            if worker.machine is None or not self.linked(worker.machine):
                continue
            if worker.state is WorkerState.PENDING:
                own = self.processes[worker.uid] = Process(worker.machine, worker.epoch, "Running", gpus=worker.gpus)
                self.say(worker, own, *STARTED)
        for worker in self.world.of(Worker):
            held = self.processes.get(worker.uid)
            if held is not None and held.state == "Running" and self.linked(held.machine) and not held.ready:
                held.ready = True
                self.say(worker, held, ready=True, address="127.0.0.1:18000")
        self.recipe()

    @rule(data=st.data(), how=st.sampled_from(ENDS), together=st.booleans())
    def a_process_ends(self, data: st.DataObject, how: tuple[str, dict[str, object]], together: bool) -> None:
        found = self.pick(data)
        if found is None:
            return
        worker, process = found
        word, params = how
        path = STARTED if process.state == "Pending" else ()
        if word.endswith("start.invalid"):
            path = STARTED[:1] if process.state == "Pending" else ()
        process.state = word.split(":")[0]
        self.say(worker, process, *path, word, params=params, exit_code=1, log_tail="boom", gone=together)
        if not together:
            self.say(worker, process, gone=True)

    @rule(data=st.data())
    def a_stop_is_carried_out(self, data: st.DataObject) -> None:
        asked = [
            (w, p)
            for w in self.world.of(Worker)
            if w.state is WorkerState.STOPPING and (p := self.process_of(w)) is not None and self.linked(p.machine)
        ]
        if asked:
            self.confirm_stop(*data.draw(st.sampled_from(asked)))

    def process_of(self, worker: Worker) -> Process | None:
        held = self.processes.get(worker.uid)
        if held is None and worker.machine is not None:
            held = self.processes[worker.uid] = Process(worker.machine, worker.epoch, gpus=worker.gpus)
        return held

    def confirm_stop(self, worker: Worker, process: Process) -> None:
        process.state = "Cancelled"
        self.say(worker, process, "Cancelled:stop_confirmed:stop.confirmed", gone=True)

    @rule(data=st.data())
    def a_report_arrives_again(self, data: st.DataObject) -> None:
        told = [(u, s) for u, p in self.processes.items() for s in p.said if self.linked(p.machine)]
        if told:
            uid, seen = data.draw(st.sampled_from(told))
            before = self.world.rows.get(uid)
            self.hear(Worker(uid=uid), seen)
            after = self.world.rows.get(uid)
            assert isinstance(before, Worker) is isinstance(after, Worker)
            if isinstance(before, Worker) and isinstance(after, Worker):
                assert (before.state, before.ready) == (after.state, after.ready), "a replay was news"

    @rule(data=st.data())
    def a_machine_falls_silent_for_good(self, data: st.DataObject) -> None:
        machine = data.draw(st.sampled_from(self.world.of(Machine)))
        self.cut_off.add(machine.uid)
        self.world.now += 31.0
        for other in self.world.of(Machine):
            if self.linked(other.uid):
                self.world.beat(other)
        self.world.watch(machine)
        self.recipe()

    @rule(data=st.data(), reboots=st.sampled_from([False, False, False, True]))
    def a_machine_comes_back(self, data: st.DataObject, reboots: bool) -> None:
        silent = [m for m in self.world.of(Machine) if m.uid in self.cut_off]
        self.come_back(data.draw(st.sampled_from(silent or self.world.of(Machine))), reboots)
        self.recipe()

    @rule(data=st.data())
    def a_machine_is_silent_for_a_while_and_comes_back(self, data: st.DataObject) -> None:
        self.a_machine_falls_silent_for_good(data)
        self.a_machine_comes_back(data, False)

    def come_back(self, machine: Machine, rebooted: bool) -> None:
        row = self.world.rows[machine.uid]
        assert isinstance(row, Machine)
        if row.state not in (MachineState.READY, MachineState.NOT_READY, MachineState.DOWN):
            return
        self.cut_off.discard(machine.uid)
        here = {u: p for u, p in self.processes.items() if p.machine == machine.uid and p.alive}
        if rebooted:
            for uid in here:
                del self.processes[uid]
            here = {}
        held = [
            HeldProcess(u, p.epoch, True, p.state == "Running", p.ready, "127.0.0.1:18000", gpus=p.gpus)
            for u, p in here.items()
        ]
        for uid in self.world.rejoin(row, held, rebooted=rebooted):
            self.processes[uid].state = "Cancelled"
            self.say(Worker(uid=uid), self.processes[uid], "Cancelled:stop_confirmed:stop.confirmed", gone=True)

    @rule(data=st.data(), drained=st.booleans())
    def someone_drains_a_machine_or_takes_it_back(self, data: st.DataObject, drained: bool) -> None:
        world = self.world
        machine = data.draw(st.sampled_from(world.of(Machine)))
        until = world.now + 60.0
        outcome = fleet.drain(machine, until, world.now, "p") if drained else fleet.uncordon(machine, "p")
        world.commit(outcome.change)
        self.recipe()

    # Gateway and time

    @rule(held=st.integers(0, 1), confirmed=st.booleans(), streams=st.booleans())
    def the_gateway_reports(self, held: int, confirmed: bool, streams: bool) -> None:
        world = self.world
        world.held, world.confirmed, world.idle_s = held, confirmed, None
        world.in_flight = {r.uid: 1 for r in world.replicas if r.routed} if streams else {}
        self.recipe()

    @rule(seconds=st.sampled_from([1.0, 11.0, 31.0, 61.0, 301.0, 601.0]))
    def time_passes(self, seconds: float) -> None:
        world = self.world
        world.now += seconds
        for machine in world.of(Machine):
            if self.linked(machine.uid):
                world.beat(machine)
            world.watch(machine)
        self.recipe()

    # Always

    @invariant()
    def an_ordinal_has_one_live_replica_beside_lost_ones(self) -> None:
        live = [r for r in self.world.replicas if r.stopping is None]
        lost = {r.uid for r in live if self.world.worker_of(r).state is WorkerState.DOWN}
        drained = {m.uid for m in self.world.of(Machine) if m.draining is not None}
        leaving = {r.uid for r in live if self.world.worker_of(r).machine in drained}
        counts = Counter(r.ordinal for r in live if r.uid not in lost | leaving)
        assert all(n == 1 for n in counts.values()), counts

    @invariant()
    def routed_means_running_and_ready(self) -> None:
        for replica in self.world.replicas:
            if replica.routed:
                worker = self.world.worker_of(replica)
                assert (worker.state, worker.ready) == (WorkerState.RUNNING, True)
        route = self.world.published
        if route is not None and self.world.of(Deployment):
            for target in route.targets:
                assert self.world.worker_of(target.replica).ready

    @invariant()
    def no_gpu_is_held_twice(self) -> None:
        taken = Counter((h.machine, g) for h in self.world.holds.values() for g in h.gpus)
        assert all(n == 1 for n in taken.values()), taken

    @invariant()
    def a_process_that_may_run_holds_its_place(self) -> None:
        for worker in self.world.of(Worker):
            if worker.state in ACTIVE_WORKER or worker.state is WorkerState.STOPPING:
                place = (worker.uid, worker.epoch)
                assert place in self.world.holds, f"{worker.name} is {worker.state} without a place"
        for uid, process in self.processes.items():
            if process.alive and process.state != "Pending" and self.linked(process.machine):
                assert (uid, process.epoch) in self.world.holds, f"{uid} runs on a machine that is up without a place"

    @invariant()
    def a_place_is_held_only_for_what_is_there_and_not_given_up(self) -> None:
        for (uid, epoch), hold in self.world.holds.items():
            worker, process = self.world.rows.get(uid), self.processes.get(uid)
            known = isinstance(worker, Worker) and (worker.epoch, worker.machine) == (epoch, hold.machine)
            runs = process is not None and process.epoch == epoch and process.alive
            assert runs or (known and worker.handed_over), (
                f"epoch {epoch} of {uid} holds a place and cannot run: {worker}"
            )
            if isinstance(worker, Worker) and worker.state is WorkerState.DOWN:
                assert worker.handed_over, f"{worker.name} is lost and still holds its place"

    @invariant()
    def versions_rise_and_every_step_is_in_the_table(self) -> None:
        last: dict[str, int] = {}
        for uid, version, source, to, _ in self.world.history:
            assert version >= last.get(uid, 0)
            last[uid] = version
            if uid.startswith("worker-") and source not in (None, to) and to != "deleted":
                assert to in WORKER.targets(str(source))

    @invariant()
    def a_deployment_that_is_over_keeps_nothing_that_nobody_asked_to_stop(self) -> None:
        world = self.world
        if not world.of(Deployment) or world.deployment.status is DeploymentStatus.CREATED:
            return
        assert all(r.stopping is not None for r in world.replicas)
        if world.deployment.status is DeploymentStatus.FAILED:
            assert not world.replicas
            assert world.phase in (Phase.FAILED, Phase.DEPLOY_FAILED, Phase.BUILD_FAILED, Phase.DEACTIVATING)

    @invariant()
    def what_is_settled_stays_settled(self) -> None:
        if self.world.of(Deployment):
            assert self.world.step().change is None

    # In the end

    def teardown(self) -> None:
        """The world calms down: everybody comes back, everything asked is done, nothing more is wanted."""
        world = self.world
        if not world.rows or not hasattr(self, "document"):
            return
        world.held, world.in_flight, world.confirmed = 0, {}, True
        for _ in range(12):
            self.calm()
            self.a_process_that_may_run_holds_its_place()
            self.no_gpu_is_held_twice()
            self.routed_means_running_and_ready()
            self.a_process_that_may_run_holds_its_place()
            self.no_gpu_is_held_twice()
            self.routed_means_running_and_ready()
            self.a_process_that_may_run_holds_its_place()
            self.no_gpu_is_held_twice()
            self.routed_means_running_and_ready()
            self.a_process_that_may_run_holds_its_place()
            self.no_gpu_is_held_twice()
            self.routed_means_running_and_ready()
            self.a_process_that_may_run_holds_its_place()
            self.no_gpu_is_held_twice()
            self.routed_means_running_and_ready()
        assert not world.place().changes
        self.rest()

    def calm(self) -> None:
        world = self.world
        world.now += 61.0
        for machine in world.of(Machine):
            world.commit(fleet.uncordon(machine, "p").change)
            self.come_back(machine, rebooted=False)
            world.beat(machine)
        self.recipe()
        world.place()
        for worker in world.of(Worker):
            process = self.process_of(worker) if worker.machine else None
            if process is None or process.epoch != worker.epoch:
                if worker.machine is not None and worker.state is WorkerState.PENDING:
                    process = self.processes[worker.uid] = Process(worker.machine, worker.epoch, gpus=worker.gpus)
                else:
                    continue
            if worker.state is WorkerState.STOPPING:
                self.confirm_stop(worker, process)
            elif worker.state is WorkerState.PENDING and worker.machine is not None:
                process.state = "Running"
                self.say(worker, process, *STARTED)
        for worker in world.of(Worker):
            if worker.state is WorkerState.RUNNING and not worker.ready:
                self.processes[worker.uid].ready = True
                self.say(worker, self.processes[worker.uid], ready=True, address="127.0.0.1:18000")
        self.recipe()

    def rest(self) -> None:
        world = self.world
        runs = {r.uid: r for r in world.of(Run)}
        for worker in world.of(Worker):
            if runs[worker.run].state in TERMINAL_RUN:
                assert worker.state not in ACTIVE_WORKER, "a worker outlives its run"
                assert worker.uid not in world.holders, "a place is held by what is gone"
        open_ones = [o for o in world.of(Operation) if o.state not in OVER]
        if not world.of(Deployment):
            assert not [*world.of(Worker), *open_ones]
            return
        live = [r for r in world.of(Replica) if r.status not in TERMINAL_REPLICA]
        wanted = self.wanted()
        assert len(live) == wanted, f"{len(live)} replicas where {wanted} are wanted in {world.phase}"
        assert not open_ones or world.deployment.status is DeploymentStatus.CREATED
        assert world.phase in RESTING, world.phase

    def wanted(self) -> int:
        """What fits: a replica of two GPUs fills a machine of two."""
        if self.world.deployment.status is not DeploymentStatus.CREATED:
            return 0
        if not self.world.deployment.initial_scale_reached:
            return len(self.world.replicas)
        replicas = self.world.deployment.spec["replicas"]
        low = max(int(replicas["min"]), 1)
        wanted = desired_replicas(self.world.deployment)  # a minimum that was lowered alone leaves the size to the load
        assert low <= wanted <= max(int(replicas.get("max") or low), low)
        return wanted


OVER = (OperationState.SUCCEEDED, OperationState.FAILED, OperationState.CANCELLED)
RESTING = (
    Phase.ACTIVE,
    Phase.SCALED_TO_ZERO,
    Phase.INACTIVE,
    Phase.BUILD_STOPPED,
    Phase.DEPLOY_FAILED,
    Phase.FAILED,
    Phase.BUILD_FAILED,
)

Serving.TestCase.settings = settings(
    max_examples=examples(50),
    stateful_step_count=30,
    deadline=None,
    phases=phases(),
    suppress_health_check=list(HealthCheck),
)
test_serving_keeps_its_promises = Serving.TestCase
