"""`moor simulate` as people start it: on the example, with every form of output, interrupted, and with bad input."""

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
MOOR = (sys.executable, "-m", "moorage.cli.main")
SAMPLE = ("--machines", "examples/traces/machines.csv", "--trace", "examples/traces/tasks.csv")


def moor(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run((*MOOR, *words), cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def form(line: str) -> str:
    """A line without its figures, which change as the scheduler does."""
    return re.sub(r" +", " ", re.sub(r"[0-9][0-9.,]*", "N", line))


def test_the_example_of_the_page_prints_what_the_page_shows_but_for_the_figures() -> None:
    page = (ROOT / "docs" / "simulate.md").read_text()
    (command,) = re.findall(r"^```sh\nmoor (.*)\n```", page, re.MULTILINE)
    (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    done = moor(*shlex.split(command))
    assert done.returncode == 0, done.stderr
    assert [form(line) for line in shown.splitlines()] == [form(line) for line in done.stdout.splitlines()[2:6]]
    assert "No machine could ever take it" in done.stdout
    assert "fgd: 100 % of 261 tasks submitted" in done.stderr


def result(*words: str) -> dict[str, Any]:
    done = moor("simulate", *SAMPLE, "--output", "json", "--hours", "12", *words)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    for policy in report["policies"]:
        assert policy.pop("effort")["cycles"] > 0
    return report


def test_the_same_seed_prints_the_same_json_and_another_one_does_not(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    first = result("--policy", "random", "--policy", "fgd", "--seed", "3", "--out", str(page))
    assert first == result("--policy", "random", "--policy", "fgd", "--seed", "3")
    other = result("--policy", "random", "--seed", "4")
    assert first["policies"][0]["series"] != other["policies"][0]["series"]
    assert [policy["policy"] for policy in first["policies"]] == ["random", "fgd"]
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert text.count("<svg viewBox") >= 4
    assert not re.search(r"<script|https?://|src=|@import|url\(", text), "the page needs something else"


@pytest.mark.slow
def test_ctrl_c_ends_the_simulation_with_the_report_so_far() -> None:
    words = ("simulate", *SAMPLE, "--scale", "2000", "--output", "json")
    process = subprocess.Popen(
        (*MOOR, *words), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        assert process.stderr is not None
        assert "tasks submitted" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    report = json.loads(out)
    assert report["interrupted"]
    assert 0 < report["policies"][0]["submitted"] < report["tasks"]


def test_a_bad_file_is_one_block_that_says_where_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("submit_s,duration_s,gpus,cpu,memory_gib\n0,x,1,1,1\n")
    done = moor("simulate", "--machines", SAMPLE[1], "--trace", str(tmp_path / "t.csv"))
    assert done.returncode == 2
    assert f"{tmp_path}/t.csv, line 2, column duration_s: 'x' is not a number" in done.stderr
    assert "to do:" in done.stderr
    assert done.stdout == ""


def test_what_cannot_be_written_or_is_no_stretch_of_hours_is_said_before_anything_is_played(tmp_path: Path) -> None:
    done = moor("simulate", *SAMPLE, "--out", str(tmp_path / "no" / "report.html"))
    assert done.returncode == 2
    assert "its folder does not exist" in done.stderr
    done = moor("simulate", *SAMPLE, "--hours", "9:3")
    assert done.returncode == 2
    assert "is no stretch of hours" in done.stderr
