"""A control plane that is being started again is waited for; one that nobody starts is not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from scripted_server import URL, FakeTime

from moorage.client import Client
from moorage.client.address import find_address
from moorage.client.patience import Patience, PatientTransport, is_kept
from moorage.client.transports import BlockingTransport
from moorage.domain.errors import Unavailable

REFUSED = httpx.ConnectError("Connection refused")


class Restarting:
    """Refuses until a time, then answers; keeps the keys it was sent."""

    def __init__(self, clock: FakeTime, back_at: float, error: Exception = REFUSED) -> None:
        self.clock, self.back_at, self.error = clock, back_at, error
        self.keys: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.clock.now < self.back_at:
            raise self.error
        self.keys.append(request.headers.get("idempotency-key"))
        return httpx.Response(200, json={"items": [], "next": None})


def patient_client(server: Restarting, told: list[str], coming: bool = True) -> Client:
    clock = server.clock
    travels = BlockingTransport(URL, {}, httpx.MockTransport(server), monotonic=clock.monotonic, sleep=clock.sleep)
    return Client(URL, transport=PatientTransport(travels, Patience(told.append), lambda: coming))


def test_reads_and_changes_bear_a_restart_and_a_change_is_made_once():
    clock, told = FakeTime(), []
    server = Restarting(clock, clock.now + 5)
    patient_client(server, told).deployments.stop("gemma", key="k")
    assert server.keys == ["k"]
    server.back_at = clock.now + 5
    assert patient_client(server, told).deployments.list() == []


def test_it_is_said_once_and_only_when_it_takes_long():
    clock, told = FakeTime(), []
    server = Restarting(clock, clock.now + 0.5)
    client = patient_client(server, told)
    client.deployments.list()
    assert told == []
    server.back_at = clock.now + 5
    client.deployments.list()
    assert told == [f"waiting for the control plane at {URL}, for at most 14 s"]


@pytest.mark.parametrize("call", ["list", "stop"])
def test_after_the_limit_it_is_unreachable_as_ever(call: str):
    clock, told = FakeTime(), []
    client = patient_client(Restarting(clock, 1e9), told)
    with pytest.raises(Unavailable, match="no control plane answers"):
        client.deployments.list() if call == "list" else client.deployments.stop("gemma")
    assert 1014 <= clock.now <= 1017


def test_where_nobody_starts_it_again_the_refusal_is_told_at_once():
    clock, told = FakeTime(), []
    with pytest.raises(Unavailable):
        patient_client(Restarting(clock, 1e9), told, coming=False).deployments.list()
    assert (clock.now, told) == (1000.0, [])


def test_no_answer_to_a_request_that_was_seen_is_not_borne():
    clock, told = FakeTime(), []
    with pytest.raises(Unavailable):
        patient_client(Restarting(clock, 1e9, httpx.ReadTimeout("slow")), told).deployments.list()
    assert clock.now == 1000.0


def test_a_stream_bears_a_restart_at_its_beginning():
    clock, told = FakeTime(), []
    assert list(patient_client(Restarting(clock, clock.now + 3), told).deployments.logs("gemma"))
    assert told


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "client.json").write_text('{"url": "http://127.0.0.1:9001"}')
    return tmp_path


def record(home: Path, pid: int, started: str, state: str = "running") -> Path:
    (home / "supervisor.json").write_text(json.dumps({"supervisor": {"pid": pid, "started": started}, "state": state}))
    return home


def own_start() -> str:
    return Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]


def test_a_restart_is_expected_where_the_recorded_supervisor_runs(home: Path):
    assert is_kept(home)  # its record may not be written yet
    assert is_kept(record(home, os.getpid(), own_start()))


def test_no_restart_is_expected_of_a_supervisor_that_is_stopped_itself(home: Path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
        assert not is_kept(record(home, child.pid, started))
    finally:
        child.kill()
        child.wait()


def test_no_restart_is_expected_where_nothing_was_started_or_all_was_stopped(home: Path, tmp_path: Path):
    assert not is_kept(None)
    assert not is_kept(tmp_path / "elsewhere")
    assert not is_kept(record(home, os.getpid(), own_start(), "stopped"))
    assert not is_kept(record(home, os.getpid(), "1"))


def test_another_address_than_that_of_the_installation_is_not_its_own(home: Path):
    env = {"MOORAGE_HOME": str(home)}
    assert find_address(None, None, None, env).home == home
    assert find_address(None, None, None, {**env, "MOORAGE_URL": "http://127.0.0.1:9001/"}).home == home
    assert find_address(None, None, None, {**env, "MOORAGE_URL": "http://far:1"}).home is None
    assert find_address(None, None, None, {"MOORAGE_HOME": str(home / "none")}).home is None


def test_whoever_listens_is_told_whether_a_request_may_have_been_seen():
    clock, noted = FakeTime(), []
    server = Restarting(clock, clock.now + 0.3)
    travels = BlockingTransport(URL, {}, httpx.MockTransport(server), monotonic=clock.monotonic, sleep=clock.sleep)
    patience = Patience(lambda _: None, seen=noted.append)
    client = Client(URL, transport=PatientTransport(travels, patience, lambda: True))
    client.deployments.list()
    assert noted == [True, False, True, False, True]
    server.back_at, server.error = clock.now + 1e9, httpx.ReadError("broken")
    noted.clear()
    with pytest.raises(Unavailable):
        client.deployments.list()
    assert set(noted) == {True}
    server.error = REFUSED
    noted.clear()
    with pytest.raises(Unavailable):
        client.deployments.stop("gemma")
    assert False not in noted  # what broke before may have been acted on, and has not been answered since
