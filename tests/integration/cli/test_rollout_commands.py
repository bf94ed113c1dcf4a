"""`moor rollout`, `promote`, `reject`, `rollback` and plans of rollouts, against an API of canned answers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stub_api import StubApi

from moorage.cli.main import main

BASE = "/namespaces/default/deployments/gemma"
DECISION = {
    "kind": "GuardDecision",
    "id": "gemma-2/3",
    "revision": "rev-2",
    "number": 2,
    "verdict": "REJECT",
    "at": "2026-01-01T00:00:00Z",
    "reasons": [{"code": "error_rate_regression", "message": "More requests fail: 30 % against 0 %"}],
    "measures": [
        {
            "metric": "error_rate",
            "standing": "regressed",
            "active": 0.0,
            "candidate": 0.3,
            "limit": 0.01,
            "bound": 0.119,
            "samples": {"active": 40, "candidate": 40},
        }
    ],
    "policy": {
        "enabled": True,
        "minimum_requests": 20,
        "ttft_percent": 15.0,
        "latency_percent": 15.0,
        "error_rate": 0.01,
        "throughput_percent": 20.0,
    },
    "evidence": {"active": {"requests": 40, "errors": 0}, "candidate": {"requests": 40, "errors": 12}},
}


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    made.deployment("gemma")
    yield made
    made.close()


def rollout(**fields: Any) -> dict[str, Any]:
    return {
        "kind": "Rollout",
        "name": "gemma",
        "kind_of": "rollout",
        "revision": "rev-2",
        "number": 2,
        "strategy": "canary",
        "steps": [5, 50],
        "step": 0,
        "weight": 5,
        "step_until": None,
        "replicas": {"ready": 1, "wanted": 1},
        "evidence": {"needed": 20, "candidate": 12, "active": 20},
        "decision": None,
        "since": "2026-01-01T00:00:00Z",
        "deadline": None,
        "window_until": None,
        "by": None,
        "why": None,
        "confirmed": ["g1"],
        "draining": None,
        "message": "revision 2 is compared with revision 1",
        **fields,
    }


def accepted(api: StubApi, verb: str, **fields: Any) -> None:
    answer = {"deployment": "dep-gemma", "revision": "rev-1", "operation": "op-1", "changed": True, **fields}
    api.answers[f"POST {BASE}/{verb}"] = (202, answer)


def operation(api: StubApi, state: str) -> None:
    found = {"kind": "Operation", "id": "op-1", "operation": "promote", "state": state, "steps": [], "reason": None}
    api.answers["GET /operations/op-1"] = (200, found)


def test_a_rollout_is_told_in_words_with_its_facts(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"GET {BASE}/rollout"] = (200, rollout())
    assert main(["rollout", "gemma"], api.env) == 0
    shown = capsys.readouterr().out
    for piece in (
        "revision 2 is compared with revision 1",
        "canary 5 % → 50 %; now 5 %",
        "12 requests",
        "g1 confirmed",
    ):
        assert piece in shown


def test_json_is_the_rollout_exactly(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"GET {BASE}/rollout"] = (200, rollout(unknown=1))
    assert main(["rollout", "gemma", "-o", "json"], api.env) == 0
    assert json.loads(capsys.readouterr().out) == rollout(unknown=1)


@pytest.mark.parametrize(("identical", "words"), [(True, "byte for byte the stored"), (False, "NOT the stored one")])
def test_explaining_says_whether_the_replay_is_the_stored_decision(
    identical: bool, words: str, api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {
        "kind": "Explanation",
        "name": "gemma",
        "decision": DECISION,
        "identical": identical,
        "digest": "sha256:a",
        "replayed_digest": "sha256:a" if identical else "sha256:b",
        "replayed": None if identical else {**DECISION, "verdict": "WAIT"},
    }
    api.answers[f"GET {BASE}/rollout/explain"] = (200, found)
    assert main(["rollout", "gemma", "explain"], api.env) == 0
    shown = capsys.readouterr().out
    for piece in ("gemma-2/3", "REJECT", "error_rate_regression", "30 %", "40 requests, 12 failed", words):
        assert piece in shown


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (
            ["promote", "gemma", "--reason", "seen enough", "--revision", "2"],
            {"reason": "seen enough", "revision": "2"},
        ),
        (["reject", "gemma"], {}),
        (["rollback", "gemma", "--to", "1"], {"to": "1"}),
    ],
)
def test_a_persons_word_is_sent_and_the_command_that_watches_it_is_told(
    words: list[str], body: dict[str, str], api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted(api, words[0])
    assert main([*words, "--key", "k"], api.env) == 0
    (sent,) = api.sent("POST")
    assert (sent["body"], sent["headers"]["idempotency-key"]) == (body, "k")
    assert "moor operations watch op-1" in capsys.readouterr().out


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 1), ("waiting", 3)])
def test_waiting_for_it_follows_its_operation(state: str, code: int, api: StubApi) -> None:
    accepted(api, "promote")
    operation(api, state)
    assert main(["promote", "gemma", "--wait", "--timeout", "0.3"], api.env) == code


def test_aborting_with_nothing_rolled_out_changes_nothing_and_says_so(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted(api, "reject", operation=None, changed=False)
    assert main(["rollout", "gemma", "abort"], api.env) == 0
    assert "nothing is rolled out" in capsys.readouterr().out


def test_rejecting_with_nothing_rolled_out_succeeds_and_says_so(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted(api, "reject", operation=None, changed=False)
    assert main(["reject", "gemma", "--wait"], api.env) == 0
    assert "revision 1 serves, and nothing is rolled out" in capsys.readouterr().out


def test_lists_and_status_say_what_is_rolled_out(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    found = api.deployment("gemma", phase="UPDATING", rollout=rollout())
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": [found], "next": None})
    for words in (["ls"], ["status", "gemma"]):
        assert main(words, api.env) == 0
        assert "revision 2 is compared with revision 1" in capsys.readouterr().out


def test_a_wait_that_times_out_in_a_rollout_says_what_it_waits_for(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.deployment("gemma", phase="UPDATING", promotion_in_progress=True, candidate_revision="r", rollout=rollout())
    assert main(["wait", "gemma", "--for", "promoted", "--timeout", "0.2"], api.env) == 3
    assert "revision 2 is compared with revision 1" in capsys.readouterr().err


def test_a_plan_that_cannot_be_made_fails_and_guesses_nothing(
    api: StubApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gemma.yaml"
    path.write_text('kind: Deployment\nname: gemma\nruntime: {command: [serve, "{port}"]}\n')
    broken = {"code": "unavailable", "category": "unavailable", "message": "cannot read the store", "retryable": True}
    api.answers[f"POST {BASE}/plan"] = (503, broken)
    assert main(["plan", "-f", str(path)], api.env) == 5
    shown = capsys.readouterr()
    assert (shown.out, "cannot read the store" in shown.err) == ("", True)


def test_ctrl_c_of_an_apply_prints_the_command_that_watches_that_very_apply(api: StubApi, tmp_path: Path) -> None:
    path = tmp_path / "gemma.yaml"
    path.write_text('kind: Deployment\nname: gemma\nruntime: {command: [serve, "{port}"]}\n')
    found = api.deployment("gemma", phase="UPDATING", promotion_in_progress=True, rollout=rollout())
    answer = {"deployment": found, "revision": "rev-2", "operation": "op-7", "changed": True}
    api.answers[f"PUT {BASE}"] = (200, answer)
    api.answers["GET /operations/op-7"] = (200, {"kind": "Operation", "id": "op-7", "state": "running"})
    command = [sys.executable, "-m", "moorage.cli.main", "apply", "-f", str(path), "--wait"]
    env = {**os.environ, **api.env, "PYTHONUNBUFFERED": "1"}
    watching = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert watching.stderr is not None
    while "is compared with revision 1" not in (line := watching.stderr.readline()):
        assert line, "it ended before it watched"
    watching.send_signal(signal.SIGINT)
    _, told = watching.communicate(timeout=90)
    assert (watching.returncode, "moor operations watch op-7" in told) == (130, True)


def test_a_delete_that_is_not_waited_for_tells_how_to_watch_it(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers[f"DELETE {BASE}"] = (202, {"deployment": "dep-gemma", "operation": "op-9"})
    assert main(["delete", "gemma", "--yes"], api.env) == 0
    assert "moor operations watch op-9" in capsys.readouterr().out


def test_an_adopted_server_is_left_running_only_under_its_one_typed_name(api: StubApi) -> None:
    assert main(["delete", "gemma", "llama", "--yes", "--keep-resources", "gemma"], api.env) == 2
    assert api.sent("DELETE") == []
