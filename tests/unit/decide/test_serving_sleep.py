"""Sleep, wake, and stopping gently."""

from typing import Any

import pytest

from moorage.domain.nouns import Replica
from moorage.domain.states import DeploymentStatus, Phase, WorkerState
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


# Sleep and wake


def asleep() -> World:
    world = served(**SLEEPER)
    world.idle_s = 61.0
    world.advance(61.0)
    world.settle()
    world.stops(world.worker)
    world.settle()
    assert world.phase is Phase.SCALED_TO_ZERO
    return world


def hold(world: World) -> None:
    """It is idle, and the gateway has not confirmed yet."""
    world.advance(61.0)
    world.idle_s, world.confirmed = 61.0, False
    world.settle()
    assert world.deployment.hold is not None


def test_idle_is_counted_from_the_end_of_the_last_request_and_never_before_the_first_ready() -> None:
    world = served(**SLEEPER)
    assert world.settle().wake_at == START + 60.0
    world.advance(59.0)
    world.idle_s = 20.0
    assert world.settle().wake_at == world.now + 40.0
    world.in_flight = {world.replicas[0].uid: 1}
    world.advance(500.0)
    world.settle()
    assert world.deployment.hold is None


def test_a_minimum_above_zero_never_sleeps_by_itself() -> None:
    world = served()
    world.idle_s = 1e6
    world.advance(1e6)
    assert world.settle().wake_at is None
    assert world.phase is Phase.ACTIVE


def test_nothing_sleeps_while_a_gateway_has_not_said_when_its_last_request_ended() -> None:
    world = served(**SLEEPER)
    world.known = False
    world.advance(500.0)
    assert world.settle().wake_at == world.now + 5.0
    assert world.deployment.hold is None


def test_the_end_of_the_last_request_outlives_the_gateways_memory() -> None:
    world = served(**SLEEPER)
    world.advance(50.0)
    world.idle_s = 0.0
    world.settle()
    assert world.deployment.active_at == world.now
    world.idle_s = None
    world.advance(60.0)
    world.settle()
    assert world.deployment.hold is None, "the gateway forgot; the row did not"


def test_pausing_holds_requests_and_stops_nothing_before_every_gateway_confirmed() -> None:
    world = served(**SLEEPER)
    hold(world)
    assert world.published is not None
    assert (world.published.mode, world.phase) == ("hold", Phase.ACTIVE)
    assert world.replicas[0].stopping is None
    world.confirmed = True
    world.settle()
    assert world.deployment.status is DeploymentStatus.PAUSED
    assert world.worker.state is WorkerState.STOPPING


@pytest.mark.parametrize("how", ["held", "unconfirmed for 30 s", "minimum raised"])
def test_pausing_is_called_off(how: str) -> None:
    world = served(**SLEEPER)
    hold(world)
    if how == "held":
        world.held = 1
    elif how == "minimum raised":
        world.command("scale", low=1)
        world.confirmed = True
    else:
        assert world.settle().wake_at == world.deployment.hold["since"] + 30.0  # type: ignore[index]  # hold() saw it
        world.advance(29.9)
        world.settle()
        assert world.deployment.hold is not None
        world.advance(0.1)
    world.settle()
    assert (world.deployment.hold, world.deployment.status) == (None, DeploymentStatus.CREATED)
    assert world.replicas[0].stopping is None


def test_what_a_gateway_said_before_the_pause_began_does_not_undo_it() -> None:
    world = served(**SLEEPER)
    world.held, world.confirmed = 3, False
    world.command("pause")
    world.advance(0.5)
    world.held_told_s = 0.6
    world.settle()
    assert world.deployment.hold is not None, "those three may have their answers by now"
    world.confirmed = True
    world.settle()
    assert world.deployment.status is DeploymentStatus.CREATED, "and they may wait still"
    world.held, world.held_told_s = 0, 0.0
    world.settle()
    assert world.deployment.status is DeploymentStatus.PAUSED


def test_a_request_wakes_it_once_however_many_wait() -> None:
    world = asleep()
    for held in (1, 5, 50):
        world.held = held
        world.settle()
    assert (world.phase, world.deployment.wakes, len(world.replicas)) == (Phase.WAKING_UP, 1, 1)
    world.bring_up()
    assert (world.phase, world.deployment.waking) == (Phase.ACTIVE, None)


def test_a_wake_is_honoured_while_the_old_replica_still_stops() -> None:
    world = served(**SLEEPER)
    hold(world)
    world.confirmed = True
    world.settle()
    world.held = 1
    world.settle()
    assert [(r.attempt, r.stopping is not None) for r in world.replicas] == [(1, True), (2, False)]


def test_a_failed_wake_is_told_to_the_held_ones_and_sleeps_again_when_nobody_waits() -> None:
    world = asleep()
    world.held = 1
    world.settle()
    world.place()
    world.starts(world.worker)
    settled_failure(world, code=1)
    assert (world.deployment.wake_failures, world.deployment.status) == (1, DeploymentStatus.CREATED)
    assert world.published is not None
    assert world.published.error_code == "no_ready_replica"
    world.held = 0
    world.settle()
    assert (world.deployment.status, world.deployment.reason.code) == ("paused", "deploy.wake_failed")  # type: ignore[union-attr]  # it has one


def test_a_broken_model_is_not_started_in_a_circle_by_those_who_ask_for_it() -> None:
    world = asleep()
    starts = len(world.of(Replica))
    for _ in range(10):
        world.held = 1
        world.settle()
        world.place()
        if world.replicas and world.worker.state is WorkerState.PENDING:
            world.starts(world.worker)
            settled_failure(world, code=1)
        world.held = 0
        world.settle()
        world.advance(1.0)
    assert len(world.of(Replica)) == starts + 1, "ten requests in ten seconds are one start and its back-off"
    world.held = 1
    world.advance(10.0)
    world.settle()
    assert len(world.of(Replica)) == starts + 2


# Stopping gently


def test_a_replica_is_withdrawn_then_drained_then_signalled() -> None:
    world = served(gateway={"drain": 60.0})
    uid = world.replicas[0].uid
    world.in_flight = {uid: 1}
    world.command("stop")
    decision = world.settle()
    assert (world.replicas[0].routed, world.worker.state) == (False, WorkerState.RUNNING)
    assert decision.wake_at == world.now + 60.0
    world.in_flight = {}
    world.confirmed = False
    world.settle()
    assert world.worker.state is WorkerState.RUNNING, "a gateway may still send"
    world.confirmed = True
    world.settle()
    assert world.worker.state is WorkerState.STOPPING


def test_a_drain_has_an_end() -> None:
    world = served(gateway={"drain": 60.0})
    world.in_flight = {world.replicas[0].uid: 1}
    world.command("stop")
    world.settle()
    world.advance(60.0)
    world.settle()
    assert world.worker.state is WorkerState.STOPPING


def test_what_never_served_is_stopped_at_once() -> None:
    world = World()
    world.apply()
    world.settle()
    world.command("stop")
    world.settle()
    assert world.worker.state is WorkerState.CANCELLED
    assert (world.replicas, world.phase) == ([], Phase.BUILD_STOPPED)


def test_fewer_replicas_stop_those_that_serve_nothing_first() -> None:
    world = World()
    world.up(spec(replicas={"min": 1, "max": 3}))
    world.command("scale", low=3)
    world.settle()
    assert [r.ordinal for r in world.replicas] == [0, 1, 2]
    world.command("scale", low=1, high=1)
    world.settle()
    assert [(r.ordinal, r.routed) for r in world.replicas] == [(0, True)]
