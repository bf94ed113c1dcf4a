"""Each row of the two documents that the serving lifecycle comes from, as one sentence that the decisions keep.

The deployment and replica status document: its status tables, triggers, fatality table and count rules. The deployment
lifecycle document: what a delete, a lost resource, an update and a bad candidate lead to. Rows with machinery of their
own are named where they are shown: `test_replica_failures`, `test_rollout_states`, `test_drift`.
"""

import pytest

from moorage.decide.serving.phase import deployment_counts
from moorage.domain.errors import Conflict
from moorage.domain.lifecycles.deployment import DEPLOYMENT
from moorage.domain.lifecycles.replica import REPLICA
from moorage.domain.nouns import Deployment, Operation, Replica
from moorage.domain.states import DeploymentStatus, OperationState, ReplicaStatus, RevisionState
from tests.rollout_world import RolloutWorld
from tests.serving_world import STARTED, World, spec

D, R = DeploymentStatus, ReplicaStatus


def served(**parts):
    world = World()
    world.up(spec(**parts))
    return world


def sleeping():
    world = served(replicas={"min": 0, "max": 1})
    world.idle_s = 7200.0
    world.advance(7200.0)
    world.settle()
    world.settle()
    return world


def last(world):
    return world.of(Replica)[-1]


# Deployment status


@pytest.mark.parametrize(
    ("status", "leads_to"),
    [
        (D.CREATED, {"paused", "failed", "stopped"}),
        (D.PAUSED, {"created", "stopped"}),
        (D.FAILED, set()),
        (D.STOPPED, set()),
    ],
)
def test_a_deployment_status_leads_only_to_those_that_the_document_names(status, leads_to):
    assert DEPLOYMENT.targets(status) == leads_to


def test_created_is_accepted_with_its_first_replica_pending():
    world = World()
    world.apply()
    world.settle()
    assert (world.deployment.status, last(world).status) == (D.CREATED, R.PENDING)


def test_paused_is_reached_when_the_idle_time_out_is():
    world = sleeping()
    assert world.deployment.status is D.PAUSED
    world.stops(world.worker)
    world.settle()
    assert world.replicas == []


def test_paused_is_resumed_by_the_first_request():
    world = sleeping()
    world.held = 1
    world.settle()
    assert world.deployment.status is D.CREATED
    assert last(world).status is R.PENDING


def test_failed_is_reached_when_the_last_replica_fails_fatally_and_is_terminal():
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.starts(world.worker)
    world.settle()
    world.exits(world.worker, 1)
    world.settle()
    assert world.deployment.status is D.FAILED
    with pytest.raises(Conflict) as refused:
        world.apply(spec(model={"id": "other"}), digest="d2")
    assert "moor delete" in (refused.value.remedy or "")


def test_stopped_is_written_by_a_person_all_replicas_are_aborted_and_it_is_terminal():
    world = served()
    world.command("stop")
    assert world.deployment.status is D.STOPPED
    world.settle()
    world.stops(world.worker)
    world.settle()
    assert (last(world).status, world.replicas) == (R.STOPPED, [])
    with pytest.raises(Conflict):
        world.command("wake")


# Replica status


@pytest.mark.parametrize(
    ("status", "leads_to"),
    [
        (R.PENDING, {R.PULLING, R.INITING, R.RUNNING, R.FAILED, R.STOPPED}),
        (R.PULLING, {R.INITING, R.RUNNING, R.FAILED, R.STOPPED}),
        (R.INITING, {R.RUNNING, R.FAILED, R.STOPPED}),
        (R.RUNNING, {R.FAILED, R.STOPPED}),
        (R.FAILED, set()),
        (R.STOPPED, set()),
    ],
)
def test_a_replica_status_leads_only_to_those_that_the_document_draws(status, leads_to):
    assert REPLICA.targets(status) == leads_to


def test_pending_to_pulling_when_its_machine_begins_to_pull():
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.report(world.worker, STARTED[0], "Pulling:pulling:prepare.started")
    world.settle()
    assert last(world).status is R.PULLING


