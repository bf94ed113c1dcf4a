"""From an apply to an answer, what failures lead to, and what becomes of lost machines."""

from typing import Any

import pytest

from moorage.decide.running.adoption import HeldProcess
from moorage.decide.serving.failures import backoff_s
from moorage.domain.nouns import Machine, Operation, Replica, Revision, Worker
from moorage.domain.states import DeploymentStatus, OperationState, Phase, ReplicaStatus, RevisionState, WorkerState
from tests.serving_world import STARTED, World, spec


def served(**parts: Any) -> World:
    world = World()
    world.up(spec(**parts))
    return world


def settled_failure(world: World, code: int = 137) -> None:
    """The newest replica's process ends; the recipe runs."""
    world.exits(world.worker_of(world.replicas[-1]), code)
    world.settle()


# From an apply to an answer


def test_an_apply_creates_one_replica_and_its_first_revision_becomes_active_when_it_is_ready() -> None:
    world = World()
    world.apply()
    assert world.phase is Phase.DEPLOYING
    world.settle()
    assert [(r.status, r.ordinal, r.attempt) for r in world.replicas] == [(ReplicaStatus.PENDING, 0, 1)]
    assert [r.state for r in world.of(Revision)] == [RevisionState.PROVISIONING]
    world.place()
    world.starts(world.worker)
    world.settle()
    assert (world.replicas[0].status, world.phase) == (ReplicaStatus.INITING, Phase.LOADING_MODEL)
    assert not world.deployment.initial_scale_reached
    world.ready(world.worker)
    world.settle()
    assert (world.replicas[0].status, world.replicas[0].routed, world.phase) == ("running", True, Phase.ACTIVE)
    assert world.deployment.initial_scale_reached
    (revision,) = world.of(Revision)
    assert (revision.state, revision.decisions[0]["reasons"][0]["code"]) == (RevisionState.ACTIVE, "no_baseline")
    (operation,) = world.of(Operation)
    assert (operation.state, operation.progress) == (OperationState.SUCCEEDED, 1.0)
    assert all(s["state"] == "done" for s in operation.steps)


def test_the_first_revision_is_active_only_at_its_initial_scale() -> None:
    world = World()
    world.apply(spec(replicas={"min": 1, "max": 3, "initial": 2}))
    world.settle()
    world.place()
    first, second = world.of(Worker)
    world.starts(first)
    world.ready(first)
    world.settle()
    assert world.phase is Phase.ACTIVE
    assert not world.deployment.initial_scale_reached
    world.starts(second)
    world.ready(second)
    world.publish()
    world.step()
    assert world.deployment.initial_scale_reached
    assert world.deployment.active_revision is not None


def test_nothing_to_do_is_no_change_at_all() -> None:
    world = served()
    assert world.step().change is None
    assert world.step().change is None


# Failures


@pytest.mark.parametrize(
    ("in_row", "fatal", "expected"),
    [
        *((1, False, 0), (2, False, 10), (3, False, 20), (4, False, 40), (5, False, 80), (6, False, 160)),
        *((7, False, 300), (8, False, 300), (1000, False, 300), (1, True, 10), (2, True, 10), (3, True, 20)),
    ],
)
def test_back_off_is_nothing_then_10_s_doubling_to_300(in_row: int, fatal: bool, expected: float) -> None:
    assert backoff_s(in_row, fatal=fatal) == expected


def test_a_first_crash_is_replaced_at_once_and_withdrawn_before() -> None:
    world = served()
    world.exits(world.worker)
    route = world.publish()
    assert route is not None
    assert (route.mode, route.targets) == ("starting", ())
    world.settle()
    old, new = world.of(Replica)
    assert (old.status, old.fail_reason, old.fatal, old.routed) == ("failed", "container_crashed", False, False)
    assert old.routed_why is not None
    assert (new.ordinal, new.attempt, new.status) == (0, 2, ReplicaStatus.PENDING)


def test_an_exit_code_of_zero_that_nobody_asked_for_is_a_crash() -> None:
    world = served()
    settled_failure(world, code=0)
    assert world.of(Replica)[0].fail_reason == "container_crashed"


def test_crashes_in_a_row_wait_longer_and_longer_and_are_unhealthy_from_the_third() -> None:
    world = served()
    waits, phases = [], []
    for _ in range(4):
        settled_failure(world)
        waits.append(0.0 if world.deployment.retry_at is None else world.deployment.retry_at - world.now)
        phases.append(world.phase)
        world.advance(waits[-1])
        world.settle()
        world.bring_up()
    assert waits == [0.0, 10.0, 20.0, 40.0]
    assert phases == [Phase.DEPLOYING, Phase.DEPLOYING, Phase.UNHEALTHY, Phase.UNHEALTHY]


def test_ten_minutes_of_running_make_the_next_crash_the_first() -> None:
    world = served()
    settled_failure(world)
    world.bring_up()
    world.advance(599.0)
    assert world.settle().wake_at == pytest.approx(world.now + 1.0)
    assert world.deployment.failures_in_row == 1
    world.advance(1.0)
    world.settle()
    assert world.deployment.failures_in_row == 0
    settled_failure(world)
    assert (world.deployment.failures_in_row, len(world.replicas)) == (1, 1)


def test_a_replica_that_fails_beside_a_running_one_is_replaced_with_back_off_only() -> None:
    world = World()
    world.up(spec(replicas={"min": 2, "max": 2}))
    settled_failure(world)
    world.bring_up()
    settled_failure(world)
    assert world.deployment.retry_at == world.now + 10.0
    assert len(world.replicas) == 1, "nothing is started before its time"
    assert world.settle().wake_at == world.now + 10.0
    world.advance(10.0)
    world.settle()
    assert len(world.replicas) == 2


