"""A person's word on a rollout: promote, reject, rollback; and what the guard orders by itself after a promotion."""

import pytest

from moorage.decide.serving.operation_commands import cancel
from moorage.decide.serving.rollout.record import rollout_of
from moorage.domain.errors import Conflict, NotFound
from moorage.domain.nouns import Operation, Replica
from moorage.domain.states import OperationState, Phase, RevisionState
from tests.rollout_world import RolloutWorld, spec

TWO = {"replicas": {"min": 2, "max": 2}}
THREE = {"replicas": {"min": 3, "max": 3}}
BY_HAND = {"rollout": {"auto": False}}


def compared(**parts: object) -> RolloutWorld:
    world = RolloutWorld(machines=3).serve(**parts)
    world.change(**parts)
    world.bring_up()
    return world


def promoted(**parts: object) -> RolloutWorld:
    world = RolloutWorld(machines=3).serve(**parts)
    world.promote("d2", **parts)
    assert world.active.digest == "d2"
    return world


# Promote


def test_a_person_promotes_without_the_guards_word_and_with_the_replicas_that_the_load_needs() -> None:
    world = compared(**TWO)
    outcome = world.order("promote")
    world.settle()
    assert (world.state("d2"), world.sizes(), world.routed()) == ("promoting", {"d1": 2, "d2": 2}, {"d1"})
    world.bring_up()
    assert (world.state("d2"), world.routed()) == (RevisionState.ACTIVE, {"d2"})
    operation = world.operation("promote")
    assert (operation.uid, operation.state) == (outcome.answer["operation"], OperationState.SUCCEEDED)
    verdict = dict(world.revision("d2").verdict or {})
    assert (verdict["word"], verdict["by"], verdict["text"]) == ("promote", "person:p", "because")


def test_a_promote_before_it_is_ready_waits_for_its_first_replica() -> None:
    world = RolloutWorld(machines=2).serve()
    world.change()
    world.order("promote")
    world.settle()
    assert world.operation("promote").state is OperationState.WAITING
    world.bring_up()
    assert world.state("d2") is RevisionState.ACTIVE


def test_auto_false_waits_for_a_person_and_the_deadline_does_not_run_meanwhile() -> None:
    world = compared(**BY_HAND)
    world.compare()
    assert world.state("d2") is RevisionState.EVALUATING
    assert "moor promote" in str(world.operation("apply").waiting_reason)
    world.advance(10_000.0)
    world.settle()
    assert world.state("d2") is RevisionState.EVALUATING
    world.order("promote")
    world.settle()
    assert world.state("d2") is RevisionState.ACTIVE


def test_once_it_is_not_accepted_any_more_the_deadline_runs_again() -> None:
    world = compared(**BY_HAND)
    world.compare()
    world.advance(10_000.0)
    world.met("d2", requests=3)
    world.settle()
    rollout = rollout_of(world.deployment)
    assert rollout is not None
    assert rollout.deadline == world.now + 1800.0


def test_a_cancelled_promote_gives_the_word_back_to_the_guard() -> None:
    world = compared(**TWO)
    world.order("promote")
    world.settle()
    world.commit(cancel(world.operation("promote"), world.now, actor="person:p").change)
    world.settle()
    world.bring_up()
    assert (world.state("d2"), world.routed()) == (RevisionState.EVALUATING, {"d1"})


def test_to_promote_what_is_active_is_a_no_op_and_twice_is_once() -> None:
    world = promoted()
    assert world.order("promote", revision="2").change is None
    world.change("d3")
    first = world.order("promote")
    again = world.order("promote", revision="3")
    assert (again.change, again.answer["operation"]) == (None, first.answer["operation"])


def test_a_word_on_one_revision_is_never_taken_for_another() -> None:
    world = compared()
    for word in ("1", world.revision("d1").name, world.revision("d1").uid):
        with pytest.raises(Conflict) as refused:
            world.order("reject", revision=word)
        assert refused.value.code == "not_the_candidate"
    with pytest.raises(NotFound):
        world.order("promote", revision="17")
    assert world.state("d2") is RevisionState.EVALUATING


def test_to_promote_with_no_candidate_is_refused_with_what_to_do() -> None:
    with pytest.raises(Conflict) as refused:
        RolloutWorld().serve().order("promote")
    assert (refused.value.code, bool(refused.value.remedy)) == ("no_rollout", True)


# Reject


