"""Commands about machines against an API of canned answers: what is asked, what is sent, what is shown."""

from collections.abc import Iterator
from typing import Any

import pytest
from stub_api import OBJECT, StubApi

from moorage.cli.main import main

PLAN = {
    "kind": "DryRun",
    "actions": [],
    "changes": [],
    "warnings": [],
    "touches": [],
    "refers": [{"kind": "Worker", "name": "train-worker-0", "what_happens": "is stopped and queued again"}],
}


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


def machine(name: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "Machine", "id": f"mch-{name}", "name": name, "state": "Ready", "gpus": [], **OBJECT, **fields}


def test_machines_show_what_is_drained_and_not_what_was_removed(api: StubApi, capsys: pytest.CaptureFixture[str]):
    items = [
        machine("a", draining={"until": 1.0}, cordoned="draining"),
        machine("b", draining={"until": 1.0, "drained_at": 2.0}, cordoned="draining"),
        machine("c", cordoned="fan"),
        machine("d", state="Removed"),
    ]
    api.answers["GET /machines"] = (200, {"items": items, "next": None})
    assert main(["machines"], api.env) == 0
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["a", "Ready,draining"], ["b", "Ready,drained"], ["c", "Ready,cordoned"]]


def test_a_drain_is_sent_with_its_grace_and_its_dry_run_only_tells(api: StubApi, capsys: pytest.CaptureFixture[str]):
    api.answers["POST /machines/a/drain"] = (200, PLAN)
    assert main(["drain", "a", "--dry-run"], api.env) == 0
    assert "train-worker-0: is stopped and queued again" in capsys.readouterr().out
    assert main(["drain", "a", "--grace", "15m", "--key", "k1"], api.env) == 0
    sent = api.sent("POST")[-1]
    assert (sent["body"], sent["headers"]["idempotency-key"]) == ({"grace": 900.0}, "k1")
    api.answers["POST /machines/a/uncordon"] = (200, {"machine": "mch-a", "cordoned": None})
    assert main(["uncordon", "a"], api.env) == 0
    assert "takes work again" in capsys.readouterr().out


def test_a_removal_says_what_runs_there_and_without_a_terminal_needs_yes(
    api: StubApi, capsys: pytest.CaptureFixture[str]
):
    api.answers["DELETE /machines/a"] = (200, PLAN)
    assert main(["machines", "remove", "a"], api.env) == 2
    told = capsys.readouterr().err
    assert "train-worker-0" in told
    assert "say --yes" in told
    assert len(api.sent("DELETE")) == 1, "only the dry run was sent"
    assert main(["machines", "remove", "a", "--yes"], api.env) == 0
    assert len(api.sent("DELETE")) == 2
