"""Waits against a scripted server and a clock that moves only when somebody waits."""

import httpx
import pytest
from scripted_server import FakeTime, Script, client_of, deployment

from moorage.client.watching import INTERVAL_S, LAST_LOOK_S, POLL_LIMIT_S
from moorage.domain.errors import InvalidSpec, NotFound, Unauthorized, WaitFailed, WaitTimeout

SPEC = {"name": "gemma", "runtime": {"command": ["server"]}}


def promoting(phase, **fields):
    return deployment(phase, promotion_in_progress=True, active_revision="rev-1", candidate_revision="rev-2", **fields)


def test_a_new_deployment_that_passes_through_zero_while_promoting_is_ready_only_when_it_is_active():
    script = Script(
        promoting("BUILDING"),
        promoting("DEPLOYING"),
        promoting("SCALED_TO_ZERO"),
        promoting("WAKING_UP"),
        deployment("ACTIVE"),
    )
    clock = FakeTime()
    seen = []
    applied = client_of(script, clock).deployments.apply(SPEC)
    outcome = applied.wait("ready", on_status=lambda read: seen.append(read["phase"]))
    assert seen == ["BUILDING", "DEPLOYING", "SCALED_TO_ZERO", "WAKING_UP", "ACTIVE"]
    assert (outcome.serving, outcome.desired) == (True, 1)
    assert clock.slept == [INTERVAL_S] * 4


def test_wait_for_active_is_the_same_wait():
    script = Script(promoting("SCALED_TO_ZERO"), deployment("ACTIVE"))
    assert client_of(script).deployments.apply(SPEC).wait_for_active(timeout=60).serving
    assert script.taken == 2


def test_a_deployment_that_rests_at_zero_is_ready_and_says_that_it_does_not_serve():
    outcome = client_of(Script(deployment("SCALED_TO_ZERO"))).deployments.wait("gemma", "ready")
    assert str(outcome) == "ready (serving: false, desired: 0)"


def test_the_old_revision_serving_does_not_satisfy_the_wait_for_a_new_one():
    old = deployment("ACTIVE", active_revision="rev-1", candidate_revision="rev-2", promotion_in_progress=False)
    script = Script(old, old, deployment("ACTIVE"))
    client_of(script).deployments.apply(SPEC).wait("ready")
    assert script.taken == 3


def test_a_rejected_revision_fails_the_wait_though_the_deployment_is_active():
    rejected = {
        "id": "rev-2",
        "number": 2,
        "state": "rejected",
        "reason": {"code": "revision.rejected", "message": "its error rate rose from 0 to 0.2"},
    }
    script = Script(deployment("ACTIVE", active_revision="rev-1"), revision=rejected)
    with pytest.raises(WaitFailed, match="revision 2 ended rejected: its error rate rose"):
        client_of(script).deployments.apply(SPEC).wait("ready")


def test_a_server_that_exits_at_start_fails_the_wait_with_its_exit_code_reason_and_log():
    failure = {
        "reason": {"code": "container_init_failed", "message": "the server exited with code 1 before it was ready"},
        "exit_code": 1,
        "log": "loading\nImportError: no module named torch",
    }
    script = Script(deployment("DEPLOYING", active_revision=None), deployment("DEPLOY_FAILED", last_failure=failure))
    clock = FakeTime()
    with pytest.raises(WaitFailed) as caught:
        client_of(script, clock).deployments.wait("gemma", "live", timeout_s=600)
    error = caught.value
    assert error.exit_code == 1
    assert error.reason == failure["reason"]
    assert error.log == failure["log"]
    assert error.last["phase"] == "DEPLOY_FAILED"
    assert "exited with code 1 before it was ready" in error.message
    assert "ImportError: no module named torch" in error.message
    assert "moor why gemma" in error.remedy
    assert clock.now < 1000 + 600


def test_unknown_words_keep_polling_until_the_time_out():
    clock = FakeTime()
    with pytest.raises(WaitTimeout) as caught:
        client_of(Script(deployment("RESHARDING")), clock).deployments.wait("gemma", "ready", timeout_s=10)
    assert caught.value.last["phase"] == "RESHARDING"
    assert "RESHARDING" in caught.value.message
    assert clock.now == 1010


def test_an_unreachable_server_is_asked_until_the_time_out_and_neither_shorter_nor_longer():
    script = Script(httpx.ConnectError("refused"))
    clock = FakeTime()
    with pytest.raises(WaitTimeout, match="never reached; no control plane answers") as caught:
        client_of(script, clock).deployments.wait("gemma", "ready", timeout_s=30)
    assert clock.now == 1030
    assert script.taken == 31
    assert caught.value.last == {}


