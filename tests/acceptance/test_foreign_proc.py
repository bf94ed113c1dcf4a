"""The line holds where /proc counts the processes of another pid namespace, as in a container with its host's /proc."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(
        os.getuid() != 0 or shutil.which("unshare") is None, reason="only root may make a pid namespace by itself"
    ),
]

INSIDE = str(Path(__file__).with_name("the_line_inside.py"))


def test_up_serve_crash_adopt_and_down_hold_under_the_proc_of_another_namespace(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", sys.executable, INSIDE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["depth"] > 0
    assert said["while_up"] >= 4  # the supervisor and its three parts: what is looked for at the end can be seen
    assert (said["replaced"], said["adopted"]) == (True, True)
    assert (said["server_alive"], said["left"]) == (False, [])
