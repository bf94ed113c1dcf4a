"""The main job: a model is served, crashes, sleeps, wakes, fails and goes, and what is said about it is true."""

import json
import os
import signal
import threading

import httpx
import pytest

from tests.acceptance.installation import PATIENCE_S, Installation, alive, until

pytestmark = pytest.mark.acceptance


def test_a_model_answers_whole_and_streamed_with_a_request_id(shared: Installation) -> None:
    shared.apply("plain")
    answer = shared.request("plain")
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"]
    assert answer.headers["X-Request-Id"]
    streamed = shared.request("plain", stream=True)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.text.rstrip().endswith("data: [DONE]")
    models = httpx.get(f"http://127.0.0.1:{shared.gateway}/v1/models").json()["data"]
    assert "plain" in [m["id"] for m in models]


def test_a_request_can_be_traced_to_the_replica_that_answered_it(shared: Installation) -> None:
    shared.apply("traced")
    request_id = shared.request("traced").headers["X-Request-Id"]
    seen = until(lambda: _found(shared, request_id), "the request's record")
    replica = shared.json("get", "deployment", "traced")
    assert seen["endpoint"] == "traced" or seen["endpoint"].endswith("/traced")
    assert seen["status"] == 200
    assert seen["revision"] == replica["active_revision"]


def _found(installation: Installation, request_id: str) -> dict[str, object] | None:
    done = installation.run("inspect", "request", request_id, "--output", "json")
    return dict(json.loads(done.stdout)) if done.returncode == 0 else None


def test_a_killed_server_is_replaced_and_history_says_why(shared: Installation) -> None:
    shared.apply("crashing")
    before = shared.server_pid("crashing")
    os.kill(before, signal.SIGKILL)
    after = until(lambda: shared.request("crashing").status_code == 200 and shared.server_pid("crashing"), "an answer")
    assert after != before
    events = shared.events("crashing")
    ended = next(e for e in events if e["reason"]["code"] == "exited")
    assert ended["reason"]["params"] == {"code": 137, "signal": 9}
    assert ended["to"] == "Failed"
    assert "replica.failed" in [e["reason"]["code"] for e in events]
    deployment = shared.deployment("crashing")
    assert (deployment["phase"], deployment["last_failure"]["fatal"]) == ("ACTIVE", False)
    assert deployment["last_failure"]["exit_code"] == 137


def test_applying_the_same_spec_twice_changes_nothing(shared: Installation) -> None:
    shared.apply("twice")
    version = shared.deployment("twice")["version"]
    shared.moor("apply", "-f", str(shared.spec("twice")))
    after = shared.deployment("twice")
    assert (after["version"], after["ready_replicas"]) == (version, 1)


def test_an_idle_model_sleeps_and_any_number_of_waiters_wake_it_once(shared: Installation) -> None:
    shared.apply("sleepy", replicas={"min": 0, "max": 1, "initial": 1}, scaling={"idle_timeout": "5s"})
    pid = shared.server_pid("sleepy")
    until(lambda: shared.phase("sleepy") == "SCALED_TO_ZERO", "it to sleep")
    until(lambda: not alive(pid), "its server to be gone")
    asleep = shared.deployment("sleepy")
    woken = shared.codes("sleepy").count("deploy.wake_request")  # by our first look, where that came too late
    assert (asleep["serving"], asleep["desired_replicas"], asleep["status"]) == (False, 0, "paused")

    answers: list[int] = []
    waiters = [threading.Thread(target=lambda: answers.append(shared.request("sleepy").status_code)) for _ in range(40)]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join(PATIENCE_S)
    assert answers == [200] * 40
    assert shared.codes("sleepy").count("deploy.wake_request") == woken + 1


def test_a_person_can_pause_and_a_request_wakes(shared: Installation) -> None:
    shared.apply("paused")
    shared.moor("pause", "paused")
    until(lambda: shared.phase("paused") == "SCALED_TO_ZERO", "the pause")
    assert "deploy.paused_by_person" in shared.codes("paused")
    assert shared.request("paused").status_code == 200


