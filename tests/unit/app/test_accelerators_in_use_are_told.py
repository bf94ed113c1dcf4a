"""Which compiled parts a gateway uses, as is told: what all processes use, and why not all that was built."""

import json
from pathlib import Path
from typing import Any

import pytest

from moorage.app import commands, up
from moorage.app.accelerated import Accelerated


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ({}, "accelerators in use: none"),  # a master of before, or one that ended
        ({"accelerators": [], "accelerators_unused": ""}, "accelerators in use: none"),
        ({"accelerators": [["native", "compiled"]] * 2}, "accelerators in use: native and compiled"),
        ({"accelerators": [["native", "compiled"], ["native"]]}, "accelerators in use: native"),
        (
            {"accelerators": [["native"]], "accelerators_unused": "the compiled part was built\n before x changed"},
            "accelerators in use: native, since the compiled part was built before x changed; `make accelerators`, "
            "then `moor gateway --reload`",
        ),
    ],
)
def test_what_all_processes_use_is_one_line_with_why_not_more(told: dict[str, Any], line: str) -> None:
    assert Accelerated.of(told).line() == line


@pytest.mark.parametrize("unused", ["", "the native part was built before x changed"])
def test_up_tells_of_accelerators_only_where_a_build_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unused: str
) -> None:
    monkeypatch.setattr(up, "up", lambda *_a, **_k: up.Up(already=False, url="http://a", gateway_url="http://g"))
    (tmp_path / "gateway").mkdir()
    told = {"state": "serving", "accelerators": [[]], "accelerators_unused": unused}
    (tmp_path / "gateway" / "master.json").write_text(json.dumps(told))
    options = json.dumps({"timeout_s": 1.0})
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path))
    assert commands.main(["up", options]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("accelerators")]
    expected = f"accelerators in use: none, since {unused}; `make accelerators`, then `moor gateway --reload`"
    assert lines == ([expected] if unused else [])
