"""Operations, commands from people, and the phase that is shown."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.decide.serving import operation_commands
from moorage.decide.serving.phase import deployment_phase
from moorage.domain.errors import Conflict
from moorage.domain.nouns import Deployment, Machine, Operation, Replica, Revision, Worker
from moorage.domain.states import (
    DeploymentStatus,
    MachineState,
    OperationState,
    Phase,
    ReplicaStatus,
    RevisionState,
    WorkerState,
)
from tests.serving_world import START, World, spec

SLEEPER = {"replicas": {"min": 0, "max": 1, "initial": 1}, "scaling": {"idle_timeout": 60.0}}


def served(**parts: Any) -> World:
    world = World()
    world.up(spec(**parts))
    return world


def settled_failure(world: World, code: int = 137) -> None:
    """The newest replica's process ends; the recipe runs."""
    world.exits(world.worker_of(world.replicas[-1]), code)
    world.settle()


def lose(world: World) -> Worker:
    world.now += 31.0
    world.watch(world.of(Machine)[0])
    world.settle()
    return world.of(Worker)[0]


def asleep() -> World:
    world = served(**SLEEPER)
    world.idle_s = 61.0
    world.advance(61.0)
    world.settle()
    world.stops(world.worker)
    world.settle()
    assert world.phase is Phase.SCALED_TO_ZERO
    return world


# Operations


def test_stopped_is_written_before_anything_is_taken_down_and_a_late_report_changes_nothing() -> None:
    world = served()
    world.command("stop")
    assert world.deployment.status is DeploymentStatus.STOPPED
    assert world.worker.state is WorkerState.RUNNING
    world.exits(world.worker)
    world.settle()
    assert (world.phase, world.replicas, world.deployment.failures_in_row) == (Phase.INACTIVE, [], 0)


def test_delete_removes_every_row_only_after_its_machines_saw_everything_gone() -> None:
    world = served()
    world.command("delete")
    world.settle()
    assert (world.phase, world.worker.state) == (Phase.DEACTIVATING, WorkerState.STOPPING)
    (delete,) = [o for o in world.of(Operation) if o.operation == "delete"]
    assert (delete.state, [s["state"] for s in delete.steps]) == ("waiting", ["done", "done"] + ["pending"] * 3)
    world.stops(world.worker)
    world.settle()
    assert not [r for r in world.rows.values() if not isinstance(r, Machine | Operation)]
    assert [o.state for o in world.of(Operation)] == [OperationState.SUCCEEDED] * 2
    assert {r.kind for r in world.removed.values()} == {"Deployment", "Revision", "Replica", "Run", "Worker"}


def test_delete_of_a_failed_deployment_waits_for_a_process_that_failed_and_is_not_gone() -> None:
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.starts(world.worker)
    world.exits(world.worker, 1, gone=False)
    world.settle()
    world.command("delete")
    world.settle()
    assert world.of(Deployment)
    world.report(world.worker, gone=True)
    world.settle()
    assert not world.of(Deployment)


def test_delete_is_not_held_up_by_a_machine_that_never_comes_back_and_was_removed() -> None:
    world = served()
    world.exits(world.worker, gone=False)
    world.settle()
    lose(world)
    world.command("delete")
    world.settle()
    assert world.of(Deployment)
    machine = world.of(Machine)[0]
    world.rows[machine.uid] = replace(machine, state=MachineState.REMOVED)
    world.now += 2.0
    world.settle()
    assert not world.of(Deployment)


def test_stop_takes_over_from_an_apply() -> None:
    world = World()
    world.apply()
    world.settle()
    world.command("stop")
    world.settle()
    assert {o.operation: o.state for o in world.of(Operation)} == {"apply": "cancelled", "stop": "succeeded"}
    assert [r.state for r in world.of(Revision)] == [RevisionState.CANCELLED]


def test_a_cancel_that_arrives_with_the_readiness_came_too_late() -> None:
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.starts(world.worker)
    world.ready(world.worker)
    world.commit(operation_commands.cancel(world.of(Operation)[0], world.now, actor="person:p").change)
    world.settle()
    assert world.of(Operation)[0].state is OperationState.SUCCEEDED


