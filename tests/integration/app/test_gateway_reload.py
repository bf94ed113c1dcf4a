"""`moor gateway --reload`: new processes with the settings of now, and what is said when they cannot start."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import moorage

PATIENCE_S = 90.0


def command(**options: Any) -> list[str]:
    return [sys.executable, "-P", "-m", "moorage.app.commands", "gateway", json.dumps(options)]


def told(home: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((home / "gateway" / "master.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    plain = {k: v for k, v in os.environ.items() if not k.startswith("MOORAGE_")}
    # its control plane does not answer, which keeps no gateway from serving
    return plain | {
        "MOORAGE_HOME": str(tmp_path),
        "MOORAGE_GATEWAY": f"127.0.0.1:{port}",
        "MOORAGE_URL": "http://127.0.0.1:9",
    }


def wait_until_it_serves(directory: Path, running: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while told(directory).get("state") != "serving":
        assert running.poll() is None, (directory / "gateway.log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def running_gateway(home: Path, env: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    log = (home / "gateway.log").open("wb")
    running = subprocess.Popen(command(), env=env, stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_until_it_serves(home, running)
        yield running
    finally:
        running.send_signal(signal.SIGTERM)
        code = running.wait(PATIENCE_S)
    assert code == 0


@pytest.fixture
def gateway(tmp_path: Path, env: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    with running_gateway(tmp_path, env) as running:
        yield running


def reload(env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    words = command(reload=True, output="json")
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def test_settings_of_now_are_taken_up_and_bad_ones_leave_all_as_it_was(
    tmp_path: Path, env: dict[str, str], gateway: "subprocess.Popen[bytes]"
) -> None:
    before = told(tmp_path)
    done = reload(env | {"MOORAGE_GATEWAY_PROCESSES": "2"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["processes"] == 2
    after = told(tmp_path)
    assert after["identity"]["pid"] == before["identity"]["pid"] == gateway.pid
    assert not set(after["workers"]) & set(before["workers"])
    config = (tmp_path / "run" / "gateway.json").read_text()
    nowhere = {"MOORAGE_GATEWAY_TLS_CERTIFICATE": "/nowhere.pem", "MOORAGE_GATEWAY_TLS_KEY": "/nowhere.pem"}
    failed = reload(env | nowhere)
    assert failed.returncode != 0
    assert "/nowhere.pem" in failed.stderr
    assert '"event"' not in failed.stderr, "the log's own lines are for the log"
    assert str(tmp_path / "logs" / "gateway.log") in failed.stderr
    assert told(tmp_path)["workers"] == after["workers"]
    assert (tmp_path / "run" / "gateway.json").read_text() == config, "the next start is not spoilt either"


@pytest.mark.slow
def test_a_build_that_cannot_be_used_is_told_by_a_reload_and_its_lack_is_not(
    tmp_path: Path, env: dict[str, str]
) -> None:
    package, copy = Path(moorage.__file__).parent, tmp_path / "copy" / "moorage"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__", "accelerated"))
    env |= {"PYTHONPATH": str(copy.parent)}
    with running_gateway(tmp_path, env):
        (copy / "accelerated").mkdir()
        manifest = copy / "accelerated" / "manifest.json"
        manifest.write_text("{")
        done = json.loads(reload(env).stdout)
        assert (done["accelerators"], done["accelerators_unused"]) == ([], f"{manifest} cannot be read: it is not JSON")
        words = subprocess.run(
            command(reload=True), env=env, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
        first, second = words.stdout.splitlines()
        assert first.startswith("reloaded: 1 new process at ")
        assert second.startswith(f"accelerators in use: none, since {manifest} cannot be read: it is not JSON; `make ")
        manifest.unlink()
        done = json.loads(reload(env).stdout)
        assert (done["accelerators"], done["accelerators_unused"]) == ([], "")


def test_with_nothing_to_reload_that_is_said(tmp_path: Path, env: dict[str, str]) -> None:
    failed = reload(env)
    assert failed.returncode != 0
    assert "no gateway" in failed.stderr
    assert "moor up" in failed.stderr


def test_the_unit_for_systemd_has_the_settings_and_no_secret(tmp_path: Path, env: dict[str, str]) -> None:
    given = env | {"MOORAGE_TOKEN": "a-secret", "MOORAGE_GATEWAY_PROCESSES": "3"}
    done = subprocess.run(command(service=True), env=given, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert 'Environment="MOORAGE_GATEWAY_PROCESSES=3"' in lines
    assert f'Environment="MOORAGE_HOME={tmp_path}"' in lines
    assert "KillMode=process" in lines
    assert any(line.startswith("ExecReload=") and line.endswith("gateway --reload") for line in lines)
    assert "a-secret" not in done.stdout


def test_a_second_gateway_of_one_home_is_refused_and_takes_nothing_from_the_first(
    tmp_path: Path, env: dict[str, str], gateway: "subprocess.Popen[bytes]"
) -> None:
    config, before = (tmp_path / "run" / "gateway.json").read_text(), told(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        other = free.getsockname()[1]
    refused = subprocess.run(
        command(gateway_port=other), env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert refused.returncode not in (0, None)
    assert f"runs already at http://{before['address']} (pid {gateway.pid})" in refused.stderr
    assert "MOORAGE_HOME" in refused.stderr
    assert (tmp_path / "run" / "gateway.json").read_text() == config
    # one that was not asked before, as a supervisor starts it, finds the lock as well
    main = [sys.executable, "-P", "-m", "moorage.gateway.main", "--config", str(tmp_path / "run" / "gateway.json")]
    late = subprocess.run(main, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert late.returncode == 1
    assert "runs already" in late.stderr
    assert told(tmp_path) == before
    assert reload(env).returncode == 0