def test_a_server_that_comes_back_is_found_again():
    script = Script(deployment("DEPLOYING"), httpx.ConnectError("refused"), 503, 500, deployment("ACTIVE"))
    assert client_of(script).deployments.wait("gemma", "ready").serving


def test_a_server_that_takes_the_connection_and_says_nothing_costs_no_more_than_the_limit_of_one_read():
    clock = FakeTime()
    limits = []

    def silent(request):
        limit = request.extensions["timeout"]["read"]
        limits.append(limit)
        clock.now += limit
        raise httpx.ReadTimeout("silence", request=request)

    with pytest.raises(WaitTimeout):
        client_of(Script(silent), clock).deployments.wait("gemma", "ready", timeout_s=25)
    assert max(limits) == POLL_LIMIT_S
    assert clock.now <= 1025 + LAST_LOOK_S


def test_a_status_read_in_time_counts_though_its_answer_arrives_at_the_deadline():
    clock = FakeTime()

    def slow(request):
        clock.now = 1010.2
        return deployment("ACTIVE")

    script = Script(deployment("DEPLOYING"), slow)
    assert client_of(script, clock).deployments.wait("gemma", "ready", timeout_s=10).serving


def test_the_deadline_itself_is_looked_at_once_more():
    clock = FakeTime()

    def by_time(request):
        return deployment("ACTIVE" if clock.now >= 1002.5 else "DEPLOYING")

    assert client_of(Script(by_time), clock).deployments.wait("gemma", "ready", timeout_s=2.5).serving
    assert clock.now == 1002.5


def test_a_failure_seen_in_the_last_look_is_a_failure_and_not_a_time_out():
    script = Script(deployment("DEPLOYING"), deployment("FAILED"))
    with pytest.raises(WaitFailed):
        client_of(script).deployments.wait("gemma", "ready", timeout_s=1)


def test_waiting_for_a_name_that_never_was_fails_at_once():
    missing = httpx.Response(404, json={"code": "not_found", "message": "there is no deployment default/gemma"})
    clock = FakeTime()
    with pytest.raises(NotFound):
        client_of(Script(missing), clock).deployments.wait("gemma", "ready")
    assert clock.now == 1000


def test_a_deployment_deleted_meanwhile_satisfies_stopped_and_fails_ready():
    def gone(request):
        if request.url.params.get("deleted") == "true":
            return httpx.Response(200, json={"id": "dep-1", "deleted": True, "state": "stopped"})
        return httpx.Response(404, json={"code": "not_found", "message": "there is no deployment default/gemma"})

    assert not client_of(Script(deployment("DEACTIVATING"), gone)).deployments.wait("gemma", "stopped").serving
    with pytest.raises(WaitFailed, match="it was deleted"):
        client_of(Script(deployment("DEPLOYING"), gone)).deployments.wait("gemma", "ready")


def test_stopped_passes_over_the_words_that_are_only_on_their_way():
    script = Script(deployment("UNHEALTHY"), deployment("DEACTIVATING"), deployment("INACTIVE"))
    client_of(script).deployments.wait("gemma", "stopped")
    assert script.taken == 3


def test_wrong_credentials_end_the_wait_at_once():
    denied = httpx.Response(401, json={"code": "unauthorized", "message": "the token is not known"})
    with pytest.raises(Unauthorized):
        client_of(Script(denied)).deployments.wait("gemma", "ready")


def test_a_goal_that_a_deployment_cannot_have_is_refused_with_those_it_can():
    with pytest.raises(InvalidSpec) as caught:
        client_of(Script(deployment("ACTIVE"))).deployments.wait("gemma", "completed")
    assert "accepted, live, promoted, ready, stopped" in caught.value.remedy


def test_ctrl_c_ends_the_wait_and_sends_nothing():
    asked = []

    def interrupted(request):
        asked.append(request.method)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client_of(Script(interrupted)).deployments.wait("gemma", "ready")
    assert asked == ["GET"]


def test_a_run_is_waited_for_until_it_completed_and_its_failure_is_told():
    def handler(request):
        return httpx.Response(
            200, json={"state": "Failed", "exit_code": 3, "reason": {"code": "exited", "message": "exited with code 3"}}
        )

    with pytest.raises(WaitFailed, match="ended Failed: exited with code 3; exit code 3"):
        client_of(handler).runs.wait("train")


