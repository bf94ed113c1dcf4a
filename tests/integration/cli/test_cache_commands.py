"""`moor cache`, and how far a model is in `status` and `why`, against an API of canned answers."""

from collections.abc import Iterator
from typing import Any

import pytest
from stub_api import OBJECT, StubApi

from moorage.cli.main import main

COMMIT = "a" * 40
PINNED, ASKED = f"hf://org/name@{COMMIT}/m.gguf", "hf://org/name@main/m.gguf"
MIB = 1 << 20


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


def model(**fields: Any) -> dict[str, Any]:
    here = {"state": "cached", "names": [ASKED], "commit": COMMIT, "size": 1228 * MIB, "done": 1228 * MIB, "rate": 0}
    more = {"files": [], "path": "/models/m.gguf", "fetched_at": None, "used_at": None, "pinned": False}
    return {"source": PINNED, **here, **more, "restricted": False, "used_by": [], "error": None, **fields}


def machine(api: StubApi, name: str, *models: dict[str, Any], state: str = "Ready") -> None:
    told = {"kind": "ModelCache", "machine": name, "path": "/models", "limit_bytes": None, "disk_bytes": 9}
    for method in ("GET", "POST"):
        answer = (200, {**told, "free_bytes": 5, "models": list(models)})
        api.answers[f"{method} /machines/{name}/cache"] = answer
    known = api.answers.get("GET /machines", (200, {"items": []}))[1]["items"]
    items = [*known, {"kind": "Machine", "id": f"mch-{name}", "name": name, "state": state, **OBJECT}]
    api.answers["GET /machines"] = (200, {"items": items, "next": None})


def orders(api: StubApi) -> list[tuple[str, Any]]:
    return [(r["path"], r["body"]) for r in api.requests if r["method"] == "POST"]


def test_the_list_shows_every_ready_machine_and_how_far_each_model_is(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    coming = model(state="fetching", done=312 * MIB, rate=45 * MIB, names=[], source="hf://org/big@main", error=None)
    machine(api, "box-1", model(pinned=True, used_by=["gemma-0-1-0", "gemma-1-1-0"]), coming)
    machine(api, "box-2", model(state="failed", error="it is gated", names=[], size=0, done=0))
    machine(api, "box-3", state="Down")
    assert main(["cache", "ls"], api.env) == 0
    shown = capsys.readouterr().out
    for piece in ("312.0 MiB of 1.2 GiB, 45.0 MiB/s", "gemma-0-1-0 and 1 more", "yes", "it is gated", ASKED, "box-2"):
        assert piece in shown
    assert "box-3" not in shown


def test_without_a_machine_the_only_one_is_meant(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    machine(api, "box-1", model())
    assert main(["cache", "pin", ASKED], api.env) == 0
    assert orders(api) == [("/machines/box-1/cache", {"action": "pin", "source": ASKED})]
    assert capsys.readouterr().out == f"box-1: {ASKED}: stays\n"


def test_of_several_machines_one_must_be_named(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    machine(api, "box-1", model())
    machine(api, "box-2", model())
    assert main(["cache", "evict", ASKED], api.env) != 0
    assert "box-1, box-2" in capsys.readouterr().err
    assert orders(api) == []
    assert main(["cache", "evict", ASKED, "-m", "box-2"], api.env) == 0
    assert orders(api) == [("/machines/box-2/cache", {"action": "evict", "source": ASKED})]


def test_a_prefetch_waits_until_it_is_there(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    machine(api, "box-1", model())
    assert main(["cache", "prefetch", ASKED, "--pin"], api.env) == 0
    assert orders(api) == [("/machines/box-1/cache", {"action": "prefetch", "source": ASKED, "pin": True})]
    assert f"{ASKED}: is on box-1" in capsys.readouterr().out


def test_a_prefetch_that_comes_to_nothing_fails_with_the_cause(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(api, "box-1", model(source=ASKED, names=[], state="failed", error="Could not fetch the model: gated"))
    assert main(["cache", "prefetch", ASKED], api.env) != 0
    told = capsys.readouterr().err
    assert "Could not fetch the model: gated" in told
    assert "moor cache ls box-1" in told


def test_why_says_how_much_of_the_model_is_here(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.deployment("gemma")
    far = "Fetching hf://org/name: 312.0 MiB of 1.2 GiB, 45.0 MiB a second"
    reason = {"code": "model.fetching", "class": "progress", "message": far, "params": {}}
    worker = {"name": "gemma-0-1-0", "state": "Pulling", "machine": "box-1", "reason": reason}
    why = {"kind": "Why", "phase": "BUILDING", "state": "created", "reason": {"message": "Accepted"}, "worker": worker}
    api.answers["GET /namespaces/default/deployments/gemma/why"] = (200, why)
    assert main(["why", "gemma"], api.env) == 0
    assert f"worker gemma-0-1-0 is Pulling on box-1: {far}" in capsys.readouterr().out
    worker["state"] = "Running"
    assert main(["why", "gemma"], api.env) == 0
    assert far not in capsys.readouterr().out