def test_a_rejected_candidate_ends_at_once_and_says_by_whom_and_why() -> None:
    world = compared()
    world.order("reject", text="looks wrong")
    assert (world.state("d2"), world.deployment.candidate_revision) == (RevisionState.REJECTED, None)
    world.settle()
    revision = world.revision("d2")
    assert revision.reason is not None
    assert "person:p" in revision.reason.message
    assert "looks wrong" in revision.reason.message
    assert world.operation("reject").state is OperationState.SUCCEEDED
    assert world.operation("apply").state is OperationState.CANCELLED
    assert (world.sizes(), world.phase) == ({"d1": 1}, Phase.ACTIVE)


def test_a_reject_with_nothing_in_progress_is_a_no_op_that_says_so() -> None:
    world = RolloutWorld().serve()
    outcome = world.order("reject")
    assert (outcome.change, outcome.answer["changed"], outcome.answer["operation"]) == (None, False, None)
    world.settle()
    assert (world.sizes(), world.phase) == ({"d1": 1}, Phase.ACTIVE)


def test_the_reject_of_what_is_rejected_already_is_a_no_op() -> None:
    world = compared()
    world.order("reject")
    assert world.order("reject", revision="2").change is None


def test_the_next_revision_may_be_applied_while_the_rejected_one_is_still_withdrawn() -> None:
    world = compared(rollout={"strategy": "canary"})
    world.confirmed = False
    world.order("reject")
    world.settle()
    assert world.operation("reject").state is OperationState.WAITING
    world.change("d3", rollout={"strategy": "canary"})
    assert (world.state("d3"), world.operation("reject").state) == ("provisioning", OperationState.WAITING)
    world.confirmed = True
    world.settle()
    assert world.operation("reject").state is OperationState.SUCCEEDED


def test_a_reject_wins_over_the_promote_before_it() -> None:
    world = compared(**TWO)
    world.order("promote")
    world.settle()
    world.order("reject")
    world.settle()
    assert (world.state("d2"), world.operation("promote").state) == (RevisionState.REJECTED, OperationState.CANCELLED)


# Rollback


def test_a_rollback_starts_what_served_before_and_moves_traffic_only_at_capacity() -> None:
    world = promoted(**THREE)
    world.advance(400.0)
    world.settle()
    world.order("rollback")
    world.settle()
    assert (world.state("d1"), world.sizes()) == (RevisionState.PROVISIONING, {"d2": 3, "d1": 3})
    world.place()
    for worker in [world.worker_of(r) for r in world.replicas_of("d1")][:2]:
        world.starts(worker)
        world.ready(world.rows[worker.uid])  # type: ignore[arg-type]  # a worker stays one
    world.settle()
    assert world.routed() == {"d2"}
    world.bring_up()
    assert (world.routed(), world.state("d1"), world.operation("rollback").state) == ({"d1"}, "active", "succeeded")
    world.stopped()
    assert (world.sizes(), world.state("d2")) == ({"d1": 3}, RevisionState.SUPERSEDED)
    assert world.deployment.spec["runtime"]["command"] == ["serve"]
    why = world.of(Operation)[-1]
    assert why.annotations == {"why": "because"}


def test_a_rollback_while_all_of_the_old_one_still_drains_serves_from_it_at_once() -> None:
    world = compared(**TWO)
    world.order("promote")
    world.settle()
    world.in_flight = {r.uid: 1 for r in world.replicas_of("d1")}
    world.bring_up()
    assert world.state("d1") is RevisionState.DRAINING
    before = {r.uid for r in world.replicas_of("d1")}
    world.order("rollback")
    world.settle()
    assert (world.state("d1"), world.state("d2"), world.routed()) == ("active", "superseded", {"d1"})
    assert {r.uid for r in world.replicas_of("d1") if r.stopping is None} == before


def test_a_rollback_while_only_a_part_of_the_old_one_drains_waits_for_its_capacity() -> None:
    world = compared(**TWO)
    world.order("promote")
    world.settle()
    world.in_flight = {world.replicas_of("d1")[0].uid: 1}
    world.bring_up()
    world.order("rollback")
    world.settle()
    assert (world.state("d1"), world.routed()) == (RevisionState.DRAINING, {"d2"})
    world.in_flight = {}
    world.settle()
    world.bring_up()
    assert (world.state("d1"), world.routed()) == (RevisionState.ACTIVE, {"d1"})


def test_a_rollback_cancels_the_candidate_and_an_apply_meanwhile_is_refused() -> None:
    world = promoted()
    world.change("d3")
    operation = world.order("rollback").answer["operation"]
    world.settle()
    assert (world.state("d3"), world.operation("apply").state) == (RevisionState.CANCELLED, OperationState.CANCELLED)
    with pytest.raises(Conflict) as refused:
        world.change("d4")
    assert operation in refused.value.message
    world.bring_up()
    assert world.routed() == {"d1"}


