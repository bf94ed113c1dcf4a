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


def gpu(index: int, holder: str, **fields: Any) -> dict[str, Any]:
    return {"index": index, "model": "H100", "memory": 80 << 30, "health": "ok", "holder": holder, **fields}


def test_a_machine_shows_a_line_for_each_gpu_with_who_has_it_and_why(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus = [
        gpu(0, "held", work="train-worker-0", worker="wrk-1", process={"pid": 4711}, since=OBJECT["created_at"]),
        gpu(1, "held", work="work in another namespace", worker=None),
        gpu(2, "reserved", work="large-worker-0", reserved_why="head", until="2999-01-01T00:00:00Z"),
        gpu(3, "faulty", health="faulty", fault="Xid 79: it fell off the bus"),
        gpu(4, "foreign", foreign_bytes=5 << 30, foreign_pids=[12, 13]),
        gpu(5, "free"),
    ]
    api.answers["GET /machines/a"] = (200, machine("a", gpus=gpus, pressure=["disk"]))
    assert main(["machines", "get", "a"], api.env) == 0
    shown = capsys.readouterr().out
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()[:1].isdigit()}
    assert "2 of 6 GPUs held, 1 reserved, 1 faulty, 1 foreign" in shown
    assert "short of disk" in shown
    assert [word in lines["0"] for word in ("train-worker-0", "4711", "held")] == [True] * 3
    assert "work in another namespace" in lines["1"]
    assert [word in lines["2"] for word in ("large-worker-0", "next in the queue", "in ")] == [True] * 3
    assert "Xid 79" in lines["3"]
    assert "5GiB of 12, 13, not ours" in lines["4"]
    assert "free" in lines["5"]


def test_top_lists_the_gpus_that_are_not_free(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    some = [gpu(0, "free"), gpu(1, "held", work="train-worker-0"), gpu(2, "faulty", fault="Xid 79")]
    api.answers["GET /machines"] = (200, {"items": [machine("a", gpus=some)], "next": None})
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": [], "next": None})
    assert main(["top", "--once"], api.env) == 0
    shown = capsys.readouterr().out
    assert "1 of 3 GPUs held, 1 faulty" in shown
    rows = [line.split()[:4] for line in shown.splitlines() if line.startswith("a ") and "H100" in line]
    assert rows == [["a", "1", "H100", "held"], ["a", "2", "H100", "faulty"]]
