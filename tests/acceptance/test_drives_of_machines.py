"""A drive lies on one machine; work goes to it, or takes a copy of it to another machine of a whole installation."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.installation import PATIENCE_S, Installation, until
from tests.ports import free_range

SECOND = "box-2"


@pytest.fixture(scope="module")
def two(shared: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The installation with a second machine: another agent on this one, with a home of its own."""
    home = tmp_path_factory.mktemp("second")
    config = {
        "server_url": f"http://127.0.0.1:{shared.api}",
        "token": (shared.home / "tokens" / "agent_join").read_text().strip(),
        "name": SECOND,
        "home": str(home / "agent"),
        "ports": free_range(8),
        "stop_workers_on_exit": True,
    }
    (home / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-P", "-m", "moorage.agent.main", "--config", str(home / "config.json")]
    with (home / "agent.log").open("ab") as log:
        agent = subprocess.Popen(command, stderr=log, env=dict(os.environ))
    try:
        until(
            lambda: {"Ready"} == {m["state"] for m in shared.json("machines")} and len(shared.json("machines")) == 2, ""
        )
        yield shared
    finally:
        agent.terminate()
        agent.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def drive(two: Installation) -> Path:
    """A drive on the first machine with something in it; where it lies."""
    first = next(m["name"] for m in two.json("machines") if m["name"] != SECOND)
    made = two.json("drives", "create", "data", "--size", "1MiB", "--machine", first)
    folder = Path(made["path"])
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "weights").write_bytes(os.urandom(2_000_000))
    return folder


def run(two: Installation, folder: Path, name: str, script: str, **fields: Any) -> str:
    """A job; its output, once it has ended well."""
    body = {"kind": "Run", "name": name, "groups": [{"runtime": {"command": ["/bin/sh", "-c", script]}}], **fields}
    (folder / f"{name}.json").write_text(json.dumps(body))
    return two.moor("run", "-f", str(folder / f"{name}.json"))


def test_work_goes_to_the_machine_of_its_drive_and_keeps_its_output_there(
    two: Installation, drive: Path, tmp_path: Path
) -> None:
    drives = [{"name": "data", "target": str(tmp_path / "shown")}]
    script = f'cmp "$MOORAGE_DRIVE_DATA/below/weights" {drive}/below/weights && echo kept > $MOORAGE_OUTPUT_DIR/result'
    run(two, tmp_path, "near", script, drives=drives, output="data")
    assert (drive / "near" / "0" / "result").read_text() == "kept\n"


def test_a_copy_is_made_where_the_worker_is_and_the_drive_stays_as_it_was(
    two: Installation, drive: Path, tmp_path: Path
) -> None:
    drives = [{"name": "data", "target": str(tmp_path / "shown"), "place": True}]
    script = (
        f'cd "$MOORAGE_DRIVE_DATA" && cmp below/weights {drive}/below/weights && echo mine > below/written && ls below'
    )
    output = run(two, tmp_path, "far", script, drives=drives, placement={"machines": [SECOND]})
    assert "written" in output
    assert not (drive / "below" / "written").exists()
    told = [change["reason"]["code"] for change in two.json("history", "far", "--all")]
    assert "prepare.drive_filling" in told


def test_work_waits_for_a_drive_that_is_made_later(two: Installation, tmp_path: Path) -> None:
    drives = [{"name": "late", "target": str(tmp_path / "shown")}]
    body = {"kind": "Run", "name": "early", "groups": [{"runtime": {"command": ["true"]}}], "drives": drives}
    (tmp_path / "early.json").write_text(json.dumps(body))
    two.moor("run", "-f", str(tmp_path / "early.json"), "--detach")
    until(lambda: "The drive late does not exist" in two.moor("why", "early"), "the cause to be told")
    two.moor("drives", "create", "late", "--size", "1KiB")
    until(lambda: two.json("get", "run", "early")["state"] == "Completed", "the run to complete")


def test_without_a_copy_another_machine_is_refused_with_the_cause(
    two: Installation, drive: Path, tmp_path: Path
) -> None:
    body = {
        "kind": "Run",
        "name": "stuck",
        "groups": [{"runtime": {"command": ["true"]}}],
        "drives": [{"name": "data", "target": str(tmp_path / "shown")}],
        "placement": {"machines": [SECOND]},
    }
    (tmp_path / "stuck.json").write_text(json.dumps(body))
    two.moor("run", "-f", str(tmp_path / "stuck.json"), "--detach")
    why = until(lambda: two.moor("why", "stuck") if "place" in two.moor("why", "stuck") else None, "a reason")
    assert "the spec asks for no copy" in why
    refused = two.run("drives", "rm", "data")
    assert refused.returncode != 0
    assert "is used by Run stuck" in refused.stderr
    two.moor("cancel", "stuck")
    until(lambda: two.run("drives", "rm", "data").returncode == 0, "the drive to be forgotten")
    assert (drive / "below" / "weights").exists(), "its data stays"
