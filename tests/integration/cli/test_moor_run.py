"""`moor run` and its kin against an API of canned answers: output, exit codes, and what Ctrl-C ends and what not."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stub_api import OBJECT, StubApi

from moorage.cli.main import main

MOOR = [sys.executable, "-m", "moorage.cli.main"]
RUNS = "/namespaces/default/runs"


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


def run_of(name: str, state: str, **fields: Any) -> dict[str, Any]:
    reason = {"code": "run.x", "class": "progress", "message": fields.pop("why", "as it is"), "params": {}}
    total = fields.pop("count", 1)
    spec = {"groups": [{"name": "worker", "count": total}]}
    return {"kind": "Run", "id": f"run-{name}", "name": name, "state": state, "spec": spec, "reason": reason} | (
        {**OBJECT, "workers": {"running": 0, "total": total}, "priority": 0, "exit_code": None, **fields}
    )


def accept(api: StubApi, run: dict[str, Any], *lines: dict[str, Any]) -> None:
    """This run is accepted, is as given from then on, and wrote these lines."""
    body = [{"kind": "line", "seq": n, "worker": "wrk-1", **line} for n, line in enumerate(lines)]
    api.answers[f"PUT {RUNS}/{run['name']}"] = (200, {"run": run, "changed": True})
    for name in (run["id"], run["name"]):
        api.answers[f"GET {RUNS}/{name}"] = (200, run)
        api.answers[f"GET {RUNS}/{name}/logs"] = (200, body)


def test_the_output_is_shown_and_a_completed_run_exits_with_zero(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    accept(api, run_of("train", "Completed", exit_code=0), {"line": "epoch 1"}, {"line": "epoch 2"})
    assert main(["run", "--name", "train", "--", "python3", "train.py"], api.env) == 0
    assert capsys.readouterr().out == "epoch 1\nepoch 2\n"
    sent = api.sent("PUT")[0]["body"]
    assert sent["groups"][0]["runtime"]["command"] == ["python3", "train.py"]
    assert sent["groups"][0]["restart_policy"] == "Never"
    assert sent["groups"][0]["runtime"]["workdir"] == str(Path.cwd())


def test_the_programs_own_exit_code_is_passed_on_with_the_reason(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    accept(api, run_of("train", "Failed", exit_code=7, why="Worker train-0 failed"), {"line": "no data"})
    assert main(["run", "--name", "train", "--", "false"], api.env) == 7
    said = capsys.readouterr()
    assert said.out == "no data\n"
    assert "train: Failed" in said.err
    assert "Worker train-0 failed" in said.err
    assert "moor why train" in said.err


def test_a_cancelled_run_is_no_success(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    accept(api, run_of("train", "Cancelled"))
    assert main(["run", "--name", "train", "--", "true"], api.env) == 1
    assert "train: Cancelled" in capsys.readouterr().err


def test_several_workers_are_told_apart_by_a_prefix(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of("train", "Completed", count=2)
    accept(api, run, {"line": "hello", "worker": "train-0"}, {"line": "hello", "worker": "train-1"})
    assert main(["run", "--name", "train", "--count", "2", "--", "true"], api.env) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "train-0" in first
    assert "train-1" in second


def test_detach_only_submits_and_prints_the_name(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    accept(api, run_of("train", "Pending"))
    assert main(["run", "--name", "train", "--detach", "--", "sleep", "1"], api.env) == 0
    assert capsys.readouterr().out == "train\n"
    assert [r["path"] for r in api.requests] == [f"{RUNS}/train"]


def test_options_become_the_spec(api: StubApi) -> None:
    accept(api, run_of("train", "Pending"))
    options = ["--count", "4", "--gang", "--gpus", "2", "--gpu-model", "H100", "--retries", "3", "--time-limit", "2h"]
    options += ["-e", "SEED=7", "--memory", "4GiB", "--on", "box-1", "-l", "team=search", "--priority", "5"]
    assert main(["run", "--name", "train", "-d", *options, "--", "train"], api.env) == 0
    sent = api.sent("PUT")[0]["body"]
    group = sent["groups"][0]
    assert (group["count"], sent["gang"], sent["priority"], sent["time_limit"]) == (4, True, 5, 7200.0)
    assert (group["resources"]["gpus"]["count"], group["resources"]["gpus"]["models"]) == (2, ["H100"])
    assert group["resources"]["memory"] == 4 << 30
    assert (group["restart_policy"], sent["restart"]["budget"]) == ("OnFailure", 3)
    assert (group["runtime"]["env"], sent["labels"]) == ({"SEED": "7"}, {"team": "search"})
    assert sent["placement"]["machines"] == ["box-1"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run"], "nothing to run"),
        (["run", "-e", "SEED", "--", "x"], "--env 'SEED' is not KEY=VALUE"),
        (["run", "--name", "Not Good", "--", "x"], "name"),
        (["run", "-f", "/nonexistent.yaml"], "cannot read /nonexistent.yaml"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    api: StubApi, capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    assert main(args, api.env) == 2
    assert said in capsys.readouterr().err
    assert api.requests == []


def test_ctrl_c_without_a_terminal_leaves_the_run_and_says_how_to_watch_it_again(api: StubApi) -> None:
    accept(api, run_of("train", "Pending", why="No machine fits now"))
    command = [*MOOR, "run", "--name", "train", "--", "sleep", "9"]
    watching = subprocess.Popen(
        command, env={**os.environ, **api.env}, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert watching.stderr is not None
    assert "No machine fits now" in watching.stderr.readline()
    watching.send_signal(signal.SIGINT)
    _, told = watching.communicate(timeout=120)
    assert watching.returncode == 130
    assert "moor logs -f train" in told
    assert api.sent("POST") == []


@pytest.mark.parametrize(("typed", "cancels"), [(b"cancel\n", True), (b"leave\n", False), (b"\n", False)])
def test_ctrl_c_on_a_terminal_asks_whether_to_cancel(api: StubApi, typed: bytes, cancels: bool) -> None:
    accept(api, run_of("train", "Pending", why="No machine fits now"))
    api.answers[f"POST {RUNS}/run-train/cancel"] = (200, {"run": run_of("train", "Pending")})
    command = [*MOOR, "run", "--name", "train", "--", "sleep", "9"]
    parent, child = pty.openpty()
    watching = subprocess.Popen(
        command, env={**os.environ, **api.env}, stdin=child, stdout=child, stderr=child, start_new_session=True
    )
    os.close(child)
    read_until(parent, b"No machine fits now")
    watching.send_signal(signal.SIGINT)
    read_until(parent, b"Cancel it, or leave it running?")
    accept(api, run_of("train", "Cancelled"))
    os.write(parent, typed)
    read_to_end(parent)
    assert watching.wait(timeout=120) == (1 if cancels else 130)
    os.close(parent)
    assert [r["path"] for r in api.sent("POST")] == ([f"{RUNS}/run-train/cancel"] if cancels else [])


def read_until(fd: int, wanted: bytes) -> bytes:
    """What the terminal showed up to and with the wanted words."""
    seen = b""
    while wanted not in seen:
        part = os.read(fd, 4096)
        assert part, f"{wanted!r} was not shown: {seen!r}"
        seen += part
    return seen


def read_to_end(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except OSError:  # the other side of a terminal is closed
        pass


def test_cancel_sends_why_and_says_what_comes(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"POST {RUNS}/train/cancel"] = (200, {"run": run_of("train", "Running")})
    assert main(["cancel", "train", "--why", "wrong data"], api.env) == 0
    assert api.sent("POST")[0]["body"] == {"text": "wrong data"}
    assert "train: will be cancelled" in capsys.readouterr().out


def test_stop_of_a_run_cancels_it(api: StubApi) -> None:
    api.answers[f"POST {RUNS}/train/cancel"] = (200, {"run": run_of("train", "Running")})
    assert main(["stop", "train"], api.env) == 0


def test_restart_says_whether_it_runs_anew(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"POST {RUNS}/train/restart"] = (200, {"run": run_of("train", "Pending", restarted_from="run-old")})
    assert main(["restart", "train"], api.env) == 0
    assert "train: runs anew" in capsys.readouterr().out


def test_a_run_is_applied_from_a_file_and_waited_for(
    api: StubApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accept(api, run_of("train", "Completed"))
    path = tmp_path / "train.yaml"
    path.write_text(
        "kind: Run\nname: train\ngroups: [{runtime: {command: [./train.sh], workdir: ./src}}]\n",
    )
    assert main(["apply", "-f", str(path), "--wait"], api.env) == 0
    assert capsys.readouterr().out.splitlines() == ["train: submitted", "train: Completed"]
    assert api.sent("PUT")[0]["body"]["groups"][0]["runtime"]["workdir"] == str(tmp_path / "src")


def test_a_run_cannot_be_waited_for_until_it_is_live(
    api: StubApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.yaml"
    path.write_text("kind: Run\nname: train\ngroups: [{runtime: {command: [x]}}]\n")
    assert main(["apply", "-f", str(path), "--for", "live"], api.env) == 2
    assert "cannot be waited for until live" in capsys.readouterr().err
    assert api.requests == []


def test_ls_shows_runs_below_deployments_and_hides_those_of_replicas(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = run_of("gemma-0-1", "Running", deployment="dep-gemma")
    items = [run_of("train", "Running"), replica]
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": [api.deployment("gemma")], "next": None})
    api.answers[f"GET {RUNS}"] = (200, {"items": items, "next": None})
    assert main(["ls"], api.env) == 0
    shown = capsys.readouterr().out
    assert "gemma " in shown
    assert "train " in shown
    assert "gemma-0-1" not in shown
    assert main(["ls", "runs", "--all", "-o", "json"], api.env) == 0
    assert [run["name"] for run in json.loads(capsys.readouterr().out)] == ["train", "gemma-0-1"]


def test_top_shows_machines_what_runs_and_the_queue_in_order(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    machine = {"kind": "Machine", "id": "mch-1", "name": "box-1", "state": "Ready", **OBJECT}
    machine |= {"capacity": {"cpu_milli": 8000, "memory_bytes": 64 << 30}, "allocated": {"cpu_milli": 2000}}
    machine["gpus"] = [{"index": 0, "holder": "held"}, {"index": 1, "holder": "free"}]
    api.answers["GET /machines"] = (200, {"items": [machine], "next": None})
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": [], "next": None})
    waiting = [run_of("second", "Pending", queue_position=2), run_of("first", "Pending", queue_position=1)]
    over = run_of("old", "Completed")
    items = [run_of("busy", "Running"), *waiting, over]
    api.answers[f"GET {RUNS}"] = (200, {"items": items, "next": None})
    assert main(["top"], api.env) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1 of 1 machines ready, 1 of 2 GPUs held, 2 of 8 cores")
    assert "waiting: 2" in shown
    assert shown.index("busy") < shown.index("first") < shown.index("second")
    assert "old" not in shown


def test_init_writes_a_run_that_is_valid_with_every_hint_taken(api: StubApi, tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    assert main(["init", "train", "--kind", "run", "--file", str(path)], api.env) == 0
    assert main(["validate", str(path)], api.env) == 0
    lines = path.read_text().splitlines()[2:]
    hinted = [line.replace("# ", "", 1) if line.strip().startswith("# ") else line for line in lines]
    kept = [line for line in hinted if not line.strip().startswith(("array", "depends_on", "image", "runner"))]
    path.write_text("\n".join(kept))
    assert main(["validate", str(path)], api.env) == 0


def test_the_program_that_the_readme_shows_runs_a_job_and_prints_its_output(
    api: StubApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    accept(api, run_of("train", "Completed"), {"line": "epoch 1"}, {"line": "epoch 2"})
    for name, value in api.env.items():
        monkeypatch.setenv(name, value)
    page = (Path(__file__).parents[3] / "README.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    exec(program, {})
    assert capsys.readouterr().out == "epoch 1\nepoch 2\n"


def test_a_label_that_nothing_has_is_named(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": [api.deployment("gemma")], "next": None})
    api.answers[f"GET {RUNS}"] = (200, {"items": [run_of("train", "Running")], "next": None})
    assert main(["ls", "-l", "team=x"], api.env) == 0
    assert "nothing has the label team=x" in capsys.readouterr().err


def test_a_wait_for_a_run_means_its_completion(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    accept(api, run_of("train", "Completed"))
    assert main(["wait", "train"], api.env) == 0
    assert capsys.readouterr().out == "train: Completed\n"


def test_several_runs_are_all_asked_to_end_before_any_is_waited_for(api: StubApi) -> None:
    for name in ("one", "two"):
        accept(api, run_of(name, "Cancelled"))
        api.answers[f"POST {RUNS}/{name}/cancel"] = (200, {"run": run_of(name, "Running")})
    assert main(["cancel", "one", "two", "--wait"], api.env) == 0
    asked = [r["path"] for r in api.requests if r["method"] == "POST" or r["path"].startswith(f"{RUNS}/one")]
    assert asked[:2] == [f"{RUNS}/one/cancel", f"{RUNS}/two/cancel"]


def test_deleted_runs_are_listed_with_who_deleted_them(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    reason = {"code": "run.deleted", "message": "Deleted by person:ada", "params": {"by": "person:ada"}}
    gone = {"name": "old", "state": "Completed", "id": "run-1", "actor": "controller:runs", "reason": reason}
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": [], "next": None})
    api.answers[f"GET {RUNS}"] = (200, {"items": [gone], "next": None})
    assert main(["ls", "--deleted"], api.env) == 0
    assert "person:ada" in capsys.readouterr().out


def test_deleted_runs_behind_replicas_are_listed_only_where_they_are_asked_for(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = {"name": "c-0-1", "state": "Pending", "id": "run-1", "deployment": "c"}
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": [], "next": None})
    api.answers[f"GET {RUNS}"] = (200, {"items": [gone], "next": None})
    assert main(["ls", "--deleted"], api.env) == 0
    assert "c-0-1" not in capsys.readouterr().out
    assert main(["ls", "--deleted", "--all"], api.env) == 0
    shown = capsys.readouterr().out
    assert "c-0-1" in shown
    assert "Pending" not in shown


def test_a_run_with_a_schedule_is_not_followed(
    api: StubApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accept(api, run_of("nightly", "Pending"))
    path = tmp_path / "nightly.yaml"
    path.write_text('kind: Run\nname: nightly\ngroups: [{runtime: {command: [x]}}]\nschedule: {cron: "0 3 * * *"}\n')
    assert main(["run", "-f", str(path)], api.env) == 0
    assert "nightly makes runs at its times" in capsys.readouterr().err
