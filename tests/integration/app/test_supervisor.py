"""The supervisor keeps its parts running, outlives nothing it should not, and hits nobody else's process."""

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

from moorage.app import processes
from moorage.app.home import PARTS, Home, write_private
from moorage.app.processes import Identity
from moorage.app.supervisor import LOG_LIMIT_BYTES, bound_logs, retry_delay_s

HERE = Path(__file__).parent
PATIENCE_S = 90.0
ENV = {**os.environ, "PYTHONPATH": str(HERE)}


def until(condition: Callable[[], Any], what: str, limit_s: float = PATIENCE_S) -> Any:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come within {limit_s} s")


class Stage:
    """A home with three stub parts."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root / "home", modules=dict.fromkeys(PARTS, "stub_part"))
        self.home.make()
        self.supervisors: list[subprocess.Popen[bytes]] = []
        self.seen: set[int] = set()
        for part in PARTS:
            write_private(self.home.config(part), "{}")

    def start(self) -> "subprocess.Popen[bytes]":
        child = subprocess.Popen(
            [sys.executable, str(HERE / "supervise.py"), str(self.home.root)],
            env=ENV,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.supervisors.append(child)
        return child

    def parts(self) -> dict[str, Any]:
        return self.home.read_record().get("parts", {})

    def identity(self, part: str) -> Identity | None:
        found = Identity.from_wire(self.parts().get(part, {}).get("identity"))
        if found is not None and processes.alive(found):
            self.seen.add(found.pid)
            return found
        return None

    def all_running(self, other_than: "dict[str, Identity] | None" = None) -> dict[str, Identity]:
        def look() -> "dict[str, Identity] | None":
            now = {p: self.identity(p) for p in PARTS}
            started = sum(line.startswith("started") for line in self.journal())
            if None in now.values() or started < 3:
                return None
            return {p: i for p, i in now.items() if i} if now != other_than else None

        return until(look, "all parts running")

    def journal(self) -> list[str]:
        try:
            return (self.home.root / "run" / "journal").read_text().splitlines()
        except FileNotFoundError:
            return []

    def close(self) -> None:
        for child in self.supervisors:
            if child.poll() is None:
                child.terminate()
                child.wait(PATIENCE_S)
        for part in PARTS:
            for left in processes.find_by_command(self.home.command(part)):
                processes.send(left, signal.SIGKILL)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def test_a_part_that_is_killed_is_started_again(stage: Stage):
    stage.start()
    before = stage.all_running()
    processes.send(before["gateway"], signal.SIGKILL)
    after = stage.all_running(other_than=before)
    assert after["gateway"] != before["gateway"]
    assert {p: after[p] for p in ("server", "agent")} == {p: before[p] for p in ("server", "agent")}
    assert stage.parts()["gateway"]["last_exit"] == "killed by SIGKILL"


def test_a_killed_supervisor_takes_nothing_down_and_the_next_one_adopts_the_same_processes(stage: Stage):
    first = stage.start()
    before = stage.all_running()
    first.kill()
    first.wait()
    assert all(processes.alive(identity) for identity in before.values())
    stage.start()
    until(lambda: all(stage.parts().get(part, {}).get("adopted") for part in PARTS), "adoption")
    assert {p: stage.identity(p) for p in PARTS} == before
    processes.send(before["agent"], signal.SIGKILL)
    after = stage.all_running(other_than=before)
    assert after["agent"] != before["agent"]


def test_a_part_of_another_configuration_is_replaced_not_adopted(stage: Stage):
    first = stage.start()
    before = stage.all_running()
    first.kill()
    first.wait()
    write_private(stage.home.config("gateway"), '{"changed": true}')
    stage.start()
    after = stage.all_running(other_than=before)
    assert after["gateway"] != before["gateway"]
    assert after["server"] == before["server"]
    assert not processes.alive(before["gateway"])


def test_a_part_started_but_not_yet_written_down_is_found_by_its_command_line(stage: Stage):
    first = stage.start()
    before = stage.all_running()
    first.kill()
    first.wait()
    stage.home.record.unlink()
    stage.start()
    after = stage.all_running(other_than=before)
    assert set(after.values()).isdisjoint(before.values())
    assert not any(processes.alive(identity) for identity in before.values())


def test_a_foreign_process_under_a_recorded_pid_is_never_signalled(stage: Stage):
    stranger = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        real = until(lambda: processes.identify(stranger.pid), "the stranger")
        stale = {**real.to_wire(), "started": "1"}
        record = {"supervisor": stale, "parts": {p: {"identity": stale, "digest": "old"} for p in PARTS}}
        write_private(stage.home.record, json.dumps(record))
        supervisor = stage.start()
        stage.all_running()
        supervisor.terminate()
        assert supervisor.wait(PATIENCE_S) == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_the_agent_stops_first_and_the_server_last(stage: Stage):
    supervisor = stage.start()
    stage.all_running()
    supervisor.terminate()
    assert supervisor.wait(PATIENCE_S) == 0
    assert [line for line in stage.journal() if line.startswith("stopped")] == [
        "stopped agent",
        "stopped gateway",
        "stopped server",
    ]
    assert stage.home.read_record()["state"] == "stopped"


def test_a_second_supervisor_of_the_same_home_leaves_at_once(stage: Stage):
    stage.start()
    before = stage.all_running()
    second = stage.start()
    assert second.wait(PATIENCE_S) == 0
    assert {p: stage.identity(p) for p in PARTS} == before


def test_a_part_that_dies_again_and_again_is_counted_and_the_others_stay(stage: Stage):
    stage.home.config("gateway").with_suffix(".broken").touch()
    stage.start()
    until(lambda: stage.parts().get("gateway", {}).get("failures", 0) >= 3, "three failures")
    assert stage.parts()["gateway"]["last_exit"] == "exited with code 3"
    assert stage.identity("server") is not None
    assert "cannot start: broken" in processes.tail(stage.home.log("gateway"))
    stage.home.config("gateway").with_suffix(".broken").unlink()
    stage.all_running()


def test_the_first_death_is_answered_at_once_and_further_ones_wait_longer_up_to_five_seconds():
    assert [retry_delay_s(n) for n in range(7)] == [0.0, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_full_log_is_set_aside_and_its_writer_goes_on(tmp_path: Path):
    home = Home(tmp_path)
    home.make()
    with home.log("server").open("ab") as writer:
        writer.write(b"x" * (LOG_LIMIT_BYTES + 1))
        writer.flush()
        bound_logs(home)
        writer.write(b"after\n")
    assert home.log("server").read_bytes() == b"after\n"
    assert home.log("server").with_suffix(".log.1").stat().st_size == LOG_LIMIT_BYTES + 1


def test_tokens_and_configurations_are_for_their_owner_only(tmp_path: Path):
    home = Home(tmp_path / "home")
    home.make()
    home.token("admin")
    write_private(home.client, "{}")
    assert (home.root.stat().st_mode & 0o777, home.client.stat().st_mode & 0o777) == (0o700, 0o600)
    assert (home.root / "tokens" / "admin").stat().st_mode & 0o777 == 0o600
