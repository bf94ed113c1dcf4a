"""What runs are, derived from their workers, and what reports and silence make of workers."""

from dataclasses import replace

import pytest

from moorage.decide.running.adoption import HeldProcess
from moorage.decide.running.liveness import LeaseTimes, Tick, away, watch
from moorage.decide.running.reports import Seen, apply
from moorage.decide.running.runs import derive
from moorage.domain.changes import Release, Update
from moorage.domain.nouns import Machine, Operation, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import MachineState, RunState, WorkerState
from tests.serving_world import START, STARTED, World, seen_of

S, W = RunState, WorkerState
EXITED = "Failed:exited_nonzero:exited"


def workers(*states: WorkerState) -> list[Worker]:
    return [
        Worker(uid=f"w{n}", name=f"w{n}", rank=n, state=s, reason=reason("worker.created"))
        for n, s in enumerate(states)
    ]


# The run behind a replica follows its worker; runs of their own are in `test_run_states.py`

REPLICAS = Run(uid="r", replica="p")


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([W.PENDING], S.PENDING),
        ([W.PREPARING], S.PENDING),
        ([W.STARTING], S.PENDING),
        ([W.RUNNING], S.RUNNING),
        ([W.STALE], S.RUNNING),
        ([W.PENDING, W.RUNNING], S.RUNNING),
        ([W.STOPPING], S.PENDING),
        ([W.DOWN], S.PENDING),
        ([W.COMPLETED], S.COMPLETED),
        ([W.COMPLETED, W.RUNNING], S.RUNNING),
        ([W.COMPLETED, W.PENDING], S.PENDING),
        ([W.FAILED], S.FAILED),
        ([W.FAILED, W.RUNNING], S.FAILED),
        ([W.FAILED, W.CANCELLED], S.FAILED),
        ([W.CANCELLED], S.CANCELLED),
        ([W.CANCELLED, W.COMPLETED], S.CANCELLED),
        ([W.CANCELLED, W.RUNNING], S.RUNNING),
    ],
)
def test_the_run_of_a_replica_is_what_its_workers_are(states: list[WorkerState], expected: RunState) -> None:
    found = derive(REPLICAS, workers(*states))
    assert found is not None
    assert found.state is expected


@pytest.mark.parametrize("state", [S.COMPLETED, S.FAILED, S.CANCELLED])
def test_a_terminal_run_stays(state: RunState) -> None:
    assert derive(Run(uid="r", state=state), workers(W.RUNNING)) is None


def test_a_lost_worker_fails_its_run_only_once_it_is_given_up() -> None:
    lost = workers(W.DOWN)
    assert derive(REPLICAS, lost).state is S.PENDING  # type: ignore[union-attr]  # it has workers
    given_up = derive(replace(REPLICAS, cancel={"cause": "run_ended"}), lost)
    assert given_up is not None
    assert (given_up.state, given_up.reason.code) == (S.FAILED, "run.worker_lost")


def test_several_failures_are_counted_and_the_first_is_told() -> None:
    found = derive(REPLICAS, workers(W.FAILED, W.COMPLETED, W.FAILED))
    assert found is not None
    assert dict(found.reason.params) | {"first": ""} == {"k": 2, "n": 3, "first": ""}
    assert found.reason.params["first"].startswith("w0: ")


# Reports

PLACED = Worker(uid="w", name="w", machine="m", epoch=3, handed_over=True)


def after(worker: Worker, seen: Seen) -> Worker:
    """The row once the report was written."""
    for write in apply(worker, seen, START):
        if isinstance(write, Update):
            state = write.steps[-1].to if write.steps else worker.state
            worker = replace(worker, state=WorkerState(state), **write.fields)
    return worker


def steps(worker: Worker, *words: str, **news: object) -> list[str]:
    writes = apply(worker, seen_of(worker, *words, **news), START)  # type: ignore[arg-type]  # what a case needs
    return [s.to for w in writes if isinstance(w, Update) for s in w.steps]


def test_a_whole_path_is_taken_in_order() -> None:
    assert steps(PLACED, *STARTED) == ["Preparing", "Starting", "Running"]


