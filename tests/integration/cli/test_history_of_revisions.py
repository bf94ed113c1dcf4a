"""`moor history` of a deployment: no change of a revision is left out, whichever number it has."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from stub_api import StubApi

from moorage.cli.main import main


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


def change(kind: str, name: str, source: str | None, to: str) -> dict[str, Any]:
    return {
        "object": {"kind": kind, "id": f"uid-{name}", "name": name, "namespace": "default"},
        "kind": "change",
        "from": source,
        "to": to,
        "reason": {"code": "x.y", "class": "progress", "message": f"{name} became {to}", "params": {}},
        "actor": "person:ada",
        "at": "2026-01-01T00:00:00Z",
        "version": 1,
        "cursor": f"{name}-{to}",
    }


def test_the_first_revisions_first_life_and_its_return_after_a_rollback_are_shown(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.deployment("gemma")
    steps = [
        ("gemma-1", None, "candidate"),
        ("gemma-1", "candidate", "provisioning"),
        ("gemma-1", "provisioning", "active"),
        ("gemma-1", "active", "superseded"),
        ("gemma-2", "provisioning", "active"),
        ("gemma-1", "superseded", "provisioning"),
        ("gemma-1", "provisioning", "active"),
    ]
    own = [change("Deployment", "gemma", None, "created"), *(change("Revision", *step) for step in steps)]
    beside = [change("Replica", "gemma-1-0", None, "pending"), change("Run", "gemma-1-0", None, "Pending")]
    answer = {"items": [*own, *beside], "next": None, "cursor": "end"}
    api.answers["GET /namespaces/default/deployments/gemma/history"] = (200, answer)
    assert main(["history", "gemma", "-o", "json"], api.env) == 0
    assert json.loads(capsys.readouterr().out) == own
    assert main(["history", "gemma"], api.env) == 0
    shown = capsys.readouterr().out
    assert "superseded → provisioning" in shown
    assert shown.count("provisioning → active") == 3
