"""What a policy makes of a worker that ended, was lost or was stopped: back-off, budget, reset, window, with the
arithmetic written out."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from moorage.decide.running.adoption import HeldProcess
from moorage.decide.running.members import BY_PERSON, REQUEUED
from moorage.decide.running.policy import Policy
from moorage.decide.running.restarts import judge
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import ENDED_WORKER, MachineState, RunState, StopCause, WorkerState
from tests.run_world import RunWorld, run_spec

S, W = RunState, WorkerState


def world(**spec: Any) -> RunWorld:
    """A run that is up."""
    made = RunWorld(**{"count": 1, **spec})
    made.up()
    return made


# The arithmetic


@pytest.mark.parametrize(
    ("n", "seconds"), [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300), (10, 300), (1000, 300)]
)
def test_the_back_off_doubles_from_ten_seconds_to_five_minutes(n: int, seconds: float) -> None:
    assert Policy.of(Run(uid="r", spec=run_spec())).backoff(n) == seconds


@pytest.mark.parametrize(("n", "seconds"), [(1, 2), (2, 4), (3, 5), (4, 5)])
def test_the_back_off_is_what_the_spec_says(n: int, seconds: float) -> None:
    restart = {"backoff": 2.0, "backoff_max": 5.0, "budget": 3, "reset_after": 60.0}
    assert Policy.of(Run(uid="r", spec=run_spec(restart=restart))).backoff(n) == seconds


def test_each_failure_waits_longer_and_the_eleventh_is_final() -> None:
    run = world()
    waits = []
    for n in range(10):
        before = run.w(0)
        run.exit(0)
        after = run.w(0)
        assert (after.state, after.restarts, run.code(after)) == (W.PENDING, n + 1, "restart.backoff")
        assert (after.attempt, after.epoch) == (before.attempt + 1, before.epoch + 1)
        waits.append((after.restart_at or 0.0) - run.now)
        run.place()
        assert run.w(0).machine is None, "it was placed before its back-off was over"
        run.wait(waits[-1])
        run.up()
        assert run.w(0).state is W.RUNNING
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300, 300, 300]
    run.exit(0, 7)
    last = run.w(0)
    assert (last.state, last.final, run.code(last), last.restarts) == (W.FAILED, True, "restart.exhausted", 10)
    assert last.last_failure is not None
    assert (last.last_failure["exit_code"], last.last_failure["log"]) == (7, "boom")
    assert run.is_(S.FAILED, "run.worker_failed")
    assert run.run.exit_code == 7
    assert "Exited with code 7" in run.run.reason.message  # type: ignore[union-attr]  # it has one


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_a_budget_of_n_allows_n_restarts(budget: int) -> None:
    run = world(restart={"backoff": 10.0, "backoff_max": 300.0, "budget": budget, "reset_after": 600.0})
    for _ in range(budget):
        run.exit(0)
        assert run.run.state is S.PENDING
        run.wait(300.0)
        run.up()
    run.exit(0)
    assert run.run.state is S.FAILED


@pytest.mark.parametrize(("ran_s", "restarts"), [(599.0, 4), (600.0, 1)])
def test_a_failure_after_ten_minutes_of_running_counts_as_the_first(ran_s: float, restarts: int) -> None:
    run = world()
    run.set(run.w(0), restarts=3)
    run.advance(ran_s)
    run.exit(0)
    assert run.w(0).restarts == restarts


def test_running_for_ten_minutes_sets_the_count_to_zero_while_it_runs() -> None:
    run = world()
    run.set(run.w(0), restarts=3)
    decision = run.settle()
    assert decision.wake_at == (run.w(0).running_since or 0.0) + 600.0
    run.wait(599.0)
    assert run.w(0).restarts == 3
    run.wait(1.0)
    assert run.w(0).restarts == 0


def test_the_next_attempt_knows_nothing_of_the_last_but_its_failure() -> None:
    run = world()
    run.report(run.w(0), address="h:1", process={"pid": 7})
    run.exit(0, 3)
    again, fresh = run.w(0), Worker(uid="fresh")
    for name in ("machine", "gpus", "process", "address", "ready", "ran", "started_at", "ended_at", "handed_over"):
        assert getattr(again, name) == getattr(fresh, name), name
    for name in ("stop", "go", "barrier_at", "running_since", "stale_since", "rendezvous", "ports", "final"):
        assert getattr(again, name) == getattr(fresh, name), name
    assert again.last_failure is not None
    assert again.last_failure["exit_code"] == 3
    assert again.queued_at == run.run.queued_at
    assert again.exit_code is None


def test_nothing_is_queued_again_while_its_place_is_held() -> None:
    run = world()
    run.exit(0, gone=False)
    assert (run.w(0).state, run.run.state) == (W.FAILED, S.PENDING)
    run.report(run.w(0), gone=True)
    run.settle()
    assert run.w(0).state is W.PENDING


# Policy by state: the whole table


def ended(state: WorkerState, policy: str, **fields: Any) -> tuple[Worker, RunSnapshot, Policy]:
    run = Run(uid="r", spec=run_spec(restart_policy=policy))
    code = {"Failed": "exit.unknown", "Down": "machine.lost"}.get(str(state), "worker.created")
    worker = Worker(uid="w", run="r", state=state, ended_at=1000.0, reason=reason(code), machine="m")
    worker = replace(worker, **fields)
    return worker, RunSnapshot(1060.0, run, (worker,)), Policy.of(run)


AGAIN = {
    ("Failed", "OnFailure"): True,
    ("Failed", "Always"): True,
    ("Failed", "Never"): False,
    ("Down", "OnFailure"): True,
    ("Down", "Always"): True,
    ("Down", "Never"): False,
    ("Completed", "Always"): True,
}


@pytest.mark.parametrize(("state", "policy"), list(product(W, ("OnFailure", "Always", "Never"))))
def test_a_policy_has_its_word_exactly_where_the_contract_says(state: WorkerState, policy: str) -> None:
    verdict = judge(*ended(state, policy))
    expected = AGAIN.get((str(state), policy))
    assert (verdict.again if verdict else None) is expected


def test_exit_zero_under_always_waits_the_first_back_off_and_spends_nothing() -> None:
    verdict = judge(*ended(W.COMPLETED, "Always", restarts=4))
    assert verdict is not None
    assert (verdict.again, verdict.restarts, verdict.restart_at) == (True, 4, 1010.0)
    spent = judge(*ended(W.COMPLETED, "Always", restarts=10))
    assert spent is not None
    assert spent.again is True


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "Never"])
def test_a_failure_that_was_judged_final_is_not_judged_again(policy: str) -> None:
    assert judge(*ended(W.FAILED, policy, final=True)) is None


@pytest.mark.parametrize("code", ["depends.failed", "depends.failed_run", "stop.time_limit"])
def test_some_failures_are_final_whatever_the_policy(code: str) -> None:
    params = {"depends.failed": {"group": "g"}, "depends.failed_run": {"run": "r"}, "stop.time_limit": {"d": 5.0}}[code]
    verdict = judge(*ended(W.FAILED, "Always", reason=reason(code, **params)))
    assert verdict is not None
    assert verdict.again is False


# The return window


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "Never"])
def test_a_lost_worker_is_waited_for_one_minute_under_every_policy(policy: str) -> None:
    worker, snapshot, asked = ended(W.DOWN, policy)
    before = judge(worker, replace(snapshot, now=1059.9), asked)
    assert before is not None
    assert (before.again, before.until) == (None, 1060.0)
    after = judge(worker, snapshot, asked)
    assert after is not None
    assert after.again is (policy != "Never")


@pytest.mark.parametrize("policy", ["OnFailure", "Never"])
def test_a_worker_of_a_removed_machine_is_not_waited_for(policy: str) -> None:
    worker, snapshot, asked = ended(W.DOWN, policy, reason=reason("machine.removed"))
    verdict = judge(worker, replace(snapshot, now=1000.0), asked)
    assert verdict is not None
    assert verdict.again is (policy != "Never")


def test_removing_the_machine_of_a_lost_worker_ends_the_window() -> None:
    worker, snapshot, asked = ended(W.DOWN, "Never")
    gone = Machine(uid="m", state=MachineState.REMOVED)
    verdict = judge(worker, replace(snapshot, now=1001.0, machines={"m": gone}), asked)
    assert verdict is not None
    assert verdict.again is False


@pytest.mark.parametrize(("restarts", "restart_at"), [(0, 1010.0), (2, 1040.0), (5, 1300.0)])
def test_the_back_off_of_a_lost_worker_runs_while_it_is_down(restarts: int, restart_at: float) -> None:
    verdict = judge(*ended(W.DOWN, "OnFailure", restarts=restarts))
    assert verdict is not None
    assert (verdict.restart_at, verdict.restarts) == (restart_at, restarts + 1)


def test_a_worker_that_a_cut_off_machine_stops_is_waited_for_until_that_is_certain() -> None:
    worker, snapshot, asked = ended(W.DOWN, "OnFailure", disconnect_after_s=600.0)
    early = judge(worker, replace(snapshot, now=1619.0), asked)
    assert early is not None
    assert (early.again, early.until) == (None, 1000.0 + 600.0 + 20.0)
    sure = judge(worker, replace(snapshot, now=1620.0), asked)
    assert sure is not None
    assert sure.again is True


def test_a_worker_that_returns_in_time_spends_no_restart() -> None:
    run = world()
    run.lose(run.machine_of(run.w(0)))
    assert run.w(0).state is W.DOWN
    assert run.settle().wake_at == run.now + 60.0
    run.report(run.w(0), "Completed:exited_zero:exited", params={"code": 0}, exit_code=0, gone=True)
    run.settle()
    assert run.w(0).restarts == 0
    assert run.is_(S.COMPLETED, "run.completed")


def test_a_lost_worker_starts_elsewhere_after_the_window() -> None:
    run = world()
    first = run.machine_of(run.w(0))
    run.lose(first)
    run.wait(59.0)
    assert run.w(0).state is W.DOWN
    run.wait(1.0)
    assert (run.w(0).state, run.w(0).restarts, run.w(0).restart_at) == (W.PENDING, 1, None)
    run.up()
    assert run.machine_of(run.w(0)).uid != first.uid


def test_a_lost_worker_under_never_fails_its_run_after_the_window() -> None:
    run = world(restart_policy="Never")
    run.lose(run.machine_of(run.w(0)))
    run.wait(60.0)
    assert (run.w(0).state, run.w(0).final) == (W.DOWN, True)
    assert run.is_(S.FAILED, "run.worker_lost")


DISCONNECTED = ("Down:machine_lost:stop.disconnected",)


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "Never"])
def test_a_lost_worker_that_is_proven_gone_is_not_waited_for(policy: str) -> None:
    asked = {"disconnect_after_s": 600.0, "reported": {"gone": 1}, "epoch": 1}
    worker, snapshot, policies = ended(W.DOWN, policy, **asked)
    verdict = judge(worker, replace(snapshot, now=1000.0), policies)
    assert verdict is not None
    assert verdict.again is (policy != "Never")
    earlier = judge(replace(worker, epoch=2), replace(snapshot, now=1000.0), policies)
    assert earlier is not None
    assert earlier.again is None, "the proof is of an earlier placement"


@pytest.mark.parametrize("returns_after_s", [5.0, 300.0])
def test_what_a_cut_off_machine_stopped_starts_again_by_its_policy_once_that_is_told(returns_after_s: float) -> None:
    """`on_disconnect: stop`: the machine comes back, says that it stopped it and that nothing of it is left."""
    run = world(on_disconnect="stop", disconnect_after=600.0)
    machine, lost = run.machine_of(run.w(0)), run.w(0)
    run.lose(machine)
    run.wait(returns_after_s)
    assert run.w(0).state is W.DOWN
    assert run.rejoin(machine, [HeldProcess(lost.uid, lost.epoch, alive=False)]) == ()
    run.report(lost, *DISCONNECTED, params={"d": 600.0}, gone=True)
    run.settle()
    after = run.w(0)
    assert (after.state, after.restarts, after.final, after.stop) == (W.PENDING, 1, False, None)
    assert run.run.state is S.PENDING
    run.wait(10.0)
    run.up()
    assert run.is_(S.RUNNING, "run.running")


def test_what_its_machine_stopped_when_cut_off_is_restarted_although_nobody_missed_it() -> None:
    run = world(on_disconnect="stop", disconnect_after=600.0)
    run.report(run.w(0), *DISCONNECTED, params={"d": 600.0}, gone=True)
    run.settle()
    assert (run.w(0).state, run.w(0).restarts, run.run.state) == (W.PENDING, 1, S.PENDING)


def test_a_gang_with_a_lost_member_starts_again_as_soon_as_that_one_is_proven_gone() -> None:
    run = world(count=3, gang=True)
    machine, lost = run.machine_of(run.w(0)), [w for w in run.workers if w.machine == run.w(0).machine]
    run.lose(machine)
    assert run.w(0).state is W.DOWN
    run.rejoin(machine, [HeldProcess(w.uid, w.epoch, alive=False) for w in lost])
    for worker in lost:
        run.report(worker, *DISCONNECTED, params={"d": 600.0}, gone=True)
    run.settle()
    run.confirm_stops()
    assert [w.state for w in run.workers] == [W.PENDING] * 3, run.states


# Stopped for a while


@pytest.mark.parametrize("cause", sorted(REQUEUED))
def test_a_stop_that_is_followed_by_the_queue_spends_no_restart(cause: StopCause) -> None:
    run = world()
    run.ask(0, cause)
    assert run.w(0).state is W.STOPPING
    run.confirm_stops()
    assert (run.w(0).state, run.w(0).restarts, run.w(0).restart_at, run.w(0).stop) == (W.PENDING, 0, None, None)
    assert run.w(0).attempt == 2


@pytest.mark.parametrize("cause", sorted(set(StopCause) - REQUEUED - {StopCause.TIME_LIMIT}))
def test_any_other_stop_is_for_good(cause: StopCause) -> None:
    run = world()
    run.ask(0, cause)
    run.confirm_stops()
    assert run.w(0).state is W.CANCELLED
    assert run.is_(S.CANCELLED, "run.cancelled")


@pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED])
@pytest.mark.parametrize("worker_state", sorted(ENDED_WORKER))
@pytest.mark.parametrize("cause", [None, *sorted(REQUEUED), *sorted(BY_PERSON)])
def test_a_terminal_run_restarts_nothing(state: RunState, worker_state: WorkerState, cause: StopCause | None) -> None:
    run = Run(uid="r", state=state, spec=run_spec(restart_policy="Always"), ended_at=1000.0)
    stop = {"cause": str(cause)} if cause else None
    worker = Worker(uid="w", run="r", state=worker_state, ended_at=1000.0, stop=stop, reason=reason("exit.unknown"))
    made = RunWorld(machines=0)
    made.rows = {"r": run, "w": worker}
    made.now = 100_000.0
    assert made.decide().change is None


def test_a_cancel_that_comes_before_the_queue_wins() -> None:
    run = world()
    run.ask(0, StopCause.PREEMPTION)
    run.cancel()
    run.stops(run.w(0))
    run.settle()
    assert run.w(0).state is W.CANCELLED
    assert run.w(0).stop is not None
    assert run.w(0).stop["cause"] == "user"
    assert run.is_(S.CANCELLED, "run.cancelled")
