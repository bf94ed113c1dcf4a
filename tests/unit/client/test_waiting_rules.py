"""Every phase against every goal, with the expected answers written out by hand."""

import pytest

from moorage.client.waiting import Beside, Bound, Done, Failed, KeepPolling, judge, judge_operation, judge_run

KEEP, DONE, FAIL = KeepPolling, Done, Failed

# At rest: the bound revision is the active one, and a replica is ready where the phase can have one.
AT_REST = {
    # phase: (accepted, ready, live, promoted, stopped)
    "ACTIVE": (DONE, DONE, DONE, DONE, KEEP),
    "SCALED_TO_ZERO": (DONE, DONE, KEEP, DONE, KEEP),
    "UPDATING": (DONE, KEEP, DONE, DONE, KEEP),
    "BUILDING": (DONE, KEEP, KEEP, KEEP, KEEP),
    "LOADING_MODEL": (DONE, KEEP, KEEP, KEEP, KEEP),
    "DEPLOYING": (DONE, KEEP, KEEP, KEEP, KEEP),
    "WAKING_UP": (DONE, KEEP, KEEP, KEEP, KEEP),
    "DEACTIVATING": (DONE, KEEP, KEEP, KEEP, KEEP),
    "UNHEALTHY": (DONE, FAIL, FAIL, FAIL, KEEP),
    "BUILD_FAILED": (DONE, FAIL, FAIL, FAIL, DONE),
    "BUILD_STOPPED": (DONE, FAIL, FAIL, FAIL, DONE),
    "DEPLOY_FAILED": (DONE, FAIL, FAIL, FAIL, DONE),
    "FAILED": (DONE, FAIL, FAIL, FAIL, DONE),
    "INACTIVE": (DONE, FAIL, FAIL, FAIL, DONE),
    "A_WORD_OF_A_LATER_SERVER": (DONE, KEEP, KEEP, KEEP, KEEP),
    "active": (DONE, KEEP, KEEP, KEEP, KEEP),
    "": (DONE, KEEP, KEEP, KEEP, KEEP),
}
GOALS = ("accepted", "ready", "live", "promoted", "stopped")
WITH_A_READY_REPLICA = {"ACTIVE", "UPDATING"}

# While a candidate (the bound revision) is on its way beside an active one that serves or sleeps.
PROMOTING = {
    "ACTIVE": (DONE, KEEP, KEEP, KEEP, KEEP),
    "SCALED_TO_ZERO": (DONE, KEEP, KEEP, KEEP, KEEP),
    "UPDATING": (DONE, KEEP, KEEP, KEEP, KEEP),
    "BUILDING": (DONE, KEEP, KEEP, KEEP, KEEP),
    "LOADING_MODEL": (DONE, KEEP, KEEP, KEEP, KEEP),
    "DEPLOYING": (DONE, KEEP, KEEP, KEEP, KEEP),
    "WAKING_UP": (DONE, KEEP, KEEP, KEEP, KEEP),
    "DEACTIVATING": (DONE, KEEP, KEEP, KEEP, KEEP),
    "UNHEALTHY": (DONE, KEEP, KEEP, KEEP, KEEP),
    "BUILD_FAILED": (DONE, FAIL, FAIL, FAIL, DONE),
    "BUILD_STOPPED": (DONE, FAIL, FAIL, FAIL, DONE),
    "DEPLOY_FAILED": (DONE, FAIL, FAIL, FAIL, DONE),
    "FAILED": (DONE, FAIL, FAIL, FAIL, DONE),
    "INACTIVE": (DONE, FAIL, FAIL, FAIL, DONE),
    "A_WORD_OF_A_LATER_SERVER": (DONE, KEEP, KEEP, KEEP, KEEP),
}


def shown(phase, **fields):
    ready = int(phase in WITH_A_READY_REPLICA)
    base = {
        "kind": "Deployment",
        "id": "dep-1",
        "name": "gemma",
        "phase": phase,
        "spec": {"replicas": {"min": 1, "max": 1, "initial": 1}},
        "ready_replicas": ready,
        "serving": ready > 0,
        "desired_replicas": 0 if phase == "SCALED_TO_ZERO" else 1,
        "initial_scale_reached": True,
        "promotion_in_progress": False,
        "active_revision": "rev-1",
        "candidate_revision": None,
    }
    return {**base, **fields}


def cases(table):
    return [(phase, goal, want) for phase, row in table.items() for goal, want in zip(GOALS, row, strict=True)]


@pytest.mark.parametrize(("phase", "goal", "want"), cases(AT_REST))
def test_each_phase_at_rest_ends_or_continues_each_wait_as_written(phase, goal, want):
    verdict = judge(goal, shown(phase), Bound("rev-1", "op-1", "dep-1"))
    assert type(verdict) is want, verdict