@pytest.mark.parametrize("state", ["Preparing", "Starting", "Running"])
def test_steps_already_taken_are_not_taken_again(state: str) -> None:
    path = ["Preparing", "Starting", "Running"]
    assert steps(replace(PLACED, state=WorkerState(state)), *STARTED) == path[path.index(state) + 1 :]


@pytest.mark.parametrize("news", [{"epoch": 4}, {"machine": "other"}])
def test_a_report_of_another_epoch_or_machine_changes_nothing(news: dict[str, object]) -> None:
    assert apply(PLACED, seen_of(PLACED, *STARTED, gone=True, **news), START) == ()  # type: ignore[arg-type]  # as above


def test_a_report_that_arrives_twice_says_nothing_twice() -> None:
    loading = seen_of(PLACED, *STARTED, seq=1, ready=False, ready_why=reason("ready.waiting", path="/health"))
    once = after(PLACED, loading)
    ready = after(once, seen_of(PLACED, seq=2, ready=True, address="h:1"))
    assert ready.ready
    assert apply(once, loading, START) == ()
    assert apply(ready, loading, START) == (), "an old not-ready must not withdraw a ready server"


def test_a_new_epoch_numbers_anew() -> None:
    told = replace(PLACED, reported={"epoch": 2, "seq": 99})
    assert steps(told, *STARTED, seq=1) == ["Preparing", "Starting", "Running"]


def test_readiness_is_recorded_once_when_it_comes() -> None:
    running = replace(PLACED, state=W.RUNNING)
    (write,) = apply(running, seen_of(running, ready=True, address="h:1"), START)
    assert isinstance(write, Update)
    assert write.reason is not None
    assert write.reason.code == "ready.passed"
    told = replace(running, ready=True, address="h:1", first_ready_at=START)
    assert apply(told, seen_of(running, ready=True, address="h:1"), START) == ()


def test_a_worker_that_is_being_stopped_does_not_run_again() -> None:
    stopping = replace(PLACED, state=W.STOPPING)
    assert steps(stopping, *STARTED) == []
    assert steps(stopping, "Cancelled:stop_confirmed:stop.confirmed") == ["Cancelled"]


def test_an_exit_proven_before_the_signal_stands() -> None:
    stopping = replace(PLACED, state=W.STOPPING)
    assert steps(stopping, "Completed:exited_zero:exited", params={"code": 0}) == ["Completed"]


def test_success_is_never_overwritten_by_a_loss_and_a_loss_is_by_success() -> None:
    done = replace(PLACED, state=W.COMPLETED)
    assert steps(done, EXITED, params={"code": 1}) == []
    lost = replace(PLACED, state=W.DOWN)
    writes = apply(lost, seen_of(lost, "Completed:exited_zero:exited", params={"code": 0}), START)
    assert [(s.to, s.trigger) for w in writes if isinstance(w, Update) for s in w.steps] == [
        ("Completed", "late_report")
    ]


def test_a_lost_worker_does_not_run_again_by_a_late_report() -> None:
    assert steps(replace(PLACED, state=W.DOWN), *STARTED) == []


def test_a_failure_keeps_exit_code_reason_and_log_and_ends_readiness() -> None:
    running = replace(PLACED, state=W.RUNNING, ready=True)
    failed = after(running, seen_of(running, EXITED, params={"code": 137}, exit_code=137, log_tail="boom"))
    assert (failed.ready, failed.exit_code, failed.ended_at) == (False, 137, START)
    assert failed.last_failure is not None
    assert (failed.last_failure["log"], failed.last_failure["reason"]["code"]) == ("boom", "exited")


def test_a_place_is_free_when_the_process_is_seen_gone_and_whoever_waits_is_woken() -> None:
    running = replace(PLACED, state=W.RUNNING)
    ended = seen_of(running, EXITED, params={"code": 1})
    assert not any(isinstance(w, Release) for w in apply(running, ended, START)), "issued is not observed"
    failed = after(running, ended)
    update, release = apply(failed, seen_of(failed, gone=True), START)
    assert isinstance(update, Update)
    assert [n.code for n in update.notes] == ["worker.gone"], "a row in the feed wakes the scheduler"
    assert isinstance(release, Release)
    assert not after(failed, seen_of(failed, gone=True)).handed_over


# Silence

