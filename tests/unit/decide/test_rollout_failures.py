"""Failures of a candidate are its own: its deployment stays well, and a candidate that cannot come to anything ends."""

import pytest

from moorage.domain.nouns import Operation, Replica
from moorage.domain.states import DeploymentStatus, OperationState, Phase, RevisionState
from tests.rollout_world import RolloutWorld

TWO = {"replicas": {"min": 2, "max": 2}}


def proposed(**parts: object) -> RolloutWorld:
    world = RolloutWorld(machines=3).serve(**parts)
    world.change(**parts)
    return world


def starts(world: RolloutWorld, ready: bool = True) -> None:
    """The newest worker is placed and runs."""
    world.place()
    world.starts(world.worker)
    if ready:
        world.ready(world.worker)
    world.settle()


def crash(world: RolloutWorld, code: int = 137) -> None:
    world.exits(world.worker_of(world.replicas_of("d2")[-1]), code)
    world.settle()


def test_a_candidate_that_fails_fatally_before_it_was_ready_fails_and_the_active_one_serves() -> None:
    world = proposed()
    starts(world, ready=False)
    crash(world, 1)
    assert (world.state("d2"), world.deployment.status) == (RevisionState.FAILED, DeploymentStatus.CREATED)
    assert (world.phase, world.routed(), world.sizes()) == (Phase.ACTIVE, {"d1"}, {"d1": 1})
    operation = world.operation("apply")
    assert operation.state is OperationState.FAILED
    assert operation.error is not None
    assert operation.error["code"] == "container_init_failed"
    assert "code 1" in operation.error["message"]


def test_failures_of_a_candidate_do_not_count_against_its_deployment() -> None:
    world = proposed()
    for _ in range(2):
        starts(world)
        crash(world)
    assert world.revision("d2").failures_in_row == 2
    deployment = world.deployment
    assert (deployment.failures_in_row, deployment.retry_at, deployment.last_failure) == (0, None, None)
    assert world.phase is Phase.UPDATING


def test_a_candidate_that_cannot_be_fetched_for_a_while_waits_longer_and_longer_and_is_kept() -> None:
    world = proposed()
    waits = []
    for _ in range(4):
        world.place()
        world.report(world.worker, "Preparing:picked_up:prepare.started")
        away = {"error": "503", "permanent": False}
        world.report(world.worker, "Failed:failed:image.pull_failed", params=away, gone=True)
        world.settle()
        retry_at = world.revision("d2").retry_at
        waits.append(0.0 if retry_at is None else retry_at - world.now)
        world.advance(waits[-1])
        world.settle()
    assert waits == [0.0, 10.0, 20.0, 40.0]
    assert world.state("d2") is RevisionState.PROVISIONING


def test_a_candidate_that_was_ready_once_is_not_failed_by_one_fatal_failure() -> None:
    world = proposed()
    starts(world)
    crash(world)
    starts(world, ready=False)
    crash(world, 1)
    assert (world.state("d2"), world.revision("d2").fatal_since_ran) == (RevisionState.PROVISIONING, True)


def test_a_candidate_that_crashes_again_and_again_is_rejected_with_what_it_failed_at() -> None:
    world = proposed()
    for _ in range(3):
        assert world.state("d2") is RevisionState.PROVISIONING
        world.advance(10.0)
        world.settle()
        starts(world)
        crash(world)
    revision = world.revision("d2")
    assert revision.state is RevisionState.REJECTED
    assert revision.decisions[-1]["reasons"][0]["code"] == "candidate_not_ready"
    assert revision.reason is not None
    assert "3 times in a row" in revision.reason.message
    assert "137" in revision.reason.message
    assert (world.routed(), world.sizes()) == ({"d1"}, {"d1": 1})


def test_a_candidate_that_a_person_promotes_is_not_given_up_for_its_crashes() -> None:
    world = proposed(**TWO)
    world.order("promote")
    for _ in range(4):
        starts(world)
        crash(world)
        world.advance(60.0)
        world.settle()
    assert world.state("d2") is not RevisionState.REJECTED
    assert "candidate_not_ready" not in [r["code"] for d in world.revision("d2").decisions for r in d["reasons"]]