@pytest.mark.parametrize(("phase", "goal", "want"), cases(AT_REST))
def test_a_wait_that_is_bound_to_nothing_is_judged_alike_at_rest(phase, goal, want):
    assert type(judge(goal, shown(phase))) is want


@pytest.mark.parametrize(("phase", "goal", "want"), cases(PROMOTING))
def test_while_a_promotion_runs_only_its_own_end_or_a_failed_word_ends_the_wait(phase, goal, want):
    during = shown(phase, promotion_in_progress=True, candidate_revision="rev-2")
    verdict = judge(goal, during, Bound("rev-2", "op-2", "dep-1"), Beside({"id": "rev-2", "state": "provisioning"}))
    assert type(verdict) is want, verdict


@pytest.mark.parametrize("state", ["rejected", "failed", "cancelled"])
@pytest.mark.parametrize("goal", ["ready", "live", "promoted"])
@pytest.mark.parametrize("phase", [*AT_REST])
def test_a_bound_revision_that_ended_fails_the_wait_with_its_reason_whatever_the_phase(state, goal, phase):
    reason = {"code": f"revision.{state}", "message": f"because it was {state}"}
    beside = Beside({"id": "rev-2", "number": 2, "state": state, "reason": reason})
    verdict = judge(goal, shown(phase), Bound("rev-2", None, "dep-1"), beside)
    assert isinstance(verdict, Failed)
    assert verdict.reason == reason
    assert verdict.why == f"revision 2 ended {state}"


@pytest.mark.parametrize("state", ["candidate", "provisioning", "evaluating", "promoting", "draining", "a_later_word"])
@pytest.mark.parametrize("goal", ["ready", "live", "promoted"])
def test_a_bound_revision_that_has_not_ended_is_not_taken_for_the_one_that_serves(state, goal):
    verdict = judge(goal, shown("ACTIVE"), Bound("rev-2", None, "dep-1"), Beside({"id": "rev-2", "state": state}))
    assert isinstance(verdict, KeepPolling)


@pytest.mark.parametrize("state", ["failed", "cancelled", "needs_attention"])
def test_a_bound_operation_that_ended_badly_fails_the_wait_with_its_error(state):
    error = {"code": "x", "message": "the disk is full"}
    beside = Beside(None, {"operation": "apply", "state": state, "error": error})
    verdict = judge("ready", shown("DEPLOYING"), Bound("rev-1", "op-1", "dep-1"), beside)
    assert verdict == Failed(f"the apply ended {state}", error)


@pytest.mark.parametrize("phase", ["ACTIVE", "SCALED_TO_ZERO"])
def test_zero_replicas_with_a_minimum_that_was_never_reached_is_not_ready(phase):
    never = shown(phase, ready_replicas=0, serving=False, initial_scale_reached=False)
    assert isinstance(judge("ready", never), KeepPolling)
    rests = {**never, "spec": {"replicas": {"min": 0, "max": 1, "initial": 0}}}
    assert isinstance(judge("ready", rests), Done)


def test_a_success_at_zero_says_that_nothing_serves_and_that_nothing_is_wanted():
    assert judge("ready", shown("SCALED_TO_ZERO")) == Done(serving=False, desired=0)
    assert judge("ready", shown("ACTIVE", desired_replicas=2)) == Done(serving=True, desired=2)


def test_live_fails_at_once_where_no_replica_may_ever_run():
    none = shown("SCALED_TO_ZERO", spec={"replicas": {"min": 0, "max": 0, "initial": 0}})
    assert isinstance(judge("live", none), Failed)


def test_live_needs_a_ready_replica_of_the_bound_revision():
    assert isinstance(judge("live", shown("ACTIVE", ready_replicas=0, serving=False)), KeepPolling)
    assert isinstance(judge("live", shown("UPDATING", ready_replicas=1)), Done)
    assert isinstance(judge("live", shown("ACTIVE"), Bound("rev-2", None, "dep-1")), KeepPolling)


def test_a_first_revision_that_starts_asleep_is_ready_asleep():
    asleep = shown("SCALED_TO_ZERO", active_revision=None, candidate_revision="rev-1", initial_scale_reached=False)
    asleep["spec"] = {"replicas": {"min": 0, "max": 1, "initial": 0}}
    assert judge("ready", asleep, Bound("rev-1", "op-1", "dep-1")) == Done(serving=False, desired=0)


def test_promoted_with_nothing_ready_goes_on_unless_nothing_is_wanted():
    bound = Bound("rev-1", "op-1", "dep-1")
    assert isinstance(judge("promoted", shown("ACTIVE", serving=False, ready_replicas=0), bound), KeepPolling)
    asleep = judge("promoted", shown("SCALED_TO_ZERO"), bound)
    assert asleep == Done(serving=False, desired=0)