def test_a_cancelled_rollback_leaves_the_active_one_as_it_is() -> None:
    world = promoted()
    world.order("rollback")
    world.settle()
    world.commit(cancel(world.operation("rollback"), world.now, actor="person:p").change)
    world.settle()
    assert (world.state("d1"), world.routed(), world.sizes()) == (RevisionState.CANCELLED, {"d2"}, {"d2": 1})
    with pytest.raises(Conflict) as refused:
        world.order("rollback")
    assert refused.value.code == "no_previous_revision"


def test_a_rollback_after_a_rollback_goes_further_back_and_never_swings() -> None:
    world = promoted()
    world.promote("d3")
    for expected in ("d2", "d1"):
        world.order("rollback")
        world.settle()
        world.bring_up()
        world.stopped()
        assert world.routed() == {expected}
        assert world.deployment.rollout is None


def test_what_never_served_cannot_be_gone_back_to() -> None:
    world = compared()
    world.order("reject")
    world.settle()
    with pytest.raises(Conflict) as refused:
        world.order("rollback", to="2")
    assert refused.value.code == "never_served"
    with pytest.raises(Conflict) as none:
        world.order("rollback")
    assert none.value.code == "no_previous_revision"


def test_a_rollback_that_cannot_be_had_ends_at_its_deadline() -> None:
    world = promoted()
    world.order("rollback")
    world.settle()
    world.advance(1801.0)
    world.settle()
    assert (world.state("d1"), world.operation("rollback").state) == (RevisionState.FAILED, OperationState.FAILED)
    assert (world.routed(), world.sizes()) == ({"d2"}, {"d2": 1})


# The window after a promotion


def in_window() -> RolloutWorld:
    """Promoted, the old one gone, with what clients met at it while the two were compared."""
    world = compared()
    world.met("d1", source="gw/1/x", requests=200)
    world.compare()
    world.stopped()
    assert world.active.digest == "d2"
    return world


def test_in_the_window_the_same_guard_sends_a_bad_one_back_by_itself() -> None:
    world = in_window()
    world.met("d2", source="gw/1/y", requests=200, errors=60)
    world.settle()
    operation = world.operation("rollback")
    assert (operation.actor, operation.revision) == ("the release guard", world.revision("d1").uid)
    assert world.routed() == {"d2"}
    world.bring_up()
    assert (world.routed(), world.state("d1")) == ({"d1"}, RevisionState.ACTIVE)
    decision = world.revision("d2").decisions[-1]
    assert (decision["verdict"], decision["reasons"][0]["code"]) == ("REJECT", "error_rate_regression")
    assert world.revision("d2").reason is not None


def test_in_the_window_a_promoted_one_that_crashes_and_leaves_nothing_is_sent_back() -> None:
    world = in_window()
    world.exits(world.worker_of(world.replicas_of("d2")[0]), 137)
    world.settle()
    assert world.operation("rollback").state in (OperationState.RUNNING, OperationState.WAITING)
    assert world.revision("d2").decisions[-1]["reasons"][0]["code"] == "candidate_not_ready"


def test_in_the_window_clients_are_measured_also_where_nothing_could_be_sent() -> None:
    parts = {**TWO, "model": {}}
    world = compared(**parts)
    assert world.state("d2") is RevisionState.PROMOTING
    world.met("d1", source="gw/1/x", requests=200)
    world.bring_up()
    assert world.state("d2") is RevisionState.ACTIVE
    world.met("d2", source="gw/1/y", requests=200, errors=60)
    world.settle()
    assert world.operation("rollback").revision == world.revision("d1").uid


def test_in_the_window_no_data_sends_nothing_back_and_after_it_nothing_does() -> None:
    world = in_window()
    world.advance(299.0)
    world.settle()
    assert rollout_of(world.deployment) is not None
    world.advance(1.0)
    world.settle()
    assert (world.deployment.rollout, world.revision("d1").evidence, world.revision("d2").evidence) == (None, {}, {})
    world.exits(world.worker_of(world.replicas_of("d2")[0]), 137)
    world.settle()
    assert not [o for o in world.of(Operation) if o.operation == "rollback"]