TIMES = LeaseTimes()


def machine(state: MachineState = MachineState.READY, heard: float = START) -> Machine:
    return Machine(uid="m", name="lab", state=state, heartbeat_at=heard)


@pytest.mark.parametrize(
    ("silent_s", "state", "wake_in_s"),
    [
        (0.0, "Ready", 20.0),
        (19.9, "Ready", 0.1),
        (20.0, "NotReady", 10.0),
        (29.9, "NotReady", 0.1),
        (30.0, "Down", None),
        (500.0, "Down", None),
    ],
)
def test_a_silent_machine_is_late_then_lost(silent_s: float, state: str, wake_in_s: float | None) -> None:
    now = START + silent_s
    decision = watch(machine(), (), TIMES, safe_from=0.0, now=now)
    to = [s.to for w in decision.change.writes for s in w.steps] if decision.change else ["Ready"]  # type: ignore[union-attr]  # updates only
    assert to == [state]
    assert decision.wake_at == (None if wake_in_s is None else pytest.approx(now + wake_in_s))


@pytest.mark.parametrize("state", [MachineState.DOWN, MachineState.REMOVED, MachineState.JOINING])
def test_a_machine_without_a_lease_has_none_that_ends(state: MachineState) -> None:
    assert watch(machine(state), (), TIMES, safe_from=0.0, now=START + 999).change is None


def test_a_reconciling_machine_that_falls_silent_is_lost_too() -> None:
    decision = watch(machine(MachineState.RECONCILING), (), TIMES, safe_from=0.0, now=START + 30)
    assert decision.change is not None


def test_no_lease_expires_before_the_leadership_is_one_lease_old() -> None:
    took_over = START + 1000.0
    safe_from = took_over + TIMES.ttl_s
    for at in (took_over, safe_from - 0.1):
        decision = watch(machine(), (), TIMES, safe_from=safe_from, now=at)
        steps = [s.to for w in decision.change.writes for s in w.steps] if decision.change else []  # type: ignore[union-attr]  # updates only
        assert "Down" not in steps
    assert watch(machine(), (), TIMES, safe_from=safe_from, now=safe_from).change is not None


@pytest.mark.parametrize(
    ("wall_s", "monotonic_s", "due_in_s", "expected"),
    [
        (10.0, 10.0, 10.0, False),
        (10.0, 11.9, 10.0, False),
        (600.0, 10.0, 10.0, True),
        (-50.0, 10.0, 10.0, True),
        (25.1, 25.1, 10.0, True),
        (24.9, 24.9, 10.0, False),
        (0.5, 0.5, 10.0, False),
    ],
)
def test_a_loop_that_was_away_or_whose_clock_was_set_judges_nobody(
    wall_s: float, monotonic_s: float, due_in_s: float, expected: bool
) -> None:
    before = Tick(START, 50.0)
    now = Tick(START + wall_s, 50.0 + monotonic_s)
    assert away(before, now, due=50.0 + due_in_s, ttl_s=30.0) is expected


def lost_world() -> tuple[World, Worker]:
    world = World()
    world.up()
    world.now += 31.0
    world.watch(world.of(Machine)[0])
    world.settle()
    return world, world.of(Worker)[0]


def test_a_lost_machine_loses_its_workers_and_their_places() -> None:
    world, worker = lost_world()
    assert (worker.state, worker.ready, worker.reason.code) == (W.DOWN, False, "machine.lost")  # type: ignore[union-attr]  # it has one
    assert worker.uid not in world.holders


def test_a_placed_worker_that_was_not_picked_up_waits_again_under_a_new_epoch_and_no_budget() -> None:
    world = World()
    world.apply()
    world.settle()
    world.place()
    assert (world.worker.epoch, world.worker.attempt) == (1, 1)
    world.now += 31.0
    world.watch(world.of(Machine)[0])
    worker = world.worker
    assert (worker.state, worker.machine, worker.epoch, worker.attempt) == (W.PENDING, None, 2, 2)
    assert (worker.restarts, worker.handed_over, world.holds) == (0, False, {})
    assert worker.reason is not None
    assert worker.reason.code == "worker.unplaced"


