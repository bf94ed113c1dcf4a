"""Gangs: placed, started and restarted together; the barrier and its time-out; the minimum; who spends which budget."""

from typing import Any

import pytest

from moorage.domain.states import RunState, StopCause, WorkerState
from tests.run_world import FROM_BARRIER, TO_BARRIER, RunWorld

S, W = RunState, WorkerState
RUNNING4 = ["Running"] * 4
PENDING4 = ["Pending"] * 4


def gang(count: int = 4, **spec: Any) -> RunWorld:
    """A gang that is up."""
    run = RunWorld(**{"count": count, "gang": True, **spec})
    run.up()
    return run


# The barrier


def test_nobody_starts_before_the_last_one_is_at_the_barrier() -> None:
    run = RunWorld(count=3, gang=True)
    run.place()
    for rank in (0, 2):
        run.report(run.w(rank), *TO_BARRIER)
    run.settle()
    assert [w.go for w in run.workers] == [False, False, False]
    assert run.is_(S.STARTING, "run.starting")
    assert run.run.reason is not None
    assert dict(run.run.reason.params) == {"ready": 2, "total": 3}
    assert run.run.barrier_since == run.now
    run.report(run.w(1), *TO_BARRIER)
    run.settle()
    assert [w.go for w in run.workers] == [True, True, True]
    assert {run.code(w) for w in run.workers} == {"gang.barrier_open"}
    assert run.run.barrier_since is None


def test_a_gang_runs_when_every_member_does() -> None:
    run = RunWorld(count=2, gang=True)
    run.place()
    for rank in (0, 1):
        run.report(run.w(rank), *TO_BARRIER)
    run.settle()
    run.report(run.w(0), *FROM_BARRIER)
    run.settle()
    assert run.run.state is S.STARTING
    run.report(run.w(1), *FROM_BARRIER)
    run.settle()
    assert run.is_(S.RUNNING, "run.running")


def test_a_barrier_that_nobody_joins_in_time_sends_the_gang_back_to_the_queue_and_spends_nothing() -> None:
    run = RunWorld(count=3, gang=True, barrier_timeout=100.0)
    run.place()
    run.report(run.w(0), *TO_BARRIER)
    assert run.settle().wake_at == run.now + 100.0
    run.wait(60.0)
    run.report(run.w(1), *TO_BARRIER)
    assert run.settle().wake_at == run.now + 40.0
    run.wait(40.0)
    assert run.states == ["Stopping"] * 3
    assert {str(dict(w.stop or {}).get("cause")) for w in run.workers} == {"barrier_timeout"}
    run.confirm_stops()
    assert run.states == ["Pending"] * 3
    assert [w.restarts for w in run.workers] == [0, 0, 0]
    assert run.run.restarting is None
    run.up()
    assert run.states == ["Running"] * 3


# A restart of the whole


def test_a_failure_stops_all_and_queues_all_in_one_decision() -> None:
    run = gang()
    epochs = [w.epoch for w in run.workers]
    run.exit(2)
    assert run.states == ["Stopping", "Stopping", "Failed", "Stopping"]
    assert {str(dict(w.stop or {}).get("cause")) for w in run.workers if w.stop} == {"gang_restart"}
    assert run.run.state is S.PENDING
    for rank in (0, 1):
        run.stops(run.w(rank))
        run.settle()
        assert run.w(2).state is W.FAILED, "it was queued while another member was still there"
    run.stops(run.w(3))
    decision = run.decide()
    assert decision.change is not None
    run.settle()
    assert run.states == PENDING4
    assert [w.epoch for w in run.workers] == [e + 1 for e in epochs]
    assert [w.attempt for w in run.workers] == [2] * 4
    assert len({w.restart_at for w in run.workers}) == 1
    assert [run.code(w) for w in run.workers] == ["gang.restart", "gang.restart", "restart.backoff", "gang.restart"]


def test_only_the_member_that_failed_spends_a_restart_and_its_back_off_is_that_of_all() -> None:
    run = gang()
    for n, wait_s in enumerate([10.0, 20.0, 40.0]):
        run.exit(1)
        run.confirm_stops()
        assert [w.restarts for w in run.workers] == [0, n + 1, 0, 0]
        assert {w.restart_at for w in run.workers} == {run.now + wait_s}
        run.wait(wait_s)
        run.up()
        assert run.states == RUNNING4
    run.exit(3)
    run.confirm_stops()
    assert [w.restarts for w in run.workers] == [0, 3, 0, 1]
    assert run.w(0).restart_at == run.now + 10.0


def test_a_member_that_its_gang_takes_along_spends_nothing() -> None:
    run = gang()
    run.exits(run.w(0))
    run.exits(run.w(1))
    run.settle()
    assert sum(w.restarts for w in run.workers) == 1
    run.exits(run.w(2))
    run.settle()
    run.confirm_stops()
    assert run.states == PENDING4
    assert [w.restarts for w in run.workers] == [1, 0, 0, 0]


def test_a_member_that_is_done_starts_again_with_its_gang() -> None:
    run = gang()
    run.exit(0, 0)
    assert run.run.state is S.RUNNING
    run.exit(1, 1)
    run.confirm_stops()
    assert run.states == PENDING4


