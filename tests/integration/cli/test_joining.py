"""Machines that join by hand and machines that are removed, with real processes: `moor machines`, `moor agent join`."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.agent import agent
from moorage.app import home
from tests.ports import free_ports, free_range

LIMIT_S = 150.0


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come within {LIMIT_S} s")


class Machine:
    """The command in a home of its own, as on a machine of its own."""

    def __init__(self, root: Path) -> None:
        self.home = root
        first, last = free_range(4)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("MOORAGE_")}
        self.env = {**clean, "MOORAGE_HOME": str(root), "MOORAGE_AGENT_PORTS": f"{first}-{last}"}
        self.joined: list[subprocess.Popen[str]] = []

    def __call__(self, *args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*args), env=self.env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def well(self, *args: str) -> str:
        done = self(*args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "moorage.cli.main", *args]

    def start(self, *args: str) -> "subprocess.Popen[str]":
        """In the foreground, beside this test."""
        with self.log_of(len(self.joined)).open("w") as log:
            child = subprocess.Popen(self.command(*args), env=self.env, stdout=log, stderr=log, text=True)
        self.joined.append(child)
        return child

    def log_of(self, number: int) -> Path:
        return self.home.parent / f"{self.home.name}.{number}.log"

    def log(self, child: "subprocess.Popen[str]") -> str:
        return self.log_of(self.joined.index(child)).read_text()

    def states(self) -> dict[str, str]:
        """Of the machines in the cluster, by name."""
        found = self("machines", "-o", "json")
        return {m["name"]: m["state"] for m in json.loads(found.stdout)} if found.returncode == 0 else {}

    def agent_part(self) -> dict[str, Any]:
        return dict(json.loads((self.home / "supervisor.json").read_text())["parts"]["agent"])

    def end(self) -> None:
        for child in self.joined:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGINT)
            child.wait(LIMIT_S)


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Machine]:
    """A control plane with its own machine."""
    made = Machine(tmp_path / "first")
    api, gateway = free_ports(2)
    made.env |= {"MOORAGE_API": f"127.0.0.1:{api}", "MOORAGE_GATEWAY": f"127.0.0.1:{gateway}"}
    made.well("up")
    yield made
    made("down")


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Machine]:
    """A machine that belongs to nothing yet."""
    made = Machine(tmp_path / "second")
    yield made
    made.end()


def printed(first: Machine) -> tuple[str, str]:
    """URL and token of the command that `moor machines join-token` prints."""
    words = first.well("machines", "join-token").splitlines()[0].split()
    assert (words[:3], words[4]) == (["moor", "agent", "join"], "--token")
    return words[3], words[5]


def test_a_machine_joins_by_the_printed_command_works_and_goes_on_as_that_member(first: Machine, second: Machine):
    url, token = printed(first)
    child = second.start("agent", "join", url, "--token", token, "--name", "second")
    until(lambda: first.states().get("second") == "Ready" or child.poll() is not None, "the second machine")
    assert child.poll() is None, second.log(child)
    assert first.well("run", "--on", "second", "--", "sh", "-c", "echo worked there").strip() == "worked there"

    child.send_signal(signal.SIGINT)
    child.wait(LIMIT_S)
    second.start("agent")
    assert first.well("run", "--on", "second", "--", "sh", "-c", "echo again").strip() == "again"

    first.well("machines", "remove", "second", "--yes")
    assert second.joined[-1].wait(LIMIT_S) == 0
    assert "second" not in first.states()


def test_a_wrong_address_or_token_is_told_at_once_and_nothing_is_kept(first: Machine, second: Machine):
    url, token = printed(first)
    gateway = "http://" + first.env["MOORAGE_GATEWAY"]
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    for where, with_token, words in (
        (url, "moor-join.made.up", "does not take this join token"),
        (gateway, token, "not what a control plane does"),
        (nobody, token, "cannot be reached from here"),
        ("somewhere", token, "no address of a control plane"),
    ):
        done = second("agent", "join", where, "--token", with_token)
        assert done.returncode != 0
        assert words in done.stderr, done.stderr
        assert "to do:" in done.stderr
    assert not second.home.exists()
    refused = first("agent", "join", url, "--token", token)
    assert "belongs to its own control plane" in refused.stderr


def test_a_removed_machine_stays_out_until_somebody_runs_moor_up_again(first: Machine):
    (name,) = first.states()
    before = first.agent_part()["starts"]
    first.well("machines", "remove", name, "--yes")
    until(lambda: first.agent_part()["state"] == "removed", "the supervisor's word")
    assert (first.agent_part()["starts"], first.agent_part()["identity"], first.states()) == (before, None, {})
    again = first("up")
    assert again.returncode == 0, again.stderr
    assert "it joins anew" in again.stderr
    assert first.states() == {name: "Ready"}
    assert first.agent_part()["state"] == "running"


def test_both_sides_mean_the_same_mark():
    assert agent.REMOVED == home.REMOVED_MARK
