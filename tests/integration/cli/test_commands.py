"""Commands against an API of canned answers: what is printed, what is sent, and the exit code."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from stub_api import StubApi

from moorage.cli.main import main

SPEC = """\
kind: Deployment
name: {name}
model: {{id: m}}
runtime: {{command: [serve, --port, "{{port}}"]}}
"""


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "gemma.yaml"
    path.write_text(SPEC.format(name="gemma"))
    return path


def accept(api: StubApi, name: str) -> None:
    answer = {"deployment": api.deployment(name), "revision": "rev-1", "operation": "op-1", "changed": True}
    api.answers[f"PUT /namespaces/default/deployments/{name}"] = (200, answer)


def test_json_is_the_list_of_objects_exactly(api: StubApi, capsys: pytest.CaptureFixture[str]):
    items = [api.deployment("gemma"), api.deployment("llama", phase="FAILED", unknown_field=[1])]
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": items, "next": None})
    assert main(["ls", "-o", "json"], api.env) == 0
    assert json.loads(capsys.readouterr().out) == items


def test_a_list_shows_phase_readiness_and_reason(api: StubApi, capsys: pytest.CaptureFixture[str]):
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": [api.deployment("gemma")], "next": None})
    assert main(["ls"], api.env) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "PHASE", "READY", "AGE", "REASON"]
    assert row.split()[:3] == ["gemma", "ACTIVE", "1/1"]
    assert row.endswith("1 of 1 replicas ready")


def test_an_empty_list_says_so_on_stderr_and_is_an_empty_list_for_programs(
    api: StubApi, capsys: pytest.CaptureFixture[str]
):
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": [], "next": None})
    assert main(["ls"], api.env) == 0
    shown = capsys.readouterr()
    assert (shown.out, "no deployments" in shown.err) == ("", True)
    assert main(["ls", "-o", "json"], api.env) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_labels_select(api: StubApi, capsys: pytest.CaptureFixture[str]):
    items = [api.deployment("a", labels={"team": "x"}), api.deployment("b", labels={"team": "y"})]
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": items, "next": None})
    assert main(["ls", "-l", "team=y", "-o", "json"], api.env) == 0
    assert [item["name"] for item in json.loads(capsys.readouterr().out)] == ["b"]


def test_an_object_is_shown_whole_as_yaml_for_people(api: StubApi, capsys: pytest.CaptureFixture[str]):
    found = api.deployment("gemma")
    assert main(["get", "deployment", "gemma"], api.env) == 0
    assert yaml.safe_load(capsys.readouterr().out) == found


@pytest.mark.parametrize("args", [["get", "deployment", "x"], ["status", "x"], ["history", "x"], ["logs", "x"]])
def test_what_is_not_there_is_exit_code_four_with_the_servers_own_words(
    api: StubApi, capsys: pytest.CaptureFixture[str], args: list[str]
):
    assert main(args, api.env) == 4
    assert "there is nothing at" in capsys.readouterr().err


def test_an_unreachable_api_is_exit_code_five(capsys: pytest.CaptureFixture[str]):
    assert main(["ls"], {"MOORAGE_URL": "http://127.0.0.1:9", "MOORAGE_HOME": "/nonexistent"}) == 5
    assert "moor up" in capsys.readouterr().err


def test_a_wait_that_is_reached_is_zero(api: StubApi, capsys: pytest.CaptureFixture[str]):
    api.deployment("gemma")
    assert main(["wait", "gemma", "--for", "live"], api.env) == 0
    assert "gemma: live (serving: true, desired: 1)" in capsys.readouterr().out


def test_a_wait_that_cannot_be_reached_is_one_with_exit_code_and_log(api: StubApi, capsys: pytest.CaptureFixture[str]):
    failure = {"exit_code": 127, "log": "one\nsh: nope: not found", "reason": {"message": "Could not start"}}
    api.deployment("gemma", phase="DEPLOY_FAILED", serving=False, ready_replicas=0, last_failure=failure)
    assert main(["wait", "gemma", "--for", "live"], api.env) == 1
    err = capsys.readouterr().err
    assert all(text in err for text in ("DEPLOY_FAILED", "127", "sh: nope: not found", "moor why gemma"))


def test_a_wait_that_runs_out_of_time_is_three_and_says_what_was_seen_last(
    api: StubApi, capsys: pytest.CaptureFixture[str]
):
    api.deployment("gemma", phase="LOADING_MODEL", serving=False, ready_replicas=0)
    assert main(["wait", "gemma", "--for", "live", "--timeout", "2s"], api.env) == 3
    assert "LOADING_MODEL" in capsys.readouterr().err


def test_apply_sends_the_document_under_its_key(api: StubApi, spec: Path, capsys: pytest.CaptureFixture[str]):
    accept(api, "gemma")
    assert main(["apply", "-f", str(spec), "--key", "build-1"], api.env) == 0
    (put,) = api.sent("PUT")
    assert put["body"]["runtime"]["command"] == ["serve", "--port", "{port}"]
    assert put["headers"]["idempotency-key"] == "build-1"
    assert put["headers"]["authorization"] == "Bearer t"
    assert capsys.readouterr().out == "gemma: applied, revision 1\n"


def test_documents_of_one_apply_never_share_a_key(api: StubApi, tmp_path: Path):
    both = tmp_path / "both.yaml"
    both.write_text(SPEC.format(name="a") + "---\n" + SPEC.format(name="b"))
    accept(api, "a")
    accept(api, "b")
    assert main(["apply", "-f", str(both), "--key", "k"], api.env) == 0
    assert [put["headers"]["idempotency-key"] for put in api.sent("PUT")] == ["k/a", "k/b"]


def test_a_model_beside_the_spec_is_found_from_any_folder(api: StubApi, tmp_path: Path):
    file = tmp_path / "m.yaml"
    file.write_text(SPEC.format(name="m").replace("{id: m}", "{id: m, source: ./m.gguf}"))
    accept(api, "m")
    assert main(["apply", "-f", str(file)], api.env) == 0
    assert api.sent("PUT")[0]["body"]["model"]["source"] == str(tmp_path / "m.gguf")


def test_nothing_is_sent_when_one_of_several_files_is_wrong(
    api: StubApi, spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    accept(api, "gemma")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(SPEC.format(name="x") + "replicsa: {min: 1}\n")
    assert main(["apply", "-f", str(spec), "-f", str(wrong)], api.env) == 2
    assert api.requests == []
    err = capsys.readouterr().err
    assert "wrong.yaml" in err
    assert "replicas" in err


def test_apply_and_wait_fails_with_the_reason_of_the_failure(
    api: StubApi, spec: Path, capsys: pytest.CaptureFixture[str]
):
    accept(api, "gemma")
    api.deployment("gemma", phase="DEPLOY_FAILED", serving=False, ready_replicas=0)
    assert main(["apply", "-f", str(spec), "--wait"], api.env) == 1
    assert "DEPLOY_FAILED" in capsys.readouterr().err


def test_a_dry_run_asks_for_the_plan_and_applies_nothing(api: StubApi, spec: Path, capsys: pytest.CaptureFixture[str]):
    plan = {"changes": [{"path": "replicas.min", "before": 1, "after": 2}], "actions": [], "warnings": []}
    api.answers["POST /namespaces/default/deployments/gemma/plan"] = (200, plan)
    assert main(["apply", "-f", str(spec), "--dry-run"], api.env) == 0
    assert api.sent("PUT") == []
    assert "replicas.min: 1 → 2" in capsys.readouterr().out


def test_serve_makes_a_deployment_of_a_command_and_its_environment(api: StubApi):
    accept(api, "smol")
    command = ["python3", "server.py", "--port", "{port}", "--name", "not-ours"]
    assert main(["serve", "--name", "smol", "-e", "A=b=c", "--no-wait", "--", *command], api.env) == 0
    body = api.sent("PUT")[0]["body"]
    assert body["runtime"]["command"] == command
    assert body["runtime"]["env"] == {"A": "b=c"}
    assert body["runtime"]["workdir"] == str(Path.cwd())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["serve", "--name", "x", "--", "server"], "{port}"),
        (["serve"], "nothing to serve"),
        (["serve", "--name", "x", "-e", "A", "--", "server", "{port}"], "KEY=VALUE"),
        (["serve", "weights.bin"], "after --"),
        (["serve", "none.gguf"], "no file"),
        (["wait", "x", "--timeout", "soon"], "duration"),
        (["ls", "-l", "team"], "KEY=VALUE"),
        (["get", "revision", "gemma"], "DEPLOYMENT/NUMBER"),
        (["ls", "machines", "--deleted"], "cannot be listed"),
        (["frobnicate"], "moor --help"),
    ],
)
def test_wrong_usage_is_exit_code_two_says_what_is_right_and_sends_no_change(
    api: StubApi, capsys: pytest.CaptureFixture[str], args: list[str], said: str
):
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": [], "next": None})
    assert main(args, api.env) == 2
    assert said in capsys.readouterr().err
    assert api.sent("PUT") + api.sent("POST") == []


def test_delete_without_a_terminal_needs_yes(
    api: StubApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    touched = {"touches": [{"kind": "Deployment", "name": "gemma"}], "refers": []}
    api.answers["DELETE /namespaces/default/deployments/gemma"] = (200, touched)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(["delete", "gemma"], api.env) == 2
    assert len(api.sent("DELETE")) == 1  # the dry run
    assert "--yes" in capsys.readouterr().err


def test_an_order_tells_people_what_the_deployment_does_now_and_programs_the_answer(
    api: StubApi, capsys: pytest.CaptureFixture[str]
):
    api.deployment("gemma")
    api.answers["POST /namespaces/default/deployments/gemma/pause"] = (202, {"deployment": "dep-gemma"})
    assert main(["pause", "gemma"], api.env) == 0
    assert "now ACTIVE 1/1 ready" in capsys.readouterr().out
    assert main(["pause", "gemma", "-o", "json"], api.env) == 0
    assert json.loads(capsys.readouterr().out) == {"deployment": "dep-gemma"}


@pytest.mark.parametrize(("status", "told"), [("paused", "sleeps already"), ("created", "will sleep once")])
def test_a_pause_of_one_that_sleeps_says_that_it_sleeps_already(
    status: str, told: str, api: StubApi, capsys: pytest.CaptureFixture[str]
):
    api.deployment("gemma", status=status, phase="SCALED_TO_ZERO")
    api.answers["POST /namespaces/default/deployments/gemma/pause"] = (202, {"deployment": "dep-gemma"})
    assert main(["pause", "gemma"], api.env) == 0
    assert capsys.readouterr().out.startswith(f"gemma: {told}")


def test_status_says_what_why_and_what_failed_last(api: StubApi, capsys: pytest.CaptureFixture[str]):
    api.deployment("gemma", last_failure={"exit_code": 137, "reason": {"message": "Out of memory"}}, crash_looping=True)
    assert main(["status", "gemma"], api.env) == 0
    out = capsys.readouterr().out
    for text in (
        "gemma  ACTIVE  (serving)",
        "1 of 1 replicas ready",
        "Out of memory (exit code 137)",
        "keeps crashing",
    ):
        assert text in out


def test_why_shows_machines_and_the_changes_that_would_help(api: StubApi, capsys: pytest.CaptureFixture[str]):
    answer = {
        "subject": "Deployment default/gemma",
        "state": "pending",
        "reason": {"message": "No machine fits", "advice": "ask for less"},
        "machines": [{"reasons": [{"message": "has no GPU"}], "count": 3, "examples": ["box-1"]}],
        "changes": [{"change": "resources.gpus.count: 0", "effect": "fits on 3 machines", "verified": True}],
    }
    api.answers["GET /namespaces/default/deployments/gemma/why"] = (200, answer)
    assert main(["why", "gemma"], api.env) == 0
    out = capsys.readouterr().out
    for text in ("No machine fits", "ask for less", "3 × has no GPU  (box-1)", "resources.gpus.count: 0 → fits on 3"):
        assert text in out


def test_why_names_the_first_replica_that_is_not_ready_with_its_advice(
    api: StubApi, capsys: pytest.CaptureFixture[str]
):
    withdrawn = {"message": "No requests are routed to it: 3 probes failed", "advice": "read its log"}
    answer = {
        "state": "created",
        "phase": "DEPLOYING",
        "reason": {"message": "0 of 1 replicas ready: 3 probes failed"},
        "unready": {"name": "gemma-0-1", "status": "running", "reason": withdrawn},
    }
    api.answers["GET /namespaces/default/deployments/gemma/why"] = (200, answer)
    assert main(["why", "gemma"], api.env) == 0
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "gemma is DEPLOYING: 0 of 1 replicas ready: 3 probes failed",
        "  replica gemma-0-1 is running: No requests are routed to it: 3 probes failed",
        "    advice: read its log",
    ]


def test_what_is_no_container_is_not_said_to_be_one(api: StubApi, capsys: pytest.CaptureFixture[str]):
    unready = {"name": "gemma-0-1", "status": "initing_docker_container", "reason": {"message": "its process began"}}
    answer = {"state": "created", "phase": "WAKING", "reason": {"message": "0 of 1"}, "unready": unready}
    api.answers["GET /namespaces/default/deployments/gemma/why"] = (200, answer)
    assert main(["why", "gemma"], api.env) == 0
    assert "  replica gemma-0-1 is starting: its process began" in capsys.readouterr().out.splitlines()


def test_the_status_of_an_endpoint_is_asked_of_why(api: StubApi, capsys: pytest.CaptureFixture[str]):
    api.answers["GET /namespaces/default/endpoints/chat"] = (200, {"kind": "Endpoint", "name": "chat"})
    assert main(["status", "chat"], api.env) != 0
    told = capsys.readouterr().err
    assert "chat is an endpoint" in told
    assert "moor why chat" in told


BAD = {"replica": "x", "gateway": "g", "bad": 7}


def test_why_tells_of_replicas_that_a_gateway_put_aside(api: StubApi, capsys: pytest.CaptureFixture[str]):
    aside = [
        {"replica": "gemma-0-1", "gateway": "g", "why": "bad_answers", "tried_in_s": 3.96},
        BAD | {"why": "bad_answers", "tried_in_s": 3.96, "answered": "timeout", "of": 3},
        BAD | {"why": "kept_bad", "tried_in_s": None, "answered": "503", "of": 1},
        BAD | {"why": "kept_bad", "tried_in_s": None, "answered": "reset", "of": 3},
        {"replica": "gemma-1-1", "gateway": "g", "why": "unreachable", "tried_in_s": 0.0},
        {"replica": "gemma-2-1", "gateway": "g", "why": "another_model", "tried_in_s": None},
    ]
    answer = {"state": "running", "reason": {"message": "3 of 3 replicas ready"}, "aside": aside}
    api.answers["GET /namespaces/default/deployments/gemma/why"] = (200, answer)
    assert main(["why", "gemma"], api.env) == 0
    begins = "is put aside by gateway g:"
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"  replica gemma-0-1 {begins} it answers badly; tried again in 4.0 s",
        f"  replica x {begins} it answered badly 7 times in a row, last with no answer in time; tried again in 4.0 s",
        "  replica x answered badly 7 times in a row, last with 503 (gateway g); kept in use because it is the only "
        "one",
        "  replica x answered badly 7 times in a row, last with no answer (gateway g); kept in use because half of the "
        "replicas must stay",
        f"  replica gemma-1-1 {begins} it cannot be reached; tried again by the next request",
        f"  replica gemma-2-1 {begins} another model answers at its address; until the next routing table names it",
    ]


def test_another_namespace_is_asked_for_by_name(api: StubApi):
    api.answers["GET /namespaces/research/deployments"] = (200, {"items": [], "next": None})
    assert main(["ls", "-n", "research"], api.env) == 0


def test_ctrl_c_ends_only_the_watching_and_says_how_to_resume(api: StubApi):
    api.deployment("gemma", phase="LOADING_MODEL", serving=False, ready_replicas=0)
    watcher = subprocess.Popen(
        [sys.executable, "-m", "moorage.cli.main", "wait", "gemma", "--for", "live"],
        env={**os.environ, **api.env},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watcher.stderr is not None
    while "LOADING_MODEL" not in watcher.stderr.readline():
        assert watcher.poll() is None
    watcher.send_signal(signal.SIGINT)
    _, err = watcher.communicate(timeout=120)
    assert watcher.returncode == 130
    assert "the work goes on" in err
    assert "moor wait gemma --for live" in err
    assert "Traceback" not in err


def test_a_reader_that_goes_away_is_no_error(api: StubApi):
    items = [api.deployment(f"d{n}") for n in range(2000)]
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": items, "next": None})
    done = subprocess.run(
        f"{sys.executable} -m moorage.cli.main ls -o json | head -1",
        shell=True,
        env={**os.environ, **api.env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("[", "")


def test_the_version_says_whether_a_control_plane_answers(capsys: pytest.CaptureFixture[str]):
    assert main(["version"], {"MOORAGE_URL": "http://127.0.0.1:9", "MOORAGE_HOME": "/nonexistent"}) == 0
    assert "no answer: no control plane answers at http://127.0.0.1:9" in capsys.readouterr().out
