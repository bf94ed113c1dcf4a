"""A new revision takes over: what serves goes on until the very change that promotes, and nothing is ever too many."""

import json

import pytest

from moorage.decide.serving import commands
from moorage.decide.serving.cycle import decide
from moorage.decide.serving.guard import replay
from moorage.decide.serving.operation_commands import cancel
from moorage.decide.serving.rollout.record import rollout_of
from moorage.domain.changes import Update
from moorage.domain.errors import StaleVersion
from moorage.domain.nouns import Operation, Replica, Revision, Run
from moorage.domain.states import DeploymentStatus, OperationState, Phase, ReplicaStatus, RevisionState
from tests.rollout_world import RolloutWorld, spec

THREE = {"replicas": {"min": 3, "max": 3}}
SLEEPER = {"replicas": {"min": 0, "max": 1, "initial": 1}, "scaling": {"idle_timeout": 60.0}}


def compared(**parts: object) -> RolloutWorld:
    """The candidate is ready and nothing was measured yet."""
    world = RolloutWorld(machines=3).serve(**parts)
    world.change(**parts)
    world.bring_up()
    return world


# Sizes


def test_a_candidate_has_one_replica_until_it_is_accepted_and_then_the_size_of_the_active_one() -> None:
    world = compared(**THREE)
    assert world.sizes() == {"d1": 3, "d2": 1}
    world.compare()
    assert (world.sizes(), world.state("d2")) == ({"d1": 3, "d2": 3}, RevisionState.PROMOTING)
    assert world.routed() == {"d1"}
    world.bring_up()
    assert (world.sizes(), world.state("d2"), world.routed()) == ({"d2": 3}, RevisionState.ACTIVE, {"d2"})


def test_a_candidate_of_strategy_none_is_ready_and_gets_no_request() -> None:
    world = compared()
    (candidate,) = world.replicas_of("d2")
    assert (candidate.status, candidate.routed) == (ReplicaStatus.RUNNING, False)
    assert candidate.routed_why is not None
    assert candidate.routed_why["code"] == "replica.candidate"
    assert world.routed() == {"d1"}
    assert (world.phase, world.deployment.active_revision) == (Phase.UPDATING, world.revision("d1").uid)


def test_a_candidate_begins_at_its_own_place_in_the_queue_and_never_at_that_of_the_active_one() -> None:
    world = RolloutWorld().serve()
    first = world.worker.queued_at
    world.advance(500.0)
    world.change()
    assert world.worker.queued_at == first + 500.0


def test_a_lost_replica_of_the_active_revision_is_not_replaced_by_the_candidates() -> None:
    parts = {"resources": {"cpu": 1.0}, "rollout": {"auto": False}}
    world = RolloutWorld(machines=2, capacity={"cpu_milli": 1000}).serve(**parts)
    world.change(**parts)
    world.bring_up()
    (lost,), (candidate,) = world.replicas_of("d1"), world.replicas_of("d2")
    here, there = (world.worker_of(r).machine for r in (lost, candidate))
    assert (here != there, candidate.ordinal) == (True, lost.ordinal)
    world.now += 31.0
    world.beat(world.rows[there or ""])  # type: ignore[arg-type]  # a machine
    world.watch(world.rows[here or ""])  # type: ignore[arg-type]  # a machine
    world.settle()
    assert world.worker_of(lost).state == "Down"
    assert [r.status for r in world.of(Replica) if r.uid == lost.uid] == [ReplicaStatus.RUNNING]
    assert world.sizes()["d1"] == 2  # the one that may come back, and its replacement


# One change


def test_the_active_revision_keeps_its_routes_until_the_change_that_promotes() -> None:
    world = compared()
    world.met("d1")
    world.met("d2")
    before = world.publish()
    decision = decide(world.snapshot(), world.ids)
    assert before is not None
    assert {t.replica.revision for t in before.targets} == {world.revision("d1").uid}
    world.commit(decision.change)
    after = world.publish()
    assert after is not None
    assert {t.replica.revision for t in after.targets} == {world.revision("d2").uid}
    assert (world.state("d1"), world.state("d2")) == (RevisionState.DRAINING, RevisionState.ACTIVE)
    written = {w.uid for w in decision.change.writes if isinstance(w, Update)}  # type: ignore[union-attr]  # it has one
    assert {world.deployment.uid, world.revision("d1").uid, world.revision("d2").uid} <= written