@pytest.mark.parametrize("rollout", [{"rollback_window": 0.0}, {"guard": {"enabled": False}}])
def test_without_a_window_or_a_guard_nothing_is_watched(rollout: dict[str, object]) -> None:
    world = compared(rollout=rollout)
    if world.deployment.candidate_revision:
        world.compare()
    assert (world.active.digest, world.deployment.rollout) == ("d2", None)


def test_the_window_ends_when_another_revision_is_applied() -> None:
    world = in_window()
    world.change("d3")
    rollout = rollout_of(world.deployment)
    assert rollout is not None
    assert (rollout.kind, rollout.candidate) == ("rollout", world.revision("d3").uid)


def test_the_window_ends_when_it_goes_to_sleep() -> None:
    world = in_window()
    world.command("pause")
    world.settle()
    assert (world.phase, world.deployment.rollout) == (Phase.SCALED_TO_ZERO, None)


# What ends everything


@pytest.mark.parametrize("command", ["stop", "delete"])
@pytest.mark.parametrize("when", ["candidate", "ready", "promoting", "rollback"])
def test_a_stop_or_delete_ends_every_rollout(command: str, when: str) -> None:
    world = RolloutWorld(machines=3).serve(**TWO)
    if when == "rollback":
        world.promote("d2", **TWO)
        world.order("rollback")
        world.settle()
    else:
        world.change(settle=when != "candidate", **TWO)
        if when in ("ready", "promoting"):
            world.bring_up()
        if when == "promoting":
            world.order("promote")
            world.settle()
    world.command(command)
    world.settle()
    assert (world.deployment.candidate_revision, world.deployment.rollout) == (None, None)
    assert all(r.stopping is not None for r in world.replicas)
    world.stopped()
    assert [o.state for o in world.of(Operation) if o.operation == command] == [OperationState.SUCCEEDED]
    others = {o.state for o in world.of(Operation) if o.operation != command}
    assert others <= {OperationState.SUCCEEDED, OperationState.CANCELLED}
    assert not [r for r in world.of(Replica) if r in world.replicas]


@pytest.mark.parametrize("what", ["promote", "reject", "rollback"])
def test_what_is_stopped_takes_no_word_on_a_rollout(what: str) -> None:
    world = promoted()
    world.command("stop")
    if what == "reject":
        assert world.order(what).change is None
        return
    with pytest.raises(Conflict):
        world.order(what)


def test_a_stopped_deployment_refuses_another_revision() -> None:
    world = promoted()
    world.command("stop")
    with pytest.raises(Conflict) as refused:
        world.apply({**spec(), "runtime": {"runner": "process", "command": ["x"]}}, "d9")
    assert refused.value.code == "deployment_stopped"


@pytest.mark.parametrize(
    ("ended_by", "advised"), [("delete", "wait until it is gone"), ("stop", "delete it"), ("pause", "wake it first")]
)
def test_a_rollback_of_one_that_is_not_served_advises_to_wake_only_what_sleeps(ended_by: str, advised: str) -> None:
    world = promoted()
    world.command(ended_by)
    if ended_by == "pause":
        world.settle()
    with pytest.raises(Conflict) as refused:
        world.order("rollback")
    assert str(refused.value.remedy).startswith(advised)


def test_a_rollback_ordered_while_it_goes_to_sleep_keeps_it_awake() -> None:
    world = promoted()
    world.confirmed = False
    world.command("pause")
    world.settle()
    assert world.deployment.hold is not None
    world.order("rollback")
    world.confirmed = True
    world.settle()
    assert (world.deployment.hold, world.state("d1")) == (None, RevisionState.PROVISIONING)


def test_a_wake_that_fails_while_another_revision_is_rolled_out_goes_on_trying() -> None:
    sleeper = {"replicas": {"min": 0, "max": 1, "initial": 1}, "scaling": {"idle_timeout": 60.0}}
    world = RolloutWorld(machines=3).serve(**sleeper)
    world.command("pause")
    world.settle()
    world.stopped()
    world.held = 1
    world.settle()
    world.change(**sleeper)
    world.held = 0
    for _ in range(2):  # the second failure of each waits before it is tried again, so that nothing of either lives
        world.place()
        for replica in (*world.replicas_of("d1"), *world.replicas_of("d2")):
            world.report(world.worker_of(replica), "Preparing:picked_up:prepare.started")
            away = {"error": "503", "permanent": False}
            world.report(world.worker_of(replica), "Failed:failed:image.pull_failed", params=away, gone=True)
        world.settle()
    assert (world.replicas, world.phase != Phase.SCALED_TO_ZERO) == ([], True)
    assert world.state("d2") is RevisionState.PROVISIONING