def test_a_member_that_failed_once_too_often_fails_the_run_and_the_others_are_stopped_for_it() -> None:
    run = gang(restart={"backoff": 10.0, "backoff_max": 300.0, "budget": 0, "reset_after": 600.0})
    run.exit(1, 9)
    assert run.is_(S.FAILED, "run.gang_member_failed")
    assert run.run.exit_code == 9
    assert run.states == ["Stopping", "Failed", "Stopping", "Stopping"]
    assert {run.code(run.w(n)) for n in (0, 2, 3)} == {"stop.member_exhausted"}
    run.confirm_stops()
    assert run.states == ["Cancelled", "Failed", "Cancelled", "Cancelled"]


def test_a_lost_member_is_waited_for_before_its_gang_starts_again() -> None:
    run = RunWorld(machines=5, slots=1, count=4, gang=True)
    run.up()
    run.lose(run.machine_of(run.w(3)))
    assert run.states == ["Running", "Running", "Running", "Down"]
    assert run.run.state is S.PENDING
    run.wait(60.0)
    assert run.states == ["Stopping", "Stopping", "Stopping", "Down"]
    run.confirm_stops()
    assert run.states == PENDING4
    assert [w.restarts for w in run.workers] == [0, 0, 0, 1]
    run.up()
    assert run.states == RUNNING4


def test_a_member_that_was_lost_before_holds_its_gang_up_until_it_can_no_longer_come_back() -> None:
    run = RunWorld(machines=4, slots=1, count=3, gang=True)
    run.up()
    run.lose(run.machine_of(run.w(1)))
    run.exit(0)
    run.confirm_stops()
    assert run.states == ["Failed", "Down", "Cancelled"]
    assert run.settle().wake_at == run.now + 60.0
    run.wait(60.0)
    assert run.states == ["Pending"] * 3
    assert [w.restarts for w in run.workers] == [1, 0, 0]


def test_a_gang_restart_goes_on_without_a_member_that_is_lost_while_it_stops() -> None:
    run = RunWorld(machines=4, slots=1, count=3, gang=True)
    run.up()
    run.exit(0)
    run.lose(run.machine_of(run.w(1)))
    assert run.states == ["Failed", "Cancelled", "Stopping"]
    run.confirm_stops()
    assert run.states == ["Pending"] * 3
    assert [w.restarts for w in run.workers] == [1, 0, 0]


def test_a_preempted_gang_is_queued_once_every_member_is_gone_and_spends_nothing() -> None:
    run = gang()
    run.ask(1, StopCause.PREEMPTION, "urgent-eval")
    assert run.states == ["Stopping"] * 4
    assert {str(dict(w.stop or {}).get("cause")) for w in run.workers} == {"preemption"}
    for rank in (0, 1, 2):
        run.stops(run.w(rank))
        run.settle()
        assert run.w(0).state is W.CANCELLED
    run.stops(run.w(3))
    run.settle()
    assert run.states == PENDING4
    assert [w.restarts for w in run.workers] == [0] * 4
    assert {run.code(w) for w in run.workers} == {"preempt.requeued"}
    assert "urgent-eval" in run.w(2).reason.message  # type: ignore[union-attr]  # it has one


def test_a_drained_machine_sends_the_whole_gang_back_to_the_queue() -> None:
    run = RunWorld(machines=4, slots=2, count=4, gang=True)
    run.up()
    machine = run.machine_of(run.w(2))
    run.set(machine, draining={"until": None, "why": "new fans"})
    run.settle()
    assert run.states == ["Stopping"] * 4
    causes = [str(dict(w.stop or {}).get("cause")) for w in run.workers]
    assert set(causes) == {"machine_drain", "gang_restart"}
    run.confirm_stops()
    assert run.states == PENDING4
    run.up()
    assert run.states == RUNNING4
    assert all(run.machine_of(w).uid != machine.uid for w in run.workers)


def test_a_person_restarts_a_gang_and_no_budget_is_spent() -> None:
    run = gang()
    asked = {"cause": "requested", "worker": None, "text": "new data", "since": run.now, "restart_at": None}
    run.set(run.run, restarting=asked)
    run.settle()
    assert run.states == ["Stopping"] * 4
    run.confirm_stops()
    assert run.states == PENDING4
    assert {run.code(w) for w in run.workers} == {"run.requeued"}
    assert run.run.restarting is None
    run.up()
    assert run.states == RUNNING4


def test_a_person_restarts_workers_without_a_gang_those_that_are_done_or_failed_for_good_included() -> None:
    run = RunWorld(count=3, restart_policy="Never", array={"count": 3, "fail": "end"})
    run.up()
    run.exit(0, 0)
    run.exit(1, 1)
    assert run.w(1).final
    asked = {"cause": "requested", "worker": None, "text": None, "since": run.now, "restart_at": None}
    run.set(run.run, restarting=asked)
    run.settle()
    run.confirm_stops()
    assert run.states == ["Pending"] * 3
    assert not any(w.final for w in run.workers)


