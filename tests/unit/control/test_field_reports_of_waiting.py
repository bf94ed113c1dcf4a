"""What went wrong with waits and shown states elsewhere and must not here: the field reports' section A.

Two of its lines are told where the thing itself is: a model that serves is listed throughout a rollout
(`test_rollout_field_reports`), and a server that answers /health and hangs its work fails the probe of its work
(`test_readiness`).
"""

from typing import Any

import pytest

from moorage.cli import rows
from moorage.client.waiting import Bound, Done, Failed, KeepPolling, judge
from moorage.control.views_serving import Surroundings, deployment_object
from moorage.domain.nouns import Operation, Replica, Revision
from moorage.domain.states import DeploymentStatus, OperationState, ReplicaStatus
from tests.rollout_world import RolloutWorld
from tests.serving_world import World, spec

SLEEPER = {"replicas": {"min": 0, "max": 1, "initial": 1}, "scaling": {"idle_timeout": 60.0}}
GATEWAY = "http://gateway"


def shown(world: World) -> dict[str, Any]:
    """The deployment as the API shows it."""
    around = Surroundings(world.of(Revision), world.of(Replica), world.of(Operation))
    return deployment_object(world.deployment, around, GATEWAY, world.now)


def asleep() -> World:
    world = World()
    world.up(spec(**SLEEPER))
    world.idle_s = 61.0
    world.advance(61.0)
    world.settle()
    world.stops(world.worker)
    world.settle()
    return world


def wake_fails(world: World) -> None:
    """A request comes, the server exits at its start, the request gives up."""
    world.held = 1
    world.settle()
    world.place()
    world.starts(world.worker)
    world.exits(world.worker, 1)
    world.settle()
    world.held = 0
    world.settle()


def test_passing_through_zero_on_the_way_to_the_first_active_is_neither_ready_nor_failed() -> None:
    """truss 2579: a wait that raised, or was content, at SCALED_TO_ZERO while the revision was on its way."""
    bound = Bound("rev-2", "op-2", "dep-1")
    for phase, verdict in (
        ("BUILDING", KeepPolling),
        ("DEPLOYING", KeepPolling),
        ("SCALED_TO_ZERO", KeepPolling),
        ("WAKING_UP", KeepPolling),
        ("ACTIVE", Done),
    ):
        on_its_way = phase != "ACTIVE"
        found = {
            "id": "dep-1",
            "phase": phase,
            "promotion_in_progress": on_its_way,
            "active_revision": "rev-1" if on_its_way else "rev-2",
            "candidate_revision": "rev-2" if on_its_way else None,
            "desired_replicas": 0,
            "spec": {"replicas": {"min": 0}},
        }
        assert isinstance(judge("ready", found, bound), verdict), phase


def test_servable_and_live_differ_for_what_rests_at_zero() -> None:
    """truss 2579, the other half: ready is content with a deployment that sleeps, live is not."""
    found = shown(asleep())
    assert judge("ready", found) == Done(serving=False, desired=0)
    assert isinstance(judge("live", found), KeepPolling)


def test_the_old_revision_that_serves_never_satisfies_a_wait_for_the_new_one() -> None:
    """truss 2579, the last: a promotion in flight."""
    world = RolloutWorld().serve()
    candidate = world.change("d2")
    found = shown(world)
    assert (found["phase"], found["serving"]) == ("UPDATING", True)
    for goal in ("ready", "live", "promoted"):
        assert isinstance(judge(goal, found, Bound(candidate.uid)), KeepPolling), goal


def test_a_success_at_zero_is_never_vacuous() -> None:
    """ww 570: six weeks of successful deploys while users got 503."""
    verdict = judge("ready", shown(asleep()))
    assert verdict == Done(serving=False, desired=0)
    zero = {"phase": "SCALED_TO_ZERO", "spec": {"replicas": {"min": 0, "max": 0}}, "desired_replicas": 0}
    assert isinstance(judge("live", zero), Failed)


def test_an_entrypoint_that_always_exits_fails_the_wait_with_that_exit() -> None:
    """ray 16597: success although the constructor throws."""
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.starts(world.worker)
    world.exits(world.worker, 1)
    world.settle()
    found = shown(world)
    verdict = judge("ready", found)
    assert isinstance(verdict, Failed)
    assert (found["phase"], found["last_failure"]["exit_code"], found["last_failure"]["log"]) == (
        "DEPLOY_FAILED",
        1,
        "boom",
    )
    (apply,) = world.of(Operation)
    assert apply.state is OperationState.FAILED


def test_the_server_itself_stops_trying_what_can_never_start() -> None:
    """ray 31121: the client gave up, and the controller restarted for ever."""
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.starts(world.worker)
    world.exits(world.worker, 1)
    world.settle()
    made = len(world.of(Replica))
    world.advance(100_000.0)
    world.settle()
    assert (world.deployment.status, len(world.of(Replica))) == (DeploymentStatus.FAILED, made)


def test_wakes_that_failed_do_not_keep_a_later_request_from_waking_it() -> None:
    """ray 51600: a rule for first deploys also ended the retries of a wake."""
    world = asleep()
    for _ in range(5):
        wake_fails(world)
        world.advance(400.0)
        world.settle()
    assert world.deployment.status in (DeploymentStatus.PAUSED, DeploymentStatus.CREATED)
    world.held = 1
    world.settle()
    world.advance(400.0)
    world.settle()
    world.bring_up()
    assert (shown(world)["phase"], shown(world)["ready_replicas"]) == ("ACTIVE", 1)


def test_a_wake_that_fails_is_not_shown_as_ready_and_its_error_is_kept_and_told() -> None:
    """knative 14157: the service read ready and the error was gone."""
    world = asleep()
    world.held = 1
    world.settle()
    world.place()
    world.starts(world.worker)
    world.exits(world.worker, 1)
    world.settle()
    found = shown(world)
    assert (found["serving"], found["last_failure"]["exit_code"]) == (False, 1)
    assert world.published is not None
    assert (world.published.error_code, "the last one failed" in str(world.published.error)) == (
        "no_ready_replica",
        True,
    )
    world.held = 0
    world.settle()
    assert shown(world)["last_failure"]["exit_code"] == 1, "asleep again, with the error still to be read"


def test_a_killed_server_is_shown_as_gone_by_the_change_that_tells_of_it() -> None:
    """gpustack 3117: the process crashed, the page said running."""
    world = World()
    world.up()
    (replica,) = world.replicas
    world.exits(world.worker)
    world.settle()
    after = next(r for r in world.of(Replica) if r.uid == replica.uid)
    assert (after.status, after.routed) == (ReplicaStatus.FAILED, False)
    assert shown(world)["serving"] is False


def test_what_sleeps_is_listed_as_scaled_to_zero_and_not_as_ended() -> None:
    """dstack 2661: a service at zero shown as terminated."""
    world = asleep()
    (row,) = rows.table("deployments", [shown(world)], world.now).rows
    assert row[1] == "SCALED_TO_ZERO"
    assert isinstance(judge("stopped", shown(world)), KeepPolling)


@pytest.mark.parametrize("goal", ["ready", "live"])
def test_ready_of_no_replica_at_all_is_not_ready(goal: str) -> None:
    """MLServer 2056: all of nothing was ready, and a crashing revision was promoted."""
    world = World()
    world.apply()
    assert world.replicas == []
    found = shown(world)
    assert (found["ready_replicas"], found["serving"]) == (0, False)
    assert isinstance(judge(goal, found), KeepPolling)