def test_an_apply_is_cancelled_by_a_person_before_it_had_its_effect() -> None:
    world = World()
    world.apply()
    world.settle()
    world.commit(operation_commands.cancel(world.of(Operation)[0], world.now, actor="person:p").change)
    world.settle()
    assert world.of(Operation)[0].state is OperationState.CANCELLED


# Commands


def test_the_same_apply_again_is_a_no_op() -> None:
    world = served()
    outcome = world.apply()
    assert (outcome.change, outcome.answer["changed"]) == (None, False)


def test_the_live_part_is_changed_at_once_with_history() -> None:
    world = served()
    outcome = world.apply(spec(scaling={"idle_timeout": 5.0}))
    assert outcome.answer["changed"] is True
    assert (world.codes[-1], len(world.of(Revision))) == ("deploy.changed", 1)


def test_another_revision_of_what_is_over_is_refused_with_what_to_do() -> None:
    world = served()
    world.command("stop")
    with pytest.raises(Conflict) as stopped:
        world.apply(digest="d2")
    assert (stopped.value.code, "delete" in str(stopped.value.remedy)) == ("deployment_stopped", True)


def test_apply_during_a_delete_names_the_operation() -> None:
    world = served()
    operation = world.command("delete").answer["operation"]
    with pytest.raises(Conflict) as refused:
        world.apply()
    assert operation in refused.value.message
    assert world.command("delete").answer["operation"] == operation


def test_stop_is_idempotent_and_a_no_op_on_what_failed() -> None:
    world = served()
    first = world.command("stop")
    again = world.command("stop")
    assert (again.change, again.answer["operation"]) == (None, first.answer["operation"])
    failed = replace(world.deployment, status=DeploymentStatus.FAILED)
    world.rows[failed.uid] = failed
    assert world.command("stop").change is None


@pytest.mark.parametrize("command", ["pause", "wake", "scale"])
def test_what_is_over_cannot_be_moved(command: str) -> None:
    world = served()
    world.command("stop")
    with pytest.raises(Conflict) as refused:
        world.command(command, low=2)
    assert refused.value.code == "deployment_over"


def test_pause_is_refused_while_a_candidate_exists() -> None:
    world = World()
    world.apply()
    with pytest.raises(Conflict) as refused:
        world.command("pause")
    assert refused.value.code == "rollout_in_progress"


def test_a_person_pauses_and_wakes_whatever_the_minimum() -> None:
    world = served()
    world.command("pause")
    world.settle()
    assert (world.phase, world.deployment.reason.code) == ("SCALED_TO_ZERO", "deploy.paused_by_person")  # type: ignore[union-attr]  # it has one
    world.command("wake")
    world.settle()
    assert world.phase is Phase.WAKING_UP


def test_a_wake_calls_a_pause_off_that_is_under_way() -> None:
    world = served()
    world.confirmed = False
    world.command("pause")
    world.settle()
    world.command("wake")
    world.confirmed = True
    world.settle()
    assert world.phase is Phase.ACTIVE


def test_initial_zero_is_accepted_asleep_and_the_first_request_starts_it() -> None:
    world = World()
    world.apply(spec(replicas={"min": 0, "max": 1, "initial": 0}))
    world.settle()
    assert (world.phase, world.replicas, world.codes[0]) == (Phase.SCALED_TO_ZERO, [], "deploy.initial_zero")
    assert world.of(Operation)[0].state is OperationState.SUCCEEDED
    world.held = 1
    world.settle()
    world.bring_up()
    assert (world.phase, world.deployment.active_revision) == (Phase.ACTIVE, world.of(Revision)[0].uid)


def test_a_minimum_raised_above_zero_wakes_what_sleeps() -> None:
    world = asleep()
    world.command("scale", low=1)
    world.settle()
    assert (world.deployment.status, len(world.replicas)) == (DeploymentStatus.CREATED, 1)