def test_promoted_without_a_bound_revision_waits_for_the_candidate_there_is():
    assert isinstance(judge("promoted", shown("UPDATING", candidate_revision="rev-2")), KeepPolling)
    assert isinstance(judge("promoted", shown("DEPLOYING", active_revision=None)), KeepPolling)
    assert isinstance(judge("promoted", shown("ACTIVE")), Done)


def test_a_tombstone_satisfies_stopped_and_fails_every_other_wait():
    gone = {"id": "dep-1", "deleted": True, "reason": {"code": "deploy.deleted", "message": "deleted"}}
    assert judge("stopped", gone, Bound(deployment="dep-1")) == Done(serving=False, desired=0)
    for goal in ("ready", "live", "promoted"):
        assert isinstance(judge(goal, gone, Bound(deployment="dep-1")), Failed)


def test_a_namesake_made_after_a_delete_is_never_taken_for_the_one_waited_for():
    namesake = shown("ACTIVE", id="dep-2")
    assert isinstance(judge("ready", namesake, Bound(deployment="dep-1")), Failed)
    assert isinstance(judge("stopped", namesake, Bound(deployment="dep-1")), Done)


def test_what_a_person_stopped_is_not_blamed_on_an_older_crash():
    stopped = shown(
        "INACTIVE",
        reason={"code": "deploy.stopped", "message": "stopped by admin"},
        last_failure={"reason": {"code": "exited", "message": "exited with code 1"}, "exit_code": 1, "log": "boom"},
    )
    verdict = judge("ready", stopped)
    assert verdict == Failed("is INACTIVE", stopped["reason"], by_failure=False)


def test_a_server_that_says_only_the_phase_is_judged_by_the_phase():
    bound = Bound("rev-1", "op-1", "dep-1")
    assert isinstance(judge("ready", {"phase": "ACTIVE"}, bound), Done)
    assert isinstance(judge("ready", {"phase": "SCALED_TO_ZERO"}, bound), Done)
    assert isinstance(judge("live", {"phase": "ACTIVE"}, bound), Done)
    assert isinstance(judge("live", {"phase": "DEPLOYING"}, bound), KeepPolling)


@pytest.mark.parametrize(
    ("state", "completed", "stopped", "running"),
    [
        ("Pending", KEEP, KEEP, KEEP),
        ("Starting", KEEP, KEEP, KEEP),
        ("Running", KEEP, KEEP, DONE),
        ("Completed", DONE, DONE, DONE),
        ("Failed", FAIL, DONE, FAIL),
        ("Cancelled", FAIL, DONE, FAIL),
        ("A_later_word", KEEP, KEEP, KEEP),
    ],
)
def test_a_run_completes_only_by_completing(state, completed, stopped, running):
    assert type(judge_run("completed", {"state": state})) is completed
    assert type(judge_run("stopped", {"state": state})) is stopped
    assert type(judge_run("running", {"state": state})) is running
    assert type(judge_run("deleted", {"state": state})) is KEEP


def test_a_deleted_run_is_stopped_and_deleted_and_will_never_complete():
    tombstone = {"state": "Running", "deleted": True}
    assert type(judge_run("stopped", tombstone)) is DONE
    assert type(judge_run("deleted", tombstone)) is DONE
    assert type(judge_run("completed", tombstone)) is FAIL
    assert type(judge_run("running", tombstone)) is FAIL


@pytest.mark.parametrize(
    ("state", "want"),
    [
        ("pending", KEEP),
        ("leased", KEEP),
        ("running", KEEP),
        ("waiting", KEEP),
        ("cancelling", KEEP),
        ("succeeded", DONE),
        ("failed", FAIL),
        ("cancelled", FAIL),
        ("needs_attention", FAIL),
        ("a_later_word", KEEP),
    ],
)
def test_an_operation_is_done_only_when_it_succeeded(state, want):
    assert type(judge_operation({"operation": "delete", "state": state})) is want


@pytest.mark.parametrize("bound", [None, Bound("rev-1", "op-1", "dep-1")])
def test_zero_while_a_promotion_is_on_its_way_is_not_ready_whoever_asks(bound):
    during = shown("SCALED_TO_ZERO", promotion_in_progress=True, candidate_revision="rev-2")
    assert isinstance(judge("ready", during, bound), KeepPolling)


def test_a_bound_revision_that_a_later_one_replaced_fails_the_wait_and_says_so():
    beside = Beside({"id": "rev-2", "number": 2, "state": "superseded"})
    verdict = judge("promoted", shown("ACTIVE", active_revision="rev-3"), Bound("rev-2", None, "dep-1"), beside)
    assert verdict == Failed("revision 2 was replaced by a later one")
