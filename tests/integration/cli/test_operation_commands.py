"""`moor operations` against an API of canned answers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from stub_api import OBJECT, StubApi

from moorage.cli.main import main


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


def operation(api: StubApi, state: str = "waiting", **fields: Any) -> dict[str, Any]:
    found = {
        "kind": "Operation",
        "id": "op-1",
        "name": "apply-gemma",
        "operation": "apply",
        "target": {"kind": "Deployment", "id": "dep-gemma", "name": "gemma"},
        "state": state,
        "steps": [
            {"name": "record", "state": "done", "at": "2026-01-01T00:00:00Z"},
            {"name": "provision", "state": "pending", "at": None},
        ],
        "progress": 0.5,
        "attempt": 2,
        "next_attempt_at": None,
        "waiting_reason": {"code": "op.waiting", "class": "waiting", "message": "Waits: a machine", "params": {}},
        "lease": {"owner": "home:/x", "generation": 4, "expires_at": "2026-01-01T00:00:30Z"},
        "cancel_requested": False,
        "cancelled_by": None,
        "resolution": None,
        "error": None,
        "reason": None,
        **OBJECT,
        **fields,
    }
    api.answers["GET /operations/op-1"] = (200, found)
    api.answers["GET /operations"] = (200, {"items": [found], "next": None})
    return found


@pytest.mark.parametrize("words", [["operations", "op-1"], ["operations", "get", "op-1"]])
def test_one_operation_is_shown_with_its_steps_and_what_it_waits_for(
    words: list[str], api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    operation(api)
    assert main(words, api.env) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("apply gemma: waiting\n")
    for piece in ("Waits: a machine", "attempt 2", "home:/x, generation 4", "50 %", "✓ record", "· provision"):
        assert piece in shown


def test_json_is_the_object_exactly(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    found = operation(api, unknown=[1])
    assert main(["operations", "op-1", "-o", "json"], api.env) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_only_open_ones_are_listed_where_that_is_asked(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    operation(api, "succeeded")
    assert main(["operations", "list", "-o", "json"], api.env) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1
    assert main(["operations", "list", "--open", "-o", "json"], api.env) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("state", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 1), ("needs_attention", 1), ("running", 3)]
)
def test_watching_ends_with_what_became_of_it(
    state: str, code: int, api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    operation(api, state)
    assert main(["operations", "watch", "op-1", "--timeout", "0.3"], api.env) == code
    shown = capsys.readouterr()
    assert ("apply gemma: succeeded" in shown.out) == (code == 0)


@pytest.mark.parametrize(
    ("words", "body"),
    [(["--absent"], {"absent": True}), (["--adopt", "box-1/pid:7"], {"adopt": "box-1/pid:7"})],
)
def test_a_persons_word_is_sent(words: list[str], body: dict[str, Any], api: StubApi) -> None:
    api.answers["POST /operations/op-1/resolve"] = (202, {"operation": "op-1", "how": "absent"})
    assert main(["operations", "resolve", "op-1", *words], api.env) == 0
    assert api.sent("POST")[0]["body"] == body


@pytest.mark.parametrize("words", [[], ["--absent", "--adopt", "x"]])
def test_a_word_that_says_nothing_or_two_things_is_not_sent(words: list[str], api: StubApi) -> None:
    assert main(["operations", "resolve", "op-1", *words], api.env) == 2
    assert api.requests == []


def test_a_cancel_is_sent_under_its_key(api: StubApi) -> None:
    api.answers["POST /operations/op-1/cancel"] = (202, {"operation": "op-1"})
    assert main(["operations", "cancel", "op-1", "--key", "k"], api.env) == 0
    assert api.sent("POST")[0]["headers"]["idempotency-key"] == "k"


def test_a_cancel_of_what_was_cancelled_says_that_it_is(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["POST /operations/op-1/cancel"] = (202, {"operation": "op-1", "state": "cancelled"})
    assert main(["operations", "cancel", "op-1"], api.env) == 0
    assert "cancelled already" in capsys.readouterr().out


def test_ctrl_c_ends_only_the_watching_and_prints_the_command_that_resumes(api: StubApi) -> None:
    operation(api, "running")
    command = [sys.executable, "-m", "moorage.cli.main", "operations", "watch", "op-1"]
    env = {**os.environ, **api.env, "PYTHONUNBUFFERED": "1"}
    watching = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    assert watching.stderr is not None
    while "apply running" not in (line := watching.stderr.readline()):
        assert line, "it ended before it watched"
    watching.send_signal(signal.SIGINT)
    _, told = watching.communicate(timeout=90)
    assert (watching.returncode, "moor operations watch op-1" in told) == (130, True)


def test_an_operation_that_is_not_there_is_not_said_to_be_waited_for(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["operations", "watch", "nosuch"], api.env) == 4
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert "waiting for its end" not in shown
