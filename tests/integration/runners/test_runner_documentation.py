"""The page and the example of the runner library, run as a reader would run them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from runner_world import FAKE_MODEL

from moorage.runners import RunnerSettings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "runners.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def _run(code: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, *code],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_page_runs(number: int, tmp_path: Path) -> None:
    shutil.copy(FAKE_MODEL, tmp_path / "server.py")
    assert _run(["-c", BLOCKS[number]], tmp_path).strip()


def test_the_page_has_blocks_to_run() -> None:
    assert len(BLOCKS) >= 3


def test_the_example_shows_a_crash_and_an_answer_after_it(tmp_path: Path) -> None:
    said = _run([str(ROOT / "examples" / "runner_library.py")], tmp_path)
    assert "killed by signal 9" in said
    assert "you said: still there?" in said


def test_the_page_lists_every_setting() -> None:
    missing = [name for name in RunnerSettings.__slots__ if f"`{name}`" not in PAGE]
    assert not missing
