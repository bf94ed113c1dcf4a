"""What went wrong with rollouts elsewhere and must not here: the field reports' section C, as far as decisions go."""

import pytest

from moorage.decide.serving.rollout.record import rollout_of
from moorage.domain.nouns import Replica
from moorage.domain.states import OperationState, Phase, ReplicaStatus, RevisionState
from tests.rollout_world import RolloutWorld

TEN = {"replicas": {"min": 10, "max": 10}}
TWO = {"replicas": {"min": 2, "max": 2}}


def begun(machines: int = 3, **parts: object) -> RolloutWorld:
    world = RolloutWorld(machines=machines).serve(**parts)
    world.change(**parts)
    return world


def test_an_abort_with_no_rollout_in_progress_never_scales_what_serves() -> None:
    """argo-rollouts 1292."""
    world = RolloutWorld(machines=3).serve(**TWO)
    assert world.order("reject").change is None
    world.settle()
    assert (world.sizes(), world.routed(), world.phase) == ({"d1": 2}, {"d1"}, Phase.ACTIVE)


def test_a_rollback_from_ten_replicas_moves_traffic_only_when_ten_are_up() -> None:
    """argo-rollouts 3941."""
    world = RolloutWorld(machines=3).serve(**TEN)
    world.promote("d2", **TEN)
    world.order("rollback")
    world.settle()
    world.place()
    for ordinal, replica in enumerate(world.replicas_of("d1")):
        assert world.routed() == {"d2"}, f"traffic moved with {ordinal} of 10"
        world.starts(world.worker_of(replica))
        world.ready(world.worker_of(replica))
        world.settle()
    assert world.routed() == {"d1"}


def test_after_an_abort_a_later_scale_up_never_revives_the_aborted_revision() -> None:
    """argo-rollouts 3078, 4973."""
    world = begun(rollout={"strategy": "canary"})
    world.bring_up()
    world.order("reject")
    world.settle()
    world.command("scale", low=3, high=3)
    for _ in range(3):
        world.settle()
        assert world.routed() == {"d1"}
        world.stopped()
        world.bring_up()
    assert world.sizes() == {"d1": 3}


def test_a_candidate_whose_replicas_never_start_ends_at_the_deadline() -> None:
    """argo-rollouts 4128; nomad 10465."""
    world = begun()
    world.advance(1800.0)
    world.settle()
    assert (world.state("d2"), world.operation("apply").state) == (RevisionState.FAILED, OperationState.FAILED)
    assert (world.sizes(), world.routed()) == ({"d1": 1}, {"d1"})


def test_no_data_neither_crashes_the_analysis_nor_decides_it() -> None:
    """argo-rollouts 1466, 1905; flagger 1035."""
    world = begun()
    world.bring_up()
    assert world.state("d2") is RevisionState.EVALUATING
    assert world.revision("d2").decisions[-1]["verdict"] == "WAIT"


def test_traffic_that_stops_in_the_middle_never_moves_a_canary_on() -> None:
    """flagger 1011."""
    world = begun(rollout={"strategy": "canary", "step_interval": 10.0})
    world.bring_up()
    world.compare(source="gw")
    for _ in range(3):
        world.advance(10.0)
        world.settle()
    rollout = rollout_of(world.deployment)
    assert rollout is not None
    assert (rollout.step, world.state("d2")) == (1, RevisionState.EVALUATING)


def test_while_the_new_ones_crash_the_old_ones_never_become_fewer() -> None:
    """nomad 6864."""
    world = begun(**TWO)
    while world.replicas_of("d2"):
        world.place()
        world.starts(world.worker)
        world.ready(world.worker)
        world.settle()
        world.exits(world.worker_of(world.replicas_of("d2")[-1]), 137)
        world.settle()
        assert world.sizes()["d1"] == 2
        assert world.routed() == {"d1"}
        world.advance(30.0)
        world.settle()
    assert (world.state("d2"), world.routed()) == (RevisionState.REJECTED, {"d1"})


def test_an_image_that_cannot_be_had_fails_the_candidate_at_once() -> None:
    """nomad 10465."""
    world = begun()
    world.place()
    world.report(world.worker, "Preparing:picked_up:prepare.started")
    denied = {"error": "denied", "permanent": True}
    world.report(world.worker, "Failed:failed:image.pull_failed", params=denied, gone=True)
    world.settle()
    assert (world.state("d2"), world.routed()) == (RevisionState.FAILED, {"d1"})


def test_the_deadline_of_one_step_is_never_applied_to_the_next() -> None:
    """nomad PR 10042: and not to what was promoted just before it."""
    world = begun(rollout={"deadline": 100.0})
    world.bring_up()
    world.advance(99.0)
    world.compare()
    assert world.state("d2") is RevisionState.ACTIVE
    world.advance(50.0)
    world.settle()
    world.change("d3", rollout={"deadline": 100.0})
    world.advance(60.0)
    world.settle()
    assert world.state("d3") is RevisionState.PROVISIONING


def test_routing_is_any_ready_replica_of_the_active_revision() -> None:
    """skypilot 4907."""
    world = begun(**TWO)
    world.exits(world.worker_of(world.replicas_of("d1")[0]), 137)
    world.place()
    world.starts(world.worker_of(world.replicas_of("d2")[0]))
    world.settle()
    assert world.routed() == {"d1"}
    assert world.publish() is not None
    assert world.publish().mode == "serve"  # type: ignore[union-attr]  # there is one


def test_a_failed_candidate_holds_no_replicas_of_production_size() -> None:
    """truss PR 2385."""
    world = begun(**TEN)
    world.place()
    world.starts(world.worker)
    world.exits(world.worker, 1)
    world.settle()
    assert (world.state("d2"), world.sizes()) == (RevisionState.FAILED, {"d1": 10})
    assert len([r for r in world.of(Replica) if r.revision == world.revision("d2").uid]) == 1


@pytest.mark.parametrize("drain_s", [5.0, 120.0])
def test_the_drain_is_as_long_as_its_deployment_says_and_ends(drain_s: float) -> None:
    """dynamo 13559, PR 11068; kuberay 4126."""
    world = begun(gateway={"drain": drain_s})
    world.bring_up()
    old = world.replicas_of("d1")[0]
    world.in_flight = {old.uid: 1}
    world.compare()
    world.advance(drain_s - 1.0)
    world.settle()
    assert world.worker_of(old).state == "Running"
    world.advance(1.0)
    world.settle()
    assert world.worker_of(old).state == "Stopping"
    world.stopped()
    gone = next(r for r in world.of(Replica) if r.uid == old.uid)
    assert (gone.status, gone.reason.code) == (ReplicaStatus.STOPPED, "replica.replaced")  # type: ignore[union-attr]  # it has one


def test_ready_while_nothing_is_expected_to_be_ready_promotes_nothing() -> None:
    """MLServer 2056: all of nothing is not ready."""
    world = begun()
    assert world.state("d2") is RevisionState.PROVISIONING
    world.place()
    world.starts(world.worker)
    world.settle()
    assert world.state("d2") is RevisionState.PROVISIONING


def test_a_model_that_serves_is_listed_and_routed_throughout_a_rollout() -> None:
    """kserve 5443."""
    world = RolloutWorld(machines=3).serve()
    seen: set[tuple[str, str]] = set()
    world.change()
    for act in (world.bring_up, world.compare, world.stopped):
        route = world.publish()
        assert route is not None
        seen.add((route.mode, str(world.phase)))
        act()
    assert {mode for mode, _ in seen} == {"serve"}
    assert {phase for _, phase in seen} <= {"UPDATING", "ACTIVE"}