@pytest.mark.parametrize("moved", ["deployment", "active", "candidate"])
def test_a_decision_on_what_has_moved_on_never_promotes(moved: str) -> None:
    world = compared()
    world.met("d1")
    world.met("d2")
    stale = decide(world.snapshot(), world.ids)
    row = {"deployment": world.deployment, "active": world.revision("d1"), "candidate": world.revision("d2")}[moved]
    world.commit_writes([Update(row.kind, row.uid, row.version, fields={"labels": {"moved": "on"}})], "person:p")
    with pytest.raises(StaleVersion):
        world.commit(stale.change)
    assert world.routed() == {"d1"}


def test_a_stop_that_comes_first_wins_over_the_promotion() -> None:
    world = compared()
    world.met("d1")
    world.met("d2")
    stale = decide(world.snapshot(), world.ids)
    world.command("stop")
    with pytest.raises(StaleVersion):
        world.commit(stale.change)
    world.settle()
    assert (world.state("d2"), world.deployment.status) == (RevisionState.CANCELLED, DeploymentStatus.STOPPED)


def test_a_cancel_that_is_seen_before_the_point_of_no_return_is_heeded() -> None:
    world = compared()
    world.met("d1")
    world.met("d2")
    world.commit(cancel(world.operation("apply"), world.now, actor="person:p").change)
    world.settle()
    assert (world.state("d2"), world.operation("apply").state) == (RevisionState.CANCELLED, OperationState.CANCELLED)
    assert (world.routed(), world.sizes()) == ({"d1"}, {"d1": 1})


def test_the_decision_that_promotes_is_kept_with_its_evidence_and_named_in_the_history() -> None:
    world = compared()
    world.compare()
    revision = world.revision("d2")
    last = revision.decisions[-1]
    assert (last["verdict"], last["baseline"]) == ("ACCEPT", world.revision("d1").uid)
    assert last["evidence"]["candidate"]["requests"] == 40
    assert revision.reason is not None
    assert revision.reason.params["decision"] == last["id"]
    assert [d["verdict"] for d in revision.decisions] == ["WAIT", "ACCEPT"]


def test_what_was_seen_after_it_was_accepted_is_in_the_decision_that_promotes() -> None:
    world = compared(**THREE)
    world.compare(requests=40)
    world.met("d1", requests=60)
    world.met("d2", requests=60)
    world.bring_up()
    assert world.state("d2") is RevisionState.ACTIVE
    kept = world.revision("d2").decisions
    assert [(d["verdict"], d["evidence"]["candidate"]["requests"]) for d in kept[-2:]] == [
        ("ACCEPT", 40),
        ("ACCEPT", 60),
    ]
    assert len({d["id"] for d in kept}) == len(kept)


def test_every_kept_decision_is_worked_out_again_from_its_own_inputs() -> None:
    world = compared(**THREE)
    world.compare(requests=40)
    world.bring_up()
    world.change("d3", **THREE)
    world.bring_up()
    world.compare(errors=30)
    kept = [d for r in world.of(Revision) for d in r.decisions if d["evidence"]["active"] is not None]
    assert {d["verdict"] for d in kept} == {"WAIT", "ACCEPT", "REJECT"}
    for decision in kept:
        stored = json.loads(json.dumps(dict(decision)))
        assert json.dumps(replay(stored), sort_keys=True) == json.dumps(stored, sort_keys=True)


def test_what_was_accepted_and_is_not_accepted_any_more_is_looked_at_again() -> None:
    world = compared(**THREE)
    world.compare()
    assert world.state("d2") is RevisionState.PROMOTING
    world.met("d1", requests=3)
    world.met("d2", requests=3)
    world.bring_up()
    assert (world.state("d2"), world.sizes()) == (RevisionState.EVALUATING, {"d1": 3, "d2": 1})
    assert "revision.decision_stale" in world.codes
    assert world.routed() == {"d1"}