def test_a_fatal_failure_of_what_never_served_is_final_and_says_why() -> None:
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.report(
        world.worker,
        *STARTED,
        "Failed:exited_nonzero:exited",
        params={"code": 3},
        exit_code=3,
        log_tail="no",
        gone=True,
    )
    world.settle()
    deployment = world.deployment
    assert (deployment.status, world.phase, world.replicas) == (DeploymentStatus.FAILED, Phase.DEPLOY_FAILED, [])
    assert deployment.last_failure is not None
    assert {k: deployment.last_failure[k] for k in ("fail_reason", "exit_code", "log", "fatal")} == {
        "fail_reason": "container_init_failed",
        "exit_code": 3,
        "log": "no",
        "fatal": True,
    }
    assert [r.state for r in world.of(Revision)] == [RevisionState.FAILED]
    (operation,) = world.of(Operation)
    assert operation.state is OperationState.FAILED
    assert operation.error is not None
    assert operation.error["code"] == "container_init_failed"
    world.advance(9999.0)
    assert world.step().change is None


def test_a_crash_that_proves_nothing_against_the_spec_is_tried_again() -> None:
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.report(world.worker, "Preparing:picked_up:prepare.started", "Failed:vanished:exit.unknown", gone=True)
    world.settle()
    assert world.deployment.status is DeploymentStatus.CREATED
    assert len(world.replicas) == 1


def test_what_was_ready_before_anybody_looked_and_then_crashed_is_no_fatal_failure() -> None:
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.starts(world.worker)
    world.ready(world.worker)
    settled_failure(world)
    assert (world.of(Replica)[0].fail_reason, world.deployment.status) == ("container_crashed", "created")
    assert len(world.replicas) == 1


def test_a_revision_that_has_served_backs_off_and_is_never_failed() -> None:
    world = served()
    settled_failure(world)
    world.place()
    world.starts(world.worker)
    settled_failure(world, code=1)
    assert world.of(Replica)[-1].fatal
    assert (world.deployment.status, world.phase) == (DeploymentStatus.CREATED, Phase.UNHEALTHY)
    assert world.deployment.retry_at == world.now + 10.0


def not_ready_in_time(world: World) -> Replica:
    world.place()
    worker = world.worker
    if worker.state is WorkerState.PENDING:
        world.starts(worker)
    world.report(worker, "Failed:failed:ready.timed_out", params={"d": 1800.0}, gone=True)
    world.settle()
    return next(r for r in world.of(Replica) if r.run == worker.run)


def test_not_ready_in_time_is_fatal_the_second_time_in_a_row() -> None:
    world = World()
    world.apply()
    world.settle()
    assert not not_ready_in_time(world).fatal
    assert world.deployment.status is DeploymentStatus.CREATED
    assert not_ready_in_time(world).fatal
    assert world.deployment.status is DeploymentStatus.FAILED


def test_not_ready_in_time_twice_with_a_ready_one_between_is_not_in_a_row() -> None:
    world = World()
    world.apply()
    world.settle()
    not_ready_in_time(world)
    world.bring_up()
    settled_failure(world)
    world.advance(10.0)
    world.settle()
    assert not not_ready_in_time(world).fatal


def test_while_others_still_start_a_fatal_failure_waits_for_what_they_come_to() -> None:
    world = World()
    world.apply(spec(replicas={"min": 2, "max": 2}))
    world.settle()
    world.place()
    first, second = world.of(Worker)
    world.starts(first)
    world.starts(second)
    world.exits(first, 1)
    world.settle()
    world.advance(60.0)
    world.settle()
    assert (world.deployment.status, len(world.replicas)) == (DeploymentStatus.CREATED, 1)
    world.exits(second, 1)
    world.settle()
    assert world.deployment.status is DeploymentStatus.FAILED


def test_a_replacement_keeps_the_first_attempts_place_in_the_queue() -> None:
    world = served()
    first = world.worker.queued_at
    world.advance(30.0)
    settled_failure(world)
    assert world.worker.queued_at == first


# Lost machines


def lose(world: World) -> Worker:
    world.now += 31.0
    world.watch(world.of(Machine)[0])
    world.settle()
    return world.of(Worker)[0]


def test_a_lost_replica_is_withdrawn_and_its_replacement_queued_at_once() -> None:
    world = served()
    lose(world)
    lost, replacement = world.replicas
    assert (lost.routed, lost.status, replacement.ordinal, replacement.attempt) == (False, "running", 0, 2)
    assert world.settle().wake_at == world.now + 60.0


def test_the_lost_one_is_given_up_when_the_return_window_ends() -> None:
    world = served()
    lose(world)
    world.now += 60.0
    world.settle()
    assert [(r.status, r.fail_reason) for r in world.of(Replica)] == [
        ("failed", "container_crashed"),
        ("pending", None),
    ]
    assert world.deployment.failures_in_row == 1


def test_the_lost_one_is_given_up_when_its_replacement_is_ready_first() -> None:
    world = served()
    lose(world)
    world.add_machine("other")
    world.bring_up()
    assert [r.status for r in world.of(Replica)] == ["failed", "running"]


def test_the_lost_one_that_returns_first_is_kept_and_the_replacement_stopped() -> None:
    world = served()
    worker = lose(world)
    world.rejoin(world.of(Machine)[0], [HeldProcess(worker.uid, worker.epoch, True, ran=True, ready=True)])
    world.settle()
    old, replacement = world.of(Replica)
    assert (old.status, old.routed, old.stopping) == ("running", True, None)
    assert replacement.status == "stopped"
    assert world.phase is Phase.ACTIVE