def test_a_wait_for_a_run_stays_with_the_run_that_its_name_meant_at_first():
    paths = []

    def handler(request):
        paths.append(request.url.path)
        return httpx.Response(200, json={"id": "run-7", "state": "Running" if len(paths) < 3 else "Completed"})

    client_of(handler).runs.wait("train")
    assert [p.rsplit("/", 1)[1] for p in paths] == ["train", "run-7", "run-7"]


def test_a_run_that_is_removed_while_it_is_waited_for_was_deleted():
    missing = httpx.Response(404, json={"code": "not_found", "message": "there is no run default/run-7"})
    looks = [{"id": "run-7", "state": "Running", "deleting": True}, missing]
    assert client_of(Script(*looks)).runs.wait("train", "deleted").last == {"deleted": True}
    with pytest.raises(WaitFailed, match="it was deleted"):
        client_of(Script(*looks)).runs.wait("train")
    with pytest.raises(NotFound):
        client_of(Script(missing)).runs.wait("train")


def test_an_operation_that_needs_a_person_ends_the_wait_for_it():
    def handler(request):
        reason = {"code": "op.needs_attention", "message": "two processes answer to its name"}
        return httpx.Response(200, json={"operation": "delete", "state": "needs_attention", "waiting_reason": reason})

    with pytest.raises(WaitFailed, match="delete ended needs_attention: two processes"):
        client_of(handler).operations.wait("op-9")


def test_the_look_at_the_deadline_has_time_to_be_answered():
    limits = []

    def starting(request):
        limits.append(request.extensions["timeout"]["read"])
        return deployment("DEPLOYING")

    with pytest.raises(WaitTimeout):
        client_of(Script(starting)).deployments.wait("gemma", "ready", timeout_s=2)
    assert limits == [2.0, 1.0, LAST_LOOK_S]


def test_a_deployment_whose_tombstone_is_gone_as_well_was_deleted_all_the_same():
    missing = httpx.Response(404, json={"code": "not_found", "message": "there is no deployment default/gemma"})
    script = Script(deployment("DEACTIVATING"), missing)
    assert not client_of(script).deployments.wait("gemma", "stopped").serving


def test_a_failed_revision_is_told_with_the_state_that_its_deployment_ended_in():
    """The revision is read after the deployment and ends in one change with it: the deployment is looked at again."""
    failed = {"id": "rev-2", "number": 1, "state": "failed", "reason": {"code": "revision.failed", "message": "x"}}
    before = deployment("LOADING_MODEL", active_revision=None, candidate_revision="rev-2")
    failure = {"reason": {"code": "exited", "message": "Exited with code 3"}, "exit_code": 3, "log": "boom"}
    after = deployment("DEPLOY_FAILED", active_revision=None, last_failure=failure)
    script = Script(before, after, revision=failed)
    with pytest.raises(WaitFailed, match="revision 1 ended failed") as caught:
        client_of(script).deployments.apply(SPEC).wait("live")
    assert caught.value.last["phase"] == "DEPLOY_FAILED"
    assert "exit code 3" in caught.value.message


def test_a_time_out_says_what_the_server_answered_last():
    why = {"code": "deploy.unready", "message": "0 of 1 replicas ready: it answers /health with status 503"}
    with pytest.raises(WaitTimeout, match="0 of 1 replicas ready: it answers /health with status 503"):
        client_of(Script(deployment("LOADING_MODEL", reason=why))).deployments.wait("gemma", "live", timeout_s=2)


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("running", "look further with `moor operations get op-9`; wait on with `moor operations watch op-9`"),
        ("failed", "look further with `moor operations get op-9`"),
    ],
)
def test_a_wait_for_an_operation_that_ends_badly_advises_the_commands_that_know_operations(state: str, advice: str):
    found = httpx.Response(200, json={"kind": "Operation", "operation": "adopt", "state": state})
    with pytest.raises((WaitTimeout, WaitFailed)) as caught:
        client_of(lambda request: found).operations.wait("op-9", timeout_s=8)
    assert caught.value.remedy == advice


def test_a_wait_for_a_deployment_that_times_out_advises_the_wait_for_its_goal():
    with pytest.raises(WaitTimeout) as caught:
        client_of(Script(deployment("DEPLOYING"))).deployments.wait("gemma", "ready", timeout_s=8)
    assert str(caught.value.remedy).endswith("wait on with `moor wait gemma --for ready`")