def test_the_deployment_shows_the_revision_part_of_what_serves() -> None:
    world = compared(scaling={"idle_timeout": 5.0})
    assert world.deployment.spec["runtime"]["command"] == ["serve"]
    assert world.deployment.spec["scaling"]["idle_timeout"] == 5.0
    world.compare()
    assert world.deployment.spec["runtime"]["command"] == ["serve", "d2"]


# Without a baseline


def test_a_ready_candidate_beside_an_active_revision_with_nothing_ready_is_promoted_at_once() -> None:
    world = compared(replicas={"min": 1, "max": 1})
    world.exits(world.worker_of(world.replicas_of("d1")[0]), 137)
    world.settle()
    assert world.state("d2") is RevisionState.ACTIVE
    assert world.revision("d2").decisions[-1]["reasons"][0]["code"] == "no_baseline"


def test_a_switched_off_guard_accepts_what_is_ready() -> None:
    world = compared(rollout={"guard": {"enabled": False}})
    assert world.state("d2") is RevisionState.ACTIVE
    assert world.revision("d2").decisions[-1]["reasons"][0]["code"] == "guard_disabled"


def test_where_nothing_can_be_measured_readiness_decides() -> None:
    world = RolloutWorld().serve(model={})
    world.change(model={})
    world.bring_up()
    assert world.state("d2") is RevisionState.ACTIVE
    assert world.revision("d2").decisions[-1]["reasons"][0]["code"] == "guard_not_applicable"


# Draining


def test_the_old_revision_drains_until_nothing_of_it_is_in_flight_and_its_gateways_confirmed() -> None:
    world = compared()
    (old,) = world.replicas_of("d1")
    world.in_flight = {old.uid: 1}
    world.compare()
    assert (world.state("d1"), world.worker_of(old).state) == (RevisionState.DRAINING, "Running")
    world.in_flight, world.confirmed = {}, False
    world.settle()
    assert world.state("d1") is RevisionState.DRAINING
    world.confirmed = True
    world.settle()
    assert (world.state("d1"), world.worker_of(old).state) == (RevisionState.SUPERSEDED, "Stopping")


def test_a_request_that_never_ends_holds_the_old_revision_no_longer_than_its_drain_limit() -> None:
    world = compared(gateway={"drain": 25.0})
    world.in_flight = {world.replicas_of("d1")[0].uid: 1}
    world.compare()
    world.advance(24.0)
    assert world.settle().wake_at is not None
    assert world.state("d1") is RevisionState.DRAINING
    world.advance(1.0)
    world.settle()
    assert world.state("d1") is RevisionState.SUPERSEDED


# Applying


def test_the_same_digest_as_the_active_or_the_candidate_is_a_no_op() -> None:
    world = compared()
    document = {**spec(), "runtime": {"runner": "process", "command": ["serve", "d2"]}}
    candidate = world.apply(document, "d2")
    assert (candidate.change, candidate.answer["revision"]) == (None, world.revision("d2").uid)
    assert candidate.answer["operation"] == world.operation("apply").uid
    world.compare()
    active = world.apply(document, "d2")
    assert (active.change, active.answer["changed"]) == (None, False)
    assert len(world.of(Revision)) == 2


def test_a_newer_apply_cancels_the_older_candidate_and_its_operation() -> None:
    world = compared()
    world.change("d3")
    assert (world.state("d2"), world.state("d3")) == (RevisionState.CANCELLED, RevisionState.PROVISIONING)
    states = {o.revision: o.state for o in world.of(Operation) if o.operation == "apply"}
    assert states[world.revision("d2").uid] is OperationState.CANCELLED
    world.bring_up()
    world.compare()
    assert (world.sizes(), world.routed()) == ({"d3": 1}, {"d3"})


def test_applying_what_is_active_again_calls_the_candidate_off() -> None:
    world = compared()
    outcome = world.apply(spec(), "d1")
    world.settle()
    assert (outcome.answer["revision"], outcome.answer["changed"]) == (world.revision("d1").uid, True)
    assert (world.state("d2"), world.sizes()) == (RevisionState.CANCELLED, {"d1": 1})
    assert world.phase is Phase.ACTIVE