def test_a_stopping_worker_of_a_lost_machine_is_cancelled() -> None:
    world = World()
    world.up()
    world.command("stop")
    world.settle()
    assert world.worker.state is W.STOPPING
    world.now += 31.0
    world.watch(world.of(Machine)[0])
    assert world.worker.state is W.CANCELLED
    world.settle()
    assert [o.state for o in world.of(Operation)] == ["succeeded", "succeeded"]
    assert world.phase == "INACTIVE"


# Adoption


def held(worker: Worker, **more: object) -> HeldProcess:
    return HeldProcess(worker.uid, **{"epoch": worker.epoch, "alive": True, "ran": True, "ready": True, **more})  # type: ignore[arg-type]  # as drawn


def test_an_agent_that_restarts_keeps_what_is_its_own() -> None:
    world = World()
    world.up()
    world.settle()
    before = world.worker
    assert world.rejoin(world.of(Machine)[0], [held(before)]) == ()
    assert world.worker == before
    assert world.of(Machine)[0].state is MachineState.READY


@pytest.mark.parametrize("case", ["older epoch", "newer epoch", "unknown worker", "run over"])
def test_what_is_not_wanted_here_is_stopped(case: str) -> None:
    world = World()
    world.up()
    process = held(world.worker)
    if case == "older epoch":
        process = held(world.worker, epoch=0)
    elif case == "newer epoch":
        process = held(world.worker, epoch=9)
    elif case == "unknown worker":
        process = HeldProcess("worker-of-a-deleted-deployment", 1, alive=True)
    else:
        world.exits(world.worker, gone=False)
        world.settle()
        process = held(world.of(Worker)[0])
    assert world.rejoin(world.of(Machine)[0], [process]) == (process.worker,)


@pytest.mark.parametrize(("rebooted", "code"), [(True, "machine.rebooted"), (False, "container.missing")])
def test_what_the_agent_does_not_have_is_not_there(rebooted: bool, code: str) -> None:
    world = World()
    world.up()
    world.rejoin(world.of(Machine)[0], [], rebooted=rebooted)
    worker = world.worker
    assert worker.reason is not None
    assert (worker.state, worker.reason.code, worker.uid in world.holders) == (W.FAILED, code, False)


def test_a_place_still_held_for_a_worker_that_ended_is_given_up_when_its_machine_has_nothing_of_it() -> None:
    world = World()
    world.up()
    worker = world.worker
    world.exits(worker, gone=False)
    assert worker.uid in world.holders
    world.rejoin(world.of(Machine)[0], [])
    assert worker.uid not in world.holders


def test_a_stopping_worker_that_is_not_there_is_cancelled() -> None:
    world = World()
    world.up()
    world.command("stop")
    world.settle()
    world.rejoin(world.of(Machine)[0], [])
    assert world.worker.state is W.CANCELLED


def test_a_lost_worker_that_still_runs_returns_and_takes_its_place_again() -> None:
    world, worker = lost_world()
    assert world.rejoin(world.of(Machine)[0], [held(worker)]) == ()
    back = world.rows[worker.uid]
    assert isinstance(back, Worker)
    assert (back.state, back.ready, back.handed_over, back.ended_at) == (W.RUNNING, True, True, None)
    assert worker.uid in world.holders


def test_a_lost_worker_that_never_ran_is_stopped_and_stays_lost() -> None:
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.report(world.worker, *STARTED[:2])
    world.now += 31.0
    world.watch(world.of(Machine)[0])
    worker = world.of(Worker)[0]
    assert world.rejoin(world.of(Machine)[0], [held(worker, ran=False)]) == (worker.uid,)
    assert world.of(Worker)[0].state is W.DOWN


def test_a_lost_worker_that_ended_meanwhile_says_how() -> None:
    world, worker = lost_world()
    assert world.rejoin(world.of(Machine)[0], [held(worker, alive=False)]) == ()
    world.exits(worker)
    assert world.of(Worker)[0].state is W.FAILED


def test_after_the_return_window_the_old_copy_is_stopped() -> None:
    world, worker = lost_world()
    world.now += 61.0
    world.settle()
    assert world.rejoin(world.of(Machine)[0], [held(worker)]) == (worker.uid,)
    assert world.of(Worker)[0].state is W.DOWN