def test_not_ready_in_time_twice_in_a_row_fails_a_candidate_whatever_the_active_one_does() -> None:
    world = proposed()
    for _ in range(2):
        world.place()
        world.starts(world.worker)
        world.report(world.worker, "Failed:failed:ready.timed_out", params={"d": 1800.0}, gone=True)
        world.settle()
    assert world.state("d2") is RevisionState.FAILED


def test_failures_of_the_active_one_are_its_deployments_also_while_a_candidate_starts() -> None:
    world = proposed(**TWO)
    world.exits(world.worker_of(world.replicas_of("d1")[0]), 137)
    world.settle()
    assert (world.deployment.failures_in_row, world.revision("d2").failures_in_row) == (1, 0)
    assert world.sizes() == {"d1": 2, "d2": 1}


def test_how_a_replica_of_what_ended_comes_to_its_end_counts_nowhere() -> None:
    world = proposed()
    starts(world)
    world.order("reject")
    world.exits(world.worker_of(world.replicas_of("d2")[0]), 137)
    world.settle()
    assert (world.revision("d2").failures_in_row, world.deployment.failures_in_row) == (0, 0)


def test_what_a_candidate_failed_at_goes_with_it_when_it_is_promoted_and_running_long_forgives_it() -> None:
    world = proposed()
    starts(world)
    crash(world)
    starts(world)
    crash(world)
    world.advance(10.0)
    world.settle()
    starts(world)
    world.compare()
    assert world.state("d2") is RevisionState.EVALUATING, "it must stay ready first"
    world.advance(10.0)
    world.settle()
    assert world.state("d2") is RevisionState.ACTIVE
    assert (world.deployment.failures_in_row, world.deployment.retry_at) == (2, None)
    world.stopped()
    world.advance(600.0)
    world.settle()
    assert world.deployment.failures_in_row == 0


def test_a_replica_that_is_lost_with_its_machine_is_replaced_within_its_own_revision() -> None:
    world = proposed()
    starts(world)
    lost = world.replicas_of("d2")[0]
    worker = world.worker_of(lost)
    world.now += 31.0
    for machine in [m for m in world.rows.values() if m.uid == worker.machine]:
        world.watch(machine)  # type: ignore[arg-type]  # a machine
    world.settle()
    assert {(r.ordinal, r.attempt > 1) for r in world.replicas_of("d2")} >= {(0, True)}
    assert [r.state for r in (world.revision("d2"),)] == [RevisionState.PROVISIONING]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_first_revision_that_fails_takes_its_deployment_with_it_in_one_change(when: str) -> None:
    world = RolloutWorld()
    world.apply()
    world.settle()
    if when == "after":
        world.change("d2")  # the first gave way: the second is the first now
    world.place()
    world.starts(world.worker)
    version = world.deployment.version
    world.exits(world.worker, 1)
    world.settle()
    assert world.deployment.status is DeploymentStatus.FAILED
    failed = [h for h in world.history if h[3] == "failed" and h[0].startswith(("deployment", "revision"))]
    assert {h[0].partition("-")[0] for h in failed} == {"deployment", "revision"}
    assert world.deployment.version > version
    assert world.of(Operation)[-1].state is OperationState.FAILED
    assert not [r for r in world.of(Replica) if r in world.replicas]


@pytest.mark.parametrize("room", [True, False], ids=["not ready", "no room"])
def test_a_candidate_that_is_too_late_says_what_its_replicas_lacked(room: bool) -> None:
    world = RolloutWorld(capacity={"cpu_milli": 2000 if room else 1000}).serve(resources={"cpu": 1.0})
    world.change(resources={"cpu": 1.0})
    world.place()
    if room:
        world.starts(world.worker)
    world.settle()
    world.advance(1800.0)
    world.settle()
    why = world.revision("d2").reason
    assert why is not None
    assert (world.state("d2"), ("machine" in why.message) is not room) == (RevisionState.FAILED, True)