def test_another_apply_before_the_first_revision_serves_begins_anew() -> None:
    world = RolloutWorld()
    world.apply()
    world.settle()
    world.place()
    world.starts(world.worker)
    world.change("d2")
    assert (world.state("d1"), world.sizes()) == (RevisionState.CANCELLED, {"d2": 1})
    world.bring_up()
    assert (world.state("d2"), world.routed()) == (RevisionState.ACTIVE, {"d2"})
    assert world.deployment.spec["runtime"]["command"] == ["serve", "d2"]


def test_a_rejected_digest_may_be_tried_again_as_a_new_revision() -> None:
    world = compared()
    world.compare(errors=30)
    assert world.state("d2") is RevisionState.REJECTED
    world.change("d2")
    assert [r.state for r in world.of(Revision) if r.digest == "d2"] == ["rejected", "provisioning"]
    assert world.revision("d2").number == 3


def test_an_apply_that_makes_a_candidate_wakes_what_sleeps_and_keeps_it_awake() -> None:
    world = RolloutWorld(machines=2).serve(**SLEEPER)
    world.idle_s = 61.0
    world.advance(61.0)
    world.settle()
    world.stopped()
    assert world.phase is Phase.SCALED_TO_ZERO
    world.change(**SLEEPER)
    assert (world.deployment.status, world.codes.count("deploy.rollout")) == (DeploymentStatus.CREATED, 1)
    world.idle_s = 1000.0
    world.advance(1000.0)
    world.settle()
    assert world.deployment.hold is None
    with pytest.raises(commands.Conflict) as refused:
        world.command("pause")
    assert refused.value.code == "rollout_in_progress"


def test_an_apply_while_it_goes_to_sleep_calls_that_off() -> None:
    world = RolloutWorld(machines=2).serve(**SLEEPER)
    world.idle_s, world.confirmed = 61.0, False
    world.advance(61.0)
    world.settle()
    assert world.deployment.hold is not None
    world.change(**SLEEPER)
    assert (world.deployment.hold, world.deployment.status) == (None, DeploymentStatus.CREATED)


# In place


def replaced(size: int) -> RolloutWorld:
    """As many machines as replicas, each full with one."""
    parts = {"replicas": {"min": size, "max": size}, "rollout": {"capacity": "replace"}}
    world = RolloutWorld(machines=size, capacity={"cpu_milli": 1000}).serve(resources={"cpu": 1.0}, **parts)
    world.change(resources={"cpu": 1.0}, **parts)
    return world


def test_on_a_full_machine_the_old_one_stops_first_and_the_active_stays_active_without_a_replica() -> None:
    world = replaced(1)
    assert (world.sizes(), world.state("d1")) == ({"d2": 1}, RevisionState.ACTIVE)
    assert world.routed() == set()
    world.stopped()
    world.bring_up()
    assert (world.state("d2"), world.routed()) == (RevisionState.EVALUATING, set())
    last = world.revision("d2").decisions[-1]
    assert (last["verdict"], last["reasons"][0]["code"]) == ("WAIT", "insufficient_requests")
    assert "stopped to make room" in last["reasons"][0]["message"]
    world.met("d2", requests=19)
    world.settle()
    assert world.state("d2") is RevisionState.EVALUATING, "one request is missing"
    world.met("d2", requests=20)
    world.settle()
    assert world.state("d2") is RevisionState.EVALUATING, "it may fail as soon as it began"
    world.advance(10.0)
    world.settle()
    assert (world.state("d2"), world.routed()) == (RevisionState.ACTIVE, {"d2"})
    assert world.revision("d2").decisions[-1]["reasons"][0]["code"] == "within_policy"
    for kept in world.revision("d2").decisions:
        stored = json.loads(json.dumps(dict(kept)))
        assert json.dumps(replay(stored), sort_keys=True) == json.dumps(stored, sort_keys=True)


@pytest.mark.parametrize("failed", [3, 20])
def test_a_candidate_alone_whose_requests_all_fail_is_rejected_and_the_old_one_comes_back(failed: int) -> None:
    world = replaced(1)
    world.stopped()
    world.bring_up()
    world.met("d2", requests=failed, errors=failed)
    world.settle()
    assert world.state("d2") is RevisionState.REJECTED
    assert world.revision("d2").decisions[-1]["reasons"][0]["code"] == "error_rate_regression"
    world.stopped()
    world.bring_up()
    assert world.routed() == {"d1"}