def test_to_initing_when_the_model_server_starts_and_to_running_when_it_is_healthy():
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.starts(world.worker)
    world.settle()
    assert last(world).status is R.INITING
    world.ready(world.worker)
    world.settle()
    assert last(world).status is R.RUNNING


def test_any_to_stopped_is_written_before_the_job_is_aborted():
    world = served()
    world.command("stop")
    assert world.deployment.status is D.STOPPED
    world.exits(world.worker_of(world.replicas[-1]), 137)
    world.settle()
    assert last(world).status is R.STOPPED  # its late exit is no failure


# Failure transitions and fatality (each code of each row: test_replica_failures)


def test_a_fatal_failure_with_no_other_replica_alive_fails_the_deployment_and_nothing_is_spawned_again():
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.starts(world.worker)
    world.settle()
    world.exits(world.worker, 1)
    world.settle()
    world.advance(3600.0)
    world.settle()
    assert (world.deployment.status, world.replicas) == (D.FAILED, [])


def test_a_crash_after_it_was_healthy_is_not_fatal_and_is_replaced():
    world = served()
    world.exits(world.worker_of(world.replicas[-1]))
    world.settle()
    failed = next(r for r in world.of(Replica) if r.status is R.FAILED)
    assert (failed.fail_reason, failed.fatal, world.deployment.status) == ("container_crashed", False, D.CREATED)
    assert [r.status for r in world.replicas] == [R.PENDING]


# Current replicas


def counted(world):
    return deployment_counts(world.deployment, world.of(Replica)).current


def test_current_replicas_rises_when_one_runs_and_falls_when_it_crashes():
    world = served()
    assert counted(world) == 1
    world.exits(world.worker_of(world.replicas[-1]))
    world.settle()
    assert counted(world) == 0


def test_current_replicas_never_counts_one_that_failed_before_it_ran():
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.starts(world.worker)
    world.settle()
    assert counted(world) == 0
    world.exits(world.worker, 1)
    world.settle()
    assert counted(world) == 0


# The deployment lifecycle document


def test_intent_is_persisted_before_anything_is_provisioned():
    world = World()
    world.apply()
    assert world.of(Replica) == []
    assert [(o.operation, o.state) for o in world.of(Operation)] == [("apply", OperationState.PENDING)]


def test_an_update_makes_an_immutable_candidate_and_the_active_revision_stays_routed():
    world = RolloutWorld().serve()
    before = world.active.uid
    candidate = world.change()
    assert candidate.state in (RevisionState.CANDIDATE, RevisionState.PROVISIONING)
    assert world.deployment.active_revision == before
    assert world.routed() == {"d1"}


def test_a_bad_candidate_never_replaces_the_active_revision():
    world = RolloutWorld().serve()
    before = world.active.uid
    candidate = world.change()
    world.place()
    (replica,) = world.replicas_of("d2")
    world.starts(world.worker_of(replica))
    world.settle()
    world.exits(world.worker_of(world.rows[replica.uid]), 1)
    world.settle()
    assert world.deployment.active_revision == before
    assert world.routed() == {"d1"}
    assert world.rows[candidate.uid].state is RevisionState.FAILED


def test_the_same_apply_again_submits_nothing():
    world = served()
    before = len(world.of(Replica)), len(world.of(Operation))
    assert world.apply(spec()).change is None
    world.settle()
    assert (len(world.of(Replica)), len(world.of(Operation))) == before


def test_a_delete_withdraws_routing_then_drains_then_stops_and_only_then_leaves_a_tombstone():
    world = served()
    replica = world.replicas[-1]
    world.in_flight = {replica.uid: 1}
    world.command("delete")
    world.settle()
    assert world.published is not None
    assert world.published.targets == ()
    worker = world.worker_of(world.rows[replica.uid])
    assert worker.stop is None  # a request is in flight
    world.in_flight = {}
    world.settle()
    assert world.rows[worker.uid].stop is not None
    assert world.deployment.deleting
    name = world.deployment.name
    world.stops(world.rows[worker.uid])
    world.settle()
    assert world.of(Deployment) == []
    assert world.removed_reasons[worker.run].params["deployment"] == name  # not among what people ran
