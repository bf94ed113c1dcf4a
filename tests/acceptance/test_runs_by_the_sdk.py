"""Runs by the SDK on a real installation: to their end, through their failure and their cancel, and through kill -9."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage.domain.errors import Unavailable, WaitFailed
from tests.acceptance.installation import PATIENCE_S, Installation, alive, until

pytestmark = pytest.mark.acceptance

SERVER = "moorage.app.server"

PROGRAM = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / f"began-{os.environ['MOORAGE_RANK']}-{os.environ['MOORAGE_ATTEMPT']}").write_text(str(os.getpid()))
print("rank", os.environ["MOORAGE_RANK"], "of", os.environ["MOORAGE_WORLD_SIZE"], flush=True)
while len(sys.argv) > 3 and not (folder / "go").exists():
    time.sleep(0.01)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def client(shared: Installation) -> moorage.Client:
    """The SDK, pointed at the installation by its home."""
    return moorage.Client(home=shared.home)


def job(name: str, folder: Path, code: int = 0, *, held: bool = False, **parts: Any) -> moorage.Run:
    """A run of the program above; held, it waits for a file named `go`."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", PROGRAM, str(folder), str(code), *(["held"] if held else [])]
    group = {"runtime": {"command": command}, "resources": {"cpu": "10m"}, "restart_policy": "Never"}
    return moorage.Run.model_validate({"name": name, "groups": [{**group, **parts.pop("group", {})}], **parts})


def began(folder: Path, rank: int = 0) -> int:
    """Pid of a program that has begun."""

    def found() -> int | None:
        text = next((p.read_text() for p in folder.glob(f"began-{rank}-*")), "")
        return int(text) if text else None

    return int(until(found, f"rank {rank} in {folder} to begin"))


def wait(client: moorage.Client, name: str, goal: str = "completed") -> dict[str, Any]:
    """The run once it is there, through outages of the server."""
    return dict(client.runs.wait(name, goal, timeout_s=PATIENCE_S, interval_s=0.1).last)


def test_a_run_completes_and_its_exit_code_and_output_are_kept(client: moorage.Client, tmp_path: Path) -> None:
    answer = client.runs.apply(job("good", tmp_path / "good"))
    assert answer["changed"] is True
    assert answer["warnings"] == []
    run = wait(client, "good")
    assert (run["state"], run["exit_code"], run["workers"]["completed"]) == ("Completed", 0, 1)
    lines = [line["line"] for line in client.runs.logs("good")]
    assert "rank 0 of 1" in lines
    again = client.runs.apply(job("good", tmp_path / "good"))
    assert (again["changed"], again["run"]["id"]) == (False, run["id"])
    assert "moor restart good" in again["remedy"]


def test_a_run_that_fails_raises_with_its_exit_code_and_the_end_of_its_log(
    client: moorage.Client, tmp_path: Path
) -> None:
    client.runs.apply(job("bad", tmp_path / "bad", 7))
    with pytest.raises(WaitFailed) as failed:
        wait(client, "bad")
    assert failed.value.exit_code == 7
    assert failed.value.reason is not None
    assert failed.value.reason["code"] == "run.worker_failed"
    assert "rank 0 of 1" in str(failed.value.log)


def test_a_cancelled_run_ends_its_process_and_a_restart_of_it_is_a_new_run(
    client: moorage.Client, tmp_path: Path
) -> None:
    client.runs.apply(job("halted", tmp_path / "halted", held=True))
    pid = began(tmp_path / "halted")
    client.runs.cancel("halted", text="wrong data")
    run = wait(client, "halted", "stopped")
    assert run["state"] == "Cancelled"
    assert run["cancel"]["text"] == "wrong data"
    until(lambda: not alive(pid), "its process to be gone")
    (tmp_path / "halted" / "go").touch()
    again = client.runs.restart("halted")["run"]
    assert again["restarted_from"] == run["id"]
    assert wait(client, again["id"])["state"] == "Completed"


def test_a_cancel_asked_for_when_a_killed_control_plane_is_back_is_carried_out(
    shared: Installation, client: moorage.Client, tmp_path: Path
) -> None:
    client.runs.apply(job("outlived", tmp_path / "outlived", held=True))
    pid = began(tmp_path / "outlived")
    shared.kill_part(SERVER)
    assert alive(pid), "a job does not end with the control plane"
    until(lambda: _answered(client, "outlived"), "the control plane to take the cancel")
    assert wait(client, "outlived", "stopped")["state"] == "Cancelled"
    until(lambda: not alive(pid), "its process to be gone")


def _answered(client: moorage.Client, name: str) -> bool:
    try:
        client.runs.cancel(name, key="cancel-once")
    except Unavailable:
        return False
    return True


def test_a_worker_that_exits_while_the_control_plane_is_killed_completes_its_run_once(
    shared: Installation, client: moorage.Client, tmp_path: Path
) -> None:
    """The server is stopped, so that the exit is news to nobody, and killed before it can hear of it."""
    client.runs.apply(job("unheard", tmp_path / "unheard", held=True))
    pid = began(tmp_path / "unheard")
    wait(client, "unheard", "running")
    server = shared.part_pid(SERVER)
    os.kill(server, signal.SIGSTOP)
    (tmp_path / "unheard" / "go").touch()
    until(lambda: not alive(pid), "the worker to exit")
    os.kill(server, signal.SIGKILL)
    run = wait(client, "unheard")
    assert (run["state"], run["exit_code"]) == ("Completed", 0)
    codes = [e["reason"]["code"] for e in client.runs.history("unheard")]
    assert codes.count("run.completed") == 1
    assert codes.count("container.started") == 1


@pytest.mark.slow
def test_every_element_of_an_array_ends_once_though_the_control_plane_is_killed_again_and_again(
    shared: Installation, client: moorage.Client, tmp_path: Path
) -> None:
    folder = tmp_path / "many"
    client.runs.apply(job("many", folder, array={"count": 12, "max_parallel": 4}))
    for rank in (0, 4, 8):
        began(folder, rank)
        shared.kill_part(SERVER)
    run = wait(client, "many")
    assert run["workers"]["completed"] == 12
    starts = sorted(p.name for p in folder.glob("began-*"))
    assert len(starts) == 12, f"each began once: {json.dumps(starts)}"