def test_an_active_one_that_had_nothing_ready_by_itself_is_no_baseline_in_place_either() -> None:
    parts = {"replicas": {"min": 1, "max": 1}, "rollout": {"capacity": "replace"}}
    world = RolloutWorld(machines=1, capacity={"cpu_milli": 1000}).serve(resources={"cpu": 1.0}, **parts)
    world.exits(world.worker, 137)
    world.settle()
    world.change(resources={"cpu": 1.0}, **parts)
    world.stopped()
    world.bring_up()
    assert world.state("d2") is RevisionState.ACTIVE
    assert world.revision("d2").decisions[-1]["reasons"][0]["code"] == "no_baseline"


def test_a_bad_candidate_in_place_has_the_old_one_started_again_at_its_old_place_in_the_queue() -> None:
    world = replaced(1)
    first = world.of(Run)[0].queued_at
    world.advance(100.0)
    world.stopped()
    world.place()
    world.starts(world.worker)
    world.exits(world.worker, 1)
    world.settle()
    assert (world.state("d2"), world.sizes()) == (RevisionState.FAILED, {"d1": 1})
    assert world.of(Run)[-1].queued_at == first
    world.bring_up()
    assert world.routed() == {"d1"}


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_in_place_with_several_replicas_something_serves_throughout_and_none_is_too_many(size: int) -> None:
    world = replaced(size)
    for _ in range(6 * size):
        assert sum(world.sizes().values()) <= size
        assert world.routed() in ({"d1"}, {"d2"})
        world.stopped()
        world.bring_up()
        if rollout_of(world.deployment) and world.deployment.candidate_revision and world.state("d2") == "evaluating":
            world.compare()
    assert (world.sizes(), world.routed()) == ({"d2": size}, {"d2"})


# Crashes while it is compared


@pytest.mark.parametrize(("lived_s", "needed_s"), [(1.0, 10.0), (40.0, 40.0)])
def test_a_candidate_that_failed_while_it_was_compared_must_outlive_its_longest_life(
    lived_s: float, needed_s: float
) -> None:
    world = compared()
    world.met("d2", requests=40)
    before = rollout_of(world.deployment)
    world.advance(lived_s)
    world.exits(world.worker_of(world.replicas_of("d2")[0]), 1)
    world.settle()
    after = rollout_of(world.deployment)
    assert before is not None
    assert after is not None
    assert (after.evidence_id != before.evidence_id, dict(world.revision("d2").evidence)) == (True, {})
    world.bring_up()
    world.compare()
    assert (world.state("d2"), world.routed()) == (RevisionState.EVALUATING, {"d1"})
    world.advance(needed_s - 0.5)
    world.settle()
    assert world.state("d2") is RevisionState.EVALUATING
    world.advance(0.5)
    world.settle()
    assert (world.state("d2"), world.routed()) == (RevisionState.ACTIVE, {"d2"})


# What is kept


def test_a_revision_that_ended_says_when_nothing_of_it_is_left() -> None:
    world = compared()
    world.compare(errors=30)
    assert (world.state("d2"), world.revision("d2").capacity_gone) == (RevisionState.REJECTED, False)
    world.stopped()
    assert world.revision("d2").capacity_gone
    assert world.sizes() == {"d1": 1}


def test_what_ended_is_not_called_gone_while_its_machine_still_sees_something_of_it() -> None:
    world = compared()
    world.compare(errors=30)
    (replica,) = world.replicas_of("d2")
    worker = world.worker_of(replica)
    world.exits(worker, 137, gone=False)
    world.settle()
    assert (world.replicas_of("d2"), world.revision("d2").capacity_gone) == ([], False)
    world.report(worker, gone=True)
    world.settle()
    assert world.revision("d2").capacity_gone


def test_nothing_to_do_is_no_change_at_all() -> None:
    world = compared()
    assert world.step().change is None
    world.compare()
    world.stopped()
    assert world.step().change is None