def test_what_waits_is_not_placed_while_the_gang_starts_again() -> None:
    run = RunWorld(machines=1, slots=3, count=4, gang={"min_available": 3})
    run.up()
    assert run.states == ["Running", "Running", "Running", "Pending"]
    run.exit(0)
    waiting = run.w(3)
    assert waiting.waits is not None
    assert waiting.waits["code"] == "run.requeued"
    run.confirm_stops()
    assert run.states == PENDING4
    assert all(w.waits is None for w in run.workers)


def test_a_cancel_ends_a_gang_restart() -> None:
    run = gang()
    run.exit(0)
    run.cancel()
    run.settle()
    run.confirm_stops()
    assert run.states == ["Failed", "Cancelled", "Cancelled", "Cancelled"]
    assert run.is_(S.CANCELLED, "run.cancelled")
    assert run.run.restarting is None


# RestartTask and the leader


def test_under_restart_task_only_the_one_that_failed_starts_again() -> None:
    run = gang(on_failure="RestartTask")
    run.exit(2)
    assert run.states == ["Running", "Running", "Pending", "Running"]
    run.wait(10.0)
    run.up()
    assert run.states == RUNNING4
    assert run.run.state is S.RUNNING


def test_the_failure_of_the_leader_restarts_all_even_under_restart_task() -> None:
    run = gang(on_failure="RestartTask", leader="worker-1")
    run.exit(1)
    assert run.states == ["Stopping", "Failed", "Stopping", "Stopping"]


# The minimum


def test_members_above_the_minimum_come_and_go_without_a_gang_restart() -> None:
    run = gang(gang={"min_available": 2})
    run.exit(3)
    assert run.states == ["Running", "Running", "Running", "Pending"]
    assert run.is_(S.RUNNING, "run.running")
    run.wait(10.0)
    run.up()
    assert run.states == RUNNING4


def test_a_member_above_the_minimum_that_fails_for_good_does_not_fail_the_run() -> None:
    run = gang(gang={"min_available": 2}, restart_policy="Never")
    run.exit(3)
    assert (run.w(3).final, run.run.state) == (True, S.RUNNING)
    run.exit(1)
    assert run.is_(S.FAILED, "run.gang_member_failed")


def test_the_run_completes_with_its_needed_members_and_ends_the_others() -> None:
    run = gang(gang={"min_available": 2})
    run.exit(0, 0)
    run.exit(1, 0)
    assert run.is_(S.COMPLETED, "run.completed")
    assert run.states == ["Completed", "Completed", "Stopping", "Stopping"]
    assert {run.code(run.w(n)) for n in (2, 3)} == {"stop.run_completed"}


def test_a_gang_starts_with_its_minimum_and_takes_in_the_others_as_they_come() -> None:
    run = RunWorld(machines=1, slots=2, count=3, gang={"min_available": 2})
    run.up()
    assert run.states == ["Running", "Running", "Pending"]
    run.add_machine("m9")
    run.place()
    run.report(run.w(2), *TO_BARRIER)
    run.settle()
    assert run.w(2).go


def test_the_leader_is_needed_wherever_it_stands() -> None:
    run = gang(gang={"min_available": 2}, leader="worker-3")
    run.exit(1)
    assert run.states == ["Running", "Pending", "Running", "Running"]
    run.exit(3)
    assert run.w(0).state is W.STOPPING


# Persons and gangs


@pytest.mark.parametrize("cause", [StopCause.USER, StopCause.DEFAULT])
def test_the_stop_of_a_needed_member_stops_the_gang(cause: StopCause) -> None:
    run = gang()
    run.ask(2, cause, "wrong data")
    assert run.states == ["Stopping"] * 4
    run.confirm_stops()
    assert run.states == ["Cancelled"] * 4
    assert run.is_(S.CANCELLED, "run.cancelled")


def test_the_stop_of_a_member_above_the_minimum_stops_it_alone() -> None:
    run = gang(gang={"min_available": 2})
    run.ask(3, StopCause.USER)
    run.confirm_stops()
    assert run.states == ["Running", "Running", "Running", "Cancelled"]
    run.exit(0)
    run.confirm_stops()
    assert run.states == ["Pending", "Pending", "Pending", "Cancelled"]


# Fifty failures


def test_a_gang_with_one_member_that_fails_fifty_times_is_never_half_running() -> None:
    run = gang(restart={"backoff": 10.0, "backoff_max": 300.0, "budget": 50, "reset_after": 600.0})
    for n in range(50):
        run.exits(run.w(2))
        assert run.decide().change is not None
        run.settle()
        assert "Running" not in run.states, "one decision after the failure somebody still counted as running"
        run.confirm_stops()
        assert run.states == PENDING4
        assert run.w(2).restarts == n + 1
        run.wait(min(10.0 * 2**n, 300.0))
        run.up()
        assert run.states == RUNNING4
    assert [w.attempt for w in run.workers] == [51] * 4
    run.exit(2)
    assert run.is_(S.FAILED, "run.gang_member_failed")
    run.confirm_stops()
    assert not run.holds