BROKEN = {
    "exits-at-once": (("--exit-after", "0", "--exit-code", "3"), 3),
    "wrong-model": (("--wrong-model", "another"), None),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_server_fails_for_good_and_wait_says_exactly_why(shared: Installation, name: str) -> None:
    options, exit_code = BROKEN[name]
    spec = shared.spec(name, *options)
    done = shared.run("apply", "-f", str(spec), "--wait")
    assert done.returncode == 1, done.stdout + done.stderr
    deployment = shared.deployment(name)
    assert (deployment["status"], deployment["phase"]) == ("failed", "DEPLOY_FAILED")
    failure = deployment["last_failure"]
    assert (failure["fatal"], failure["reason"]["class"]) == (True, "failed")
    assert failure["reason"]["message"] in done.stderr + done.stdout
    if exit_code is not None:
        assert failure["exit_code"] == exit_code
        assert str(exit_code) in done.stderr + done.stdout
    refused = shared.request(name)
    assert refused.status_code == 503
    assert failure["reason"]["message"] in refused.json()["error"]["message"]
    assert shared.run("wait", name).returncode == 1


def test_a_missing_binary_fails_with_its_name(shared: Installation) -> None:
    spec = shared.spec("missing", runtime={"command": ["/no/such/binary", "{port}"]})
    done = shared.run("apply", "-f", str(spec), "--wait")
    assert done.returncode == 1
    assert "/no/such/binary" in done.stdout + done.stderr
    assert shared.deployment("missing")["phase"] == "DEPLOY_FAILED"


def test_a_server_that_never_gets_ready_fails_the_second_time_for_good(shared: Installation) -> None:
    spec = shared.spec("never", "--delay-ready", "3600", runtime={"ready": {"timeout": "1s"}})
    done = shared.run("apply", "-f", str(spec), "--wait", "--timeout", "150s")
    assert done.returncode == 1, done.stdout + done.stderr
    deployment = shared.deployment("never")
    assert (deployment["status"], deployment["last_failure"]["fatal"]) == ("failed", True)
    assert [e["reason"]["code"] for e in shared.events("never")].count("replica.failed") == 2


def test_the_end_of_a_failed_servers_log_is_shown(shared: Installation) -> None:
    script = "import sys; print('loading weights'); print('no such tensor: blk.0', file=sys.stderr); sys.exit(4)"
    spec = shared.spec("talkative", runtime={"command": ["python3", "-c", script]})
    done = shared.run("apply", "-f", str(spec), "--wait")
    assert done.returncode == 1
    assert "no such tensor: blk.0" in done.stdout + done.stderr
    assert "no such tensor: blk.0" in shared.deployment("talkative")["last_failure"]["log"]


def test_two_replicas_serve_and_one_that_is_killed_is_made_up_for(shared: Installation) -> None:
    shared.apply("double", replicas={"min": 2, "max": 2})
    until(lambda: shared.deployment("double")["ready_replicas"] == 2, "both replicas")
    pid = shared.server_pid("double")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the kill")
    answers = [shared.request("double").status_code for _ in range(20)]
    assert answers == [200] * 20
    until(lambda: shared.deployment("double")["ready_replicas"] == 2, "the replacement")


def test_a_stop_ends_the_process_and_the_wait_for_it_succeeds(shared: Installation) -> None:
    shared.apply("stopped")
    pid = shared.server_pid("stopped")
    shared.moor("stop", "stopped")
    shared.moor("wait", "stopped", "--for", "stopped")
    assert not alive(pid)
    assert (shared.phase("stopped"), shared.deployment("stopped")["serving"]) == ("INACTIVE", False)
    assert shared.request("stopped").status_code == 503
    assert shared.run("wait", "stopped", "--for", "live").returncode == 1


def test_a_delete_proves_absence_keeps_history_and_frees_the_name(shared: Installation) -> None:
    shared.apply("deleted")
    pid = shared.server_pid("deleted")
    dry = shared.json("delete", "deleted", "--dry-run")
    assert {"Deployment", "Replica", "Worker"} <= {t["kind"] for t in dry["touches"]}
    assert alive(pid)
    shared.moor("delete", "deleted", "--yes", "--wait")
    assert not alive(pid)
    assert shared.run("get", "deployment", "deleted").returncode == 4
    assert shared.request("deleted").status_code == 404
    assert "deploy.deleted" in shared.codes("deleted")
    shared.apply("deleted")
    assert shared.request("deleted").status_code == 200


def test_logs_show_what_the_server_wrote(shared: Installation) -> None:
    script = (
        "import http.server, json, sys; print('hello from the model', flush=True)\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        b = json.dumps({'status': 'ok'}).encode(); self.send_response(200)\n"
        "        self.send_header('Content-Length', str(len(b))); self.end_headers(); self.wfile.write(b)\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), H).serve_forever()"
    )
    spec = shared.spec("logged", runtime={"command": ["python3", "-c", script, "{port}"]}, model={"id": None})
    shared.moor("apply", "-f", str(spec), "--wait", "--for", "live")
    assert "hello from the model" in shared.moor("logs", "logged")


def test_work_that_fits_no_machine_waits_and_why_says_so_with_a_change_that_helps(shared: Installation) -> None:
    spec = shared.spec("huge", resources={"cpu": "10m", "memory": "900TiB"})
    shared.moor("apply", "-f", str(spec))
    until(lambda: "place." in json.dumps(shared.json("why", "huge")["reason"]), "the scheduler's word")
    why = shared.json("why", "huge")
    assert why["reason"]["code"] == "place.never_fits"
    assert why["changes"]
    assert all(c["verified"] for c in why["changes"])
    shared.moor("delete", "huge", "--yes", "--wait")
