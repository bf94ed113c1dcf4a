"""The example of a gang on a real control plane with two agents: a sum that needs all four workers on both machines."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import moorage
from tests.acceptance.installation import PATIENCE_S, Installation, until
from tests.ports import free_range

pytestmark = pytest.mark.acceptance

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SHARE = 0.4
"""Of a machine's CPUs for each worker: two fit on one, and no third."""


@pytest.fixture
def second(own: Installation, tmp_path: Path) -> Iterator[str]:
    """A second agent on this host, with a home and ports of its own; its machine's name."""
    config = {
        "server_url": f"http://127.0.0.1:{own.api}",
        "name": "box-2",
        "home": str(tmp_path / "agent2"),
        "token": (own.home / "tokens" / "agent_join").read_text().strip(),
        "ports": free_range(10),
        "stop_workers_on_exit": True,
    }
    path = tmp_path / "agent2.json"
    path.write_text(json.dumps(config))
    with (tmp_path / "agent2.log").open("wb") as log:
        agent = subprocess.Popen([sys.executable, "-m", "moorage.agent.main", "--config", str(path)], stderr=log)
    yield "box-2"
    agent.terminate()
    agent.wait(PATIENCE_S)


def test_four_workers_on_two_machines_start_together_and_sum(own: Installation, second: str) -> None:
    client = moorage.Client(home=own.home)
    until(lambda: {m["name"]: m["state"] for m in client.machines.list()}.get(second) == "Ready", "two machines")
    milli = int(len(os.sched_getaffinity(0)) * 1000 * SHARE)
    group = {
        "name": "ring",
        "count": 4,
        "runtime": {"command": [sys.executable, str(EXAMPLES / "all_reduce.py"), "--steps", "2"]},
        "resources": {"cpu": f"{milli}m"},
    }
    client.runs.apply(moorage.Run.model_validate({"name": "sum", "gang": True, "groups": [group]}))
    run = dict(client.runs.wait("sum", "completed", timeout_s=PATIENCE_S, interval_s=0.1).last)
    assert (run["state"], run["exit_code"]) == ("Completed", 0)
    workers = own.json("workers", "sum")
    assert len({w["machine"] for w in workers}) == 2
    said = [line["line"] for line in client.runs.logs("sum")]
    assert said.count("step 2: the sum over 4 ranks is 20") >= 1
