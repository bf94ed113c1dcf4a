"""`moor up` and `moor down`: once, again, after accidents, and never at a stranger's expense."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.runners.shimming.kernel import stat_fields
from tests.ports import free_ports, free_range

LIMIT_S = 150.0
FAKE = str(Path(__file__).parents[2] / "servers" / "fake_model.py")


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come within {LIMIT_S} s")


class Moor:
    """The command in a home of its own."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.umask = -1  # as it is
        self.api, self.gateway = free_ports(2)
        first, last = free_range(10)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("MOORAGE_")}
        self.env = {
            **clean,
            "MOORAGE_HOME": str(self.home),
            "MOORAGE_AGENT_PORTS": f"{first}-{last}",
            "MOORAGE_API": f"127.0.0.1:{self.api}",
            "MOORAGE_GATEWAY": f"127.0.0.1:{self.gateway}",
        }

    def __call__(self, *args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "moorage.cli.main", *args],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            umask=self.umask,
        )

    def well(self, *args: str) -> str:
        done = self(*args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def record(self) -> dict[str, Any]:
        return dict(json.loads((self.home / "supervisor.json").read_text()))

    def pids(self) -> dict[str, int]:
        parts = self.record()["parts"]
        return {name: part["identity"]["pid"] for name, part in parts.items() if part["identity"]}

    def model(self, name: str) -> int:
        return int(json.loads(self.well("workers", name, "-o", "json"))[0]["process"]["pid"])

    def kill_supervisor(self) -> None:
        pid = self.record()["supervisor"]["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: not running(pid), "the supervisor's end")


def running(pid: int) -> bool:
    fields = stat_fields(pid)
    return fields is not None and fields[0] not in b"ZX"


@pytest.fixture
def moor(tmp_path: Path) -> Iterator[Moor]:
    made = Moor(tmp_path)
    yield made
    made("down")


def test_up_answers_on_both_addresses_and_again_changes_nothing(moor: Moor):
    first = moor.well("up")
    assert first.startswith("up\n")
    assert f"http://127.0.0.1:{moor.api}" in first
    before = moor.pids()
    assert moor.well("up").startswith("already up\n")
    assert moor.pids() == before
    machines = json.loads(moor.well("machines", "-o", "json"))
    assert [machine["state"] for machine in machines] == ["Ready"]
    for private in ("client.json", "run/server.json", "tokens/admin"):
        assert stat.S_IMODE((moor.home / private).stat().st_mode) == 0o600
    assert stat.S_IMODE(moor.home.stat().st_mode) == 0o700


def test_down_ends_every_part_and_again_changes_nothing(moor: Moor):
    moor.well("up")
    pids = moor.pids()
    assert moor.well("down") == "down\n"
    assert not any(running(pid) for pid in pids.values())
    assert moor.well("down") == "already down\n"


def test_down_without_any_home_makes_none(moor: Moor):
    assert moor.well("down") == "already down\n"
    assert not moor.home.exists()


def test_after_a_killed_supervisor_up_adopts_the_parts_that_live_on(moor: Moor):
    moor.well("up")
    before = moor.pids()
    moor.kill_supervisor()
    assert all(running(pid) for pid in before.values())
    moor.well("up")
    assert moor.pids() == before


@pytest.mark.slow
def test_after_a_killed_supervisor_down_still_ends_the_parts(moor: Moor):
    moor.well("up")
    before = moor.pids()
    moor.kill_supervisor()
    assert moor.well("down") == "down\n"
    assert not any(running(pid) for pid in before.values())


@pytest.mark.slow
def test_a_stale_record_of_another_process_is_no_hindrance_and_that_process_lives(moor: Moor):
    stranger = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        stale = {"pid": stranger.pid, "started": "1", "boot_id": "of an earlier boot"}
        moor.home.mkdir()
        parts = {name: {"identity": stale, "digest": "old"} for name in ("server", "agent", "gateway")}
        (moor.home / "supervisor.json").write_text(json.dumps({"supervisor": stale, "parts": parts}))
        assert moor.well("up").startswith("up\n")
        assert moor.well("down") == "down\n"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_port_in_use_is_refused_with_its_owner_and_nothing_is_started(moor: Moor):
    with socket.create_server(("127.0.0.1", moor.gateway)):
        done = moor("up")
    assert done.returncode == 1
    assert f"127.0.0.1:{moor.gateway}" in done.stderr
    assert f"(pid {os.getpid()})" in done.stderr
    assert "--gateway-port" in done.stderr
    assert not (moor.home / "supervisor.json").exists()


def test_a_part_that_cannot_start_fails_up_with_its_log_and_leaves_nothing_running(moor: Moor):
    moor.env["MOORAGE_DATABASE_URL"] = f"sqlite:///{moor.home}/no/such/folder/moorage.db"
    done = moor("up", "--timeout", "110")
    assert done.returncode == 1
    assert "the server keeps dying" in done.stderr
    assert "last lines of its log" in done.stderr
    assert moor.record()["state"] == "stopped"
    assert moor.pids() == {}


def test_up_on_other_addresses_while_up_is_refused_and_says_what_to_do(moor: Moor):
    moor.well("up")
    done = moor("up", "--port", str(free_ports(1)[0]))
    assert done.returncode == 1
    assert "moor down" in done.stderr


@pytest.mark.slow
def test_up_again_without_its_options_finds_the_addresses_that_are_up(moor: Moor):
    del moor.env["MOORAGE_API"], moor.env["MOORAGE_GATEWAY"]
    moor.well("up", "--port", str(moor.api), "--gateway-port", str(moor.gateway))
    again = moor.well("up")
    assert again.startswith("already up\n")
    assert f"http://127.0.0.1:{moor.api}\n" in again


@pytest.mark.slow
def test_model_servers_outlive_a_kept_down_and_end_with_a_whole_one_even_without_their_agent(moor: Moor):
    moor.well("up")
    moor.well("serve", "--name", "m", "--model-id", "m", "--", sys.executable, FAKE, "--model", "m", "--port", "{port}")
    model = moor.model("m")
    assert moor.well("down", "--keep").startswith("down;")
    assert running(model)
    moor.well("up")
    moor.well("wait", "m", "--for", "live")
    assert moor.model("m") == model
    moor.kill_supervisor()
    os.kill(moor.pids()["agent"], signal.SIGKILL)
    assert running(model)
    assert moor.well("down") == "down\n"
    until(lambda: not running(model), "the model server's end")


def test_a_killed_part_is_back_without_anybody_asking(moor: Moor):
    moor.well("up")
    before = moor.pids()
    os.kill(before["server"], signal.SIGKILL)
    until(lambda: moor.pids().get("server", before["server"]) != before["server"], "a new server")
    until(lambda: moor("machines").returncode == 0, "its answer")
    assert moor.pids()["gateway"] == before["gateway"]


def test_without_a_control_plane_commands_say_so_with_exit_code_five(moor: Moor):
    done = moor("ls")
    assert done.returncode == 5
    assert "moor up" in done.stderr


@pytest.mark.slow
def test_up_after_the_cause_of_a_failed_one_is_mended_starts_afresh(moor: Moor):
    moor.well("up")
    moor.well("down")
    database = moor.home / "moorage.db"
    good = database.read_bytes()
    database.write_bytes(os.urandom(len(good)))
    assert "the server keeps dying" in moor("up").stderr
    stale = moor.record()
    assert stale["parts"]["server"]["failures"] >= 3
    assert stale["state"] == "stopped"
    for file in moor.home.glob("moorage.db*"):
        file.unlink()
    database.write_bytes(good)
    assert moor.well("up").startswith("up\n")


@pytest.mark.slow
def test_up_without_its_options_after_a_killed_supervisor_leaves_the_addresses_and_the_parts(moor: Moor):
    del moor.env["MOORAGE_API"], moor.env["MOORAGE_GATEWAY"]
    moor.well("up", "--port", str(moor.api), "--gateway-port", str(moor.gateway))
    before = moor.pids()
    moor.kill_supervisor()
    again = moor.well("up")
    assert f"http://127.0.0.1:{moor.api}\n" in again
    assert "addresses are those of the last time" in again
    assert moor.pids() == before
    rows = {row["name"]: row for row in json.loads(moor.well("config", "show", "-o", "json"))}
    assert rows["MOORAGE_URL"]["value"] == f"http://127.0.0.1:{moor.api}"
    assert rows["MOORAGE_URL"]["source"] == rows["MOORAGE_TOKEN"]["source"] == str(moor.home / "client.json")
    assert rows["MOORAGE_GATEWAY"]["source"] == str(moor.home / "run" / "gateway.json")


def test_up_with_one_port_for_both_is_refused_at_once(moor: Moor):
    done = moor("up", "--port", str(moor.api), "--gateway-port", str(moor.api))
    assert done.returncode == 2
    assert "cannot listen on the same port" in done.stderr
    assert not moor.home.exists()


def test_what_up_writes_is_for_its_owner_and_model_servers_keep_the_users_umask(moor: Moor):
    moor.umask = 0o026
    moor.well("up")
    said = moor.home.parent / "umask"
    script = f'umask > {said}; exec "$0" "$@"'
    model = (sys.executable, FAKE, "--model", "m", "--port", "{port}")
    moor.well("serve", "--name", "m", "--model-id", "m", "--", "/bin/sh", "-c", script, *model)
    assert int(said.read_text(), 8) == 0o026
    ours = [*moor.home.glob("*"), *moor.home.glob("gateway/*"), *moor.home.glob("logs/*"), *moor.home.glob("run/*")]
    assert {"moorage.db", "ready", "gateway"} <= {path.name for path in ours}
    open_to_others = [path for path in ours if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert open_to_others == []
