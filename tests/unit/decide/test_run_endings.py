"""How runs end, are held back and are cleared away: cancels, limits, drains, dependencies, arrays, removal."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.domain.changes import Step, Update
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import RunState, StopCause, WorkerState
from tests.memory_rows import START
from tests.run_world import RunWorld

S, W = RunState, WorkerState
DAY = 86400.0


def up(**spec: Any) -> RunWorld:
    """A run that is up as far as it may be."""
    run = RunWorld(**{"count": 2, **spec})
    run.up()
    return run


def stop_of(run: RunWorld, rank: int) -> dict[str, Any]:
    """What was asked of a worker."""
    return dict(run.w(rank).stop or {})


# Planning


def test_workers_are_named_by_rank_and_by_group_where_there_are_several() -> None:
    assert [w.name for w in RunWorld(count=2).workers] == ["train-0", "train-1"]
    two = RunWorld(groups=[{"name": "db", "count": 1}, {"name": "work", "count": 2}])
    assert [w.name for w in two.workers] == ["train-db-0", "train-work-0", "train-work-1"]


# A person's cancel


def test_a_cancel_ends_what_waits_at_once_and_stops_what_a_machine_has() -> None:
    run = RunWorld(machines=1, slots=1, count=2)
    run.up()
    run.cancel("enough")
    run.settle()
    assert run.states == ["Stopping", "Cancelled"]
    assert (stop_of(run, 0)["cause"], stop_of(run, 0)["text"]) == ("user", "enough")
    run.confirm_stops()
    assert run.is_(S.CANCELLED, "run.cancelled")
    assert not run.holds


def test_what_was_placed_and_not_picked_up_is_stopped_by_its_machine() -> None:
    run = RunWorld(count=1)
    run.place()
    run.cancel()
    run.settle()
    assert run.states == ["Stopping"]


@pytest.mark.parametrize("cause", sorted(set(StopCause) - {StopCause.USER, StopCause.DEFAULT}))
def test_a_cancel_wins_over_any_other_stop(cause: StopCause) -> None:
    run = up(count=1)
    run.ask(0, cause)
    since = stop_of(run, 0)["since"]
    run.now += 5.0
    run.cancel("enough")
    run.settle()
    assert (stop_of(run, 0)["cause"], stop_of(run, 0)["since"]) == ("user", since)
    run.confirm_stops()
    assert run.states == ["Cancelled"]
    assert run.is_(S.CANCELLED, "run.cancelled")


def test_a_cancel_of_a_worker_that_is_cancelled_already_is_a_note_that_changes_the_cause() -> None:
    run = up(count=2)
    run.ask(0, StopCause.PREEMPTION)
    run.stops(run.w(0))
    run.cancel("enough")
    before = len(run.history)
    run.settle()
    assert run.states == ["Cancelled", "Stopping"]
    assert stop_of(run, 0)["cause"] == "user"
    notes = [h for h in run.history[before:] if h[0] == run.w(0).uid]
    assert [(h[2], h[3], h[4]) for h in notes] == [("Cancelled", "Cancelled", "stop.user")]


def test_what_completed_or_failed_stays_so_under_a_cancel() -> None:
    run = up(count=3, restart_policy="Never", array={"count": 3, "fail": "end"})
    run.exit(0, 0)
    run.exit(1, 1)
    run.cancel()
    run.settle()
    run.confirm_stops()
    assert run.states == ["Completed", "Failed", "Cancelled"]


def test_a_worker_that_finishes_before_the_signal_has_completed() -> None:
    run = up(count=1)
    run.cancel()
    run.settle()
    run.exit(0, 0)
    assert run.states == ["Completed"]
    assert run.is_(S.COMPLETED, "run.completed")


def test_a_lost_worker_is_cancelled_at_once() -> None:
    run = up(count=1)
    run.lose(run.machine_of(run.w(0)))
    run.cancel()
    run.settle()
    assert run.states == ["Cancelled"]
    assert run.is_(S.CANCELLED, "run.cancelled")


def test_a_run_that_is_cancelled_before_it_has_workers_is_cancelled() -> None:
    run = RunWorld()
    run.rows["r"] = Run(uid="r", name="r", cancel={"cause": "user", "text": None, "at": START})
    run.settle()
    assert run.is_(S.CANCELLED, "run.cancelled")
    assert not run.workers


# Time


def test_a_time_limit_counts_from_the_start_of_each_attempt_and_is_for_good() -> None:
    run = up(count=2, time_limit=100.0, restart_policy="Always")
    started_at = run.w(0).started_at
    assert started_at is not None
    run.wait(50.0)
    run.exit(0)
    run.wait(10.0)
    run.up()
    run.wait(39.0)
    assert run.states == ["Running", "Running"]
    run.wait(1.0)
    assert run.states == ["Running", "Stopping"]
    assert stop_of(run, 1)["cause"] == "time_limit"
    run.stops(run.w(1))
    run.settle()
    assert run.is_(S.FAILED, "run.time_limit")
    assert run.states == ["Stopping", "Cancelled"]
    assert run.code(run.w(0)) == "stop.worker_time_limit"
    run.confirm_stops()
    assert run.states == ["Cancelled", "Cancelled"]


def test_a_time_limit_is_looked_at_when_it_is_over() -> None:
    run = up(count=1, time_limit=100.0)
    assert run.settle().wake_at == (run.w(0).started_at or 0.0) + 100.0


def test_a_run_that_is_not_placed_in_its_queue_time_fails() -> None:
    run = RunWorld(machines=0, count=1, max_queue_time=60.0)
    assert run.settle().wake_at == START + 60.0
    run.wait(59.0)
    assert run.run.state is S.PENDING
    run.wait(1.0)
    assert run.is_(S.FAILED, "run.queue_time")
    assert run.states == ["Cancelled"]


def test_a_gang_of_which_one_member_has_no_place_fails_at_its_queue_time() -> None:
    run = RunWorld(machines=1, slots=1, count=2, max_queue_time=60.0)
    run.place()
    run.wait(60.0)
    assert run.run.state is S.FAILED
    assert run.states == ["Stopping", "Cancelled"]


def test_the_queue_time_is_over_once_every_needed_worker_had_its_place() -> None:
    run = RunWorld(count=2, max_queue_time=60.0)
    run.place()
    run.settle()
    assert run.run.all_placed_at == run.now
    run.wait(61.0)
    assert run.run.state is S.PENDING
    run.up()
    run.exit(0)
    run.exit(1)
    assert run.run.state is S.PENDING


# Machines


def test_work_on_a_drained_machine_is_stopped_and_queued_again() -> None:
    run = up(count=1)
    machine = run.machine_of(run.w(0))
    run.set(machine, draining={"until": None})
    run.settle()
    assert (run.states, stop_of(run, 0)["cause"]) == (["Stopping"], "machine_drain")
    run.confirm_stops()
    assert (run.states, run.w(0).restarts, run.code(run.w(0))) == (["Pending"], 0, "run.requeued")
    run.up()
    assert run.machine_of(run.w(0)).uid != machine.uid


# Other groups


def grouped(condition: str = "running", policy: str = "OnFailure") -> RunWorld:
    """A group of two that waits for a database."""
    db = {"name": "db", "count": 1, "restart_policy": policy}
    work = {"name": "work", "count": 2, "depends_on": [{"group": "db", "condition": condition}]}
    return RunWorld(groups=[db, work], complete_with="work")


def test_a_group_waits_until_the_one_it_depends_on_runs() -> None:
    run = grouped()
    assert [w.waits and w.waits["code"] for w in run.workers] == [None, "depends.waiting", "depends.waiting"]
    run.place()
    assert [w.machine is None for w in run.workers] == [False, True, True]
    run.up()
    assert [w.waits for w in run.workers] == [None] * 3
    run.up()
    assert run.states == ["Running"] * 3


def test_healthy_means_that_its_server_answers() -> None:
    run = grouped("healthy")
    run.up()
    assert run.w(0, "work").waits is not None
    run.ready(run.w(0, "db"))
    run.settle()
    assert run.w(0, "work").waits is None


@pytest.mark.parametrize("condition", ["running", "healthy"])
def test_a_dependency_that_completed_is_satisfied(condition: str) -> None:
    run = grouped(condition)
    run.place()
    run.starts(run.w(0, "db"))
    run.exits(run.w(0, "db"), 0)
    run.settle()
    assert run.w(0, "work").waits is None


def test_a_dependency_that_failed_for_good_fails_those_that_wait_for_it() -> None:
    run = grouped(policy="Never")
    run.place()
    run.starts(run.w(0, "db"))
    run.exits(run.w(0, "db"), 1)
    run.settle()
    assert run.states == ["Failed"] * 3
    assert run.code(run.w(0, "work")) == "depends.failed"
    assert run.is_(S.FAILED, "run.group_needed")


# Other runs


def after(condition: str, state: RunState | None) -> RunWorld:
    """A run after another one in that state."""
    run = RunWorld(machines=1)
    if state is not None:
        run.others = {"prep": Run(uid="p", name="prep", state=state)}
    run.submit(after=[{"run": "prep", "condition": condition}])
    return run


@pytest.mark.parametrize(
    ("condition", "state", "expected"),
    [
        ("completed", None, "waits"),
        ("completed", S.PENDING, "waits"),
        ("completed", S.RUNNING, "waits"),
        ("completed", S.COMPLETED, "free"),
        ("completed", S.FAILED, "fails"),
        ("completed", S.CANCELLED, "fails"),
        ("running", S.PENDING, "waits"),
        ("running", S.STARTING, "waits"),
        ("running", S.RUNNING, "free"),
        ("running", S.COMPLETED, "free"),
        ("running", S.FAILED, "fails"),
        ("failed", S.FAILED, "free"),
        ("failed", S.RUNNING, "waits"),
        ("failed", S.COMPLETED, "fails"),
        ("ended", S.RUNNING, "waits"),
        ("ended", S.FAILED, "free"),
        ("ended", S.CANCELLED, "free"),
        ("ended", S.COMPLETED, "free"),
    ],
)
def test_a_run_waits_for_another_one(condition: str, state: RunState | None, expected: str) -> None:
    run = after(condition, state)
    worker = run.w(0)
    if expected == "fails":
        assert (worker.state, run.code(worker)) == (W.FAILED, "depends.failed_run")
        assert run.is_(S.FAILED, "run.worker_failed")
    elif expected == "waits":
        assert worker.waits is not None
        assert worker.waits["code"] == run.code(run.run) == "depends.waiting_run"
    else:
        assert worker.waits is None


def test_what_was_waited_for_is_not_asked_again_once_a_worker_was_placed() -> None:
    run = after("completed", S.COMPLETED)
    run.up()
    run.others = {"prep": Run(uid="p2", name="prep", state=S.RUNNING)}
    run.exit(0)
    assert run.w(0).waits is None


# Arrays


def test_an_array_runs_no_more_than_its_limit_at_once() -> None:
    run = RunWorld(array={"count": 5, "max_parallel": 2, "fail": "end"})
    for done in range(5):
        run.up()
        held = [w.rank for w in run.workers if w.waits is not None]
        assert held == list(range(done + 2, 5))
        assert run.states.count("Running") == min(2, 5 - done)
        assert all(run.code(run.w(n)) == "array.limit" for n in held)
        run.exit(done, 0)
    assert run.is_(S.COMPLETED, "run.completed")


def test_an_element_in_its_back_off_gives_its_place_to_another_and_gets_one_again() -> None:
    run = RunWorld(array={"count": 3, "max_parallel": 1, "fail": "end"})
    run.up()
    run.exit(0)
    assert [w.waits is None for w in run.workers] == [False, True, False]
    run.up()
    run.wait(10.0)
    run.exit(1, 0)
    assert [w.waits is None for w in run.workers] == [True, True, False]


def test_an_array_fails_with_its_first_failure_where_it_says_so() -> None:
    run = up(array={"count": 3, "fail": "first"}, restart_policy="Never")
    run.exit(1, 4)
    assert run.is_(S.FAILED, "run.worker_failed")
    assert run.run.exit_code == 4
    assert run.states == ["Stopping", "Failed", "Stopping"]
    assert run.code(run.w(0)) == "stop.worker_failed"


def test_an_array_fails_when_all_have_ended_where_it_says_nothing() -> None:
    run = up(array={"count": 3, "fail": "end"}, restart_policy="Never")
    run.exit(1, 4)
    run.exit(0, 0)
    assert run.run.state is S.RUNNING
    run.exit(2, 0)
    assert run.is_(S.FAILED, "run.workers_failed")


# The end, and after it


def test_a_run_that_completed_ends_what_is_left_and_keeps_success() -> None:
    db = {"name": "db", "count": 1, "restart_policy": "Always"}
    run = RunWorld(groups=[db, {"name": "work", "count": 1}], complete_with="work")
    run.up()
    run.exit(0, 0, "work")
    assert run.is_(S.COMPLETED, "run.group_completed")
    assert run.states == ["Stopping", "Completed"]
    assert (run.w(0, "db").stop or {})["cause"] == "run_ended"
    run.exit(0, 0, "db")
    assert run.states == ["Completed", "Completed"]
    assert run.run.exit_code == 0


def test_success_is_not_overwritten_by_a_later_loss() -> None:
    run = up(count=1)
    machine = run.machine_of(run.w(0))
    run.exit(0, 0)
    run.lose(machine)
    run.wait(DAY)
    assert run.states == ["Completed"]
    assert run.is_(S.COMPLETED, "run.completed")


def test_always_ends_by_cancel_only() -> None:
    run = up(count=1, restart_policy="Always")
    for _ in range(15):
        run.exit(0, 0)
        assert (run.states, run.run.state) == (["Pending"], S.PENDING)
        run.wait(10.0)
        run.up()
    run.cancel()
    run.settle()
    run.confirm_stops()
    assert run.run.state is S.CANCELLED


def test_an_ended_run_is_removed_after_its_time_and_not_before() -> None:
    run = up(count=1, ttl_after_finished=100.0)
    run.exit(0, 0)
    assert run.settle().wake_at == run.now + 100.0
    run.wait(99.0)
    assert run.of(Run)
    run.wait(1.0)
    assert not run.rows.keys() & {r.uid for r in run.removed.values()}
    assert {type(r) for r in run.removed.values()} == {Run, Worker}
    assert "run.expired" in run.codes


def test_a_deleted_run_is_ended_first_and_removed_once_nothing_of_it_is_left() -> None:
    run = up(count=1)
    run.set(run.run, deleting=True)
    run.settle()
    assert run.states == ["Stopping"]
    run.report(run.w(0), "Cancelled:stop_confirmed:stop.confirmed")
    run.settle()
    assert run.of(Run), "it was removed while its place was held"
    assert run.run.state is S.CANCELLED
    run.report(run.w(0), gone=True)
    run.settle()
    assert not run.of(Run)
    assert run.codes[-2:] == ["worker.deleted", "run.deleted"]


def test_a_run_is_not_removed_while_a_worker_without_a_heartbeat_may_still_be_there() -> None:
    run = up(count=1, restart_policy="Never", ttl_after_finished=0.0)
    worker = run.w(0)
    late = Step(W.STALE, "heartbeat_late", reason("heartbeat.late"))
    lost = Step(W.DOWN, "heartbeat_expired", reason("heartbeat.expired"))
    ended = {"ended_at": run.now}
    run.commit_writes([Update("Worker", worker.uid, worker.version, (late, lost), ended)], "controller:machines")
    run.wait(60.0)
    assert run.is_(S.FAILED, "run.worker_lost")
    run.wait(60.0)
    assert run.of(Run)
    run.set(run.w(0), handed_over=False)
    run.settle()
    assert not run.of(Run)


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_of_a_run_is_that_of_the_first_worker_that_failed(code: int) -> None:
    run = up(count=2, restart_policy="Never")
    run.exit(0, 0)
    run.exit(1, code)
    assert run.run.exit_code == code


def test_a_short_program_was_started_though_nobody_saw_it_run() -> None:
    run = RunWorld(count=1)
    run.place()
    run.report(run.w(0), "Preparing:picked_up:prepare.started", "Starting:started:container.started")
    run.exits(run.w(0), 0)
    run.settle()
    assert run.is_(S.COMPLETED, "run.completed")
    assert run.run.started_at == run.now


def test_a_second_look_changes_nothing() -> None:
    run = up(count=3, gang=True)
    run.exit(1)
    run.now += 0.5
    assert run.decide().change is None
    snapshot = replace(run.snapshot(), now=run.now + 0.5)
    assert snapshot.run == run.run