@pytest.mark.parametrize(("low", "high"), [(-1, None), (3, 2), (0, 0)])
def test_limits_that_contradict_each_other_are_refused(low: int, high: int | None) -> None:
    with pytest.raises(Conflict):
        served().command("scale", low=low, high=high)


# Phase: the first match of the list, over rows made by hand

C, P, F, X = DeploymentStatus.CREATED, DeploymentStatus.PAUSED, DeploymentStatus.FAILED, DeploymentStatus.STOPPED
READY = Replica(uid="r", status=ReplicaStatus.RUNNING, routed=True)
CANDIDATE = {"active_revision": "a", "candidate_revision": "c"}


@pytest.mark.parametrize(
    ("fields", "replicas", "operation", "expected"),
    [
        ({"deleting": True, "status": X}, [], None, Phase.DEACTIVATING),
        ({"status": X}, [], "stop", Phase.DEACTIVATING),
        ({"status": X}, [], None, Phase.BUILD_STOPPED),
        ({"status": X, "past_pulling": True}, [], None, Phase.INACTIVE),
        ({"status": F, "last_failure": {"fail_reason": "image_pull_failed"}}, [], None, Phase.BUILD_FAILED),
        ({"status": F, "last_failure": {"fail_reason": "container_init_failed"}}, [], None, Phase.DEPLOY_FAILED),
        ({"status": F, "ever_ready": True}, [], None, Phase.FAILED),
        ({"status": P, "failures_in_row": 9}, [], None, Phase.SCALED_TO_ZERO),
        ({"failures_in_row": 9}, [READY], None, Phase.ACTIVE),
        (CANDIDATE, [READY], None, Phase.UPDATING),
        ({}, [READY], "apply", Phase.ACTIVE),
        ({}, [replace(READY, stopping={"code": "x"})], None, Phase.DEPLOYING),
        ({"failures_in_row": 3, "waking": {"since": 0}}, [], None, Phase.UNHEALTHY),
        ({"failures_in_row": 2}, [], None, Phase.DEPLOYING),
        ({"fatal_since_ran": True, "initial_scale_reached": True}, [], None, Phase.UNHEALTHY),
        ({"fatal_since_ran": True}, [], None, Phase.DEPLOYING),
        ({"waking": {"since": 0}}, [replace(READY, status=ReplicaStatus.PULLING, routed=False)], None, Phase.WAKING_UP),
        ({}, [replace(READY, status=ReplicaStatus.PULLING, routed=False)], None, Phase.BUILDING),
        ({}, [replace(READY, status=ReplicaStatus.INITING, routed=False)], None, Phase.LOADING_MODEL),
        ({}, [replace(READY, routed=False)], None, Phase.DEPLOYING),
        ({}, [], None, Phase.DEPLOYING),
    ],
)
def test_the_phase_is_the_first_match(
    fields: dict[str, Any], replicas: list[Replica], operation: str | None, expected: Phase
) -> None:
    deployment = Deployment(uid="d", **{"status": C, "spec": spec(), **fields})
    row = Operation(uid="o", operation=operation, state=OperationState.RUNNING) if operation else None
    revisions = [Revision(uid="c", state=RevisionState.PROVISIONING)]
    assert deployment_phase(deployment, revisions, replicas, row, START) is expected


def test_a_deployment_whose_second_replica_fits_nowhere_can_be_stopped() -> None:
    gpu = {"index": 0, "vendor": "nvidia", "model": "H100", "memory_bytes": 1 << 36}
    world = World(capacity={"cpu_milli": 8000, "memory_bytes": 1 << 36, "gpus": [gpu]})
    world.up(spec(replicas={"min": 1, "max": 2}, resources={"gpus": {"count": 1}}))
    world.command("scale", low=2)
    world.settle()
    world.place()
    second = world.worker_of(world.replicas[1])
    assert (second.state, second.machine) == (WorkerState.PENDING, None)
    world.command("stop")
    world.settle()
    assert world.worker_of(world.of(Replica)[1]).state is WorkerState.CANCELLED
    world.exits(world.worker_of(world.of(Replica)[0]), 0)
    world.settle()
    assert world.deployment.status is DeploymentStatus.STOPPED
    assert world.replicas == []
