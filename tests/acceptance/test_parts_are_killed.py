"""kill -9 of the control plane, the agent, or both, under traffic: nobody notices, and the same server is adopted."""

import httpx
import pytest

from tests.acceptance.installation import Installation, Traffic, alive, until

pytestmark = pytest.mark.acceptance

SERVER, AGENT, GATEWAY = "moorage.app.server", "moorage.agent.main", "moorage.gateway.main"


KILLED = {"server": (SERVER,), "agent": (AGENT,), "both": (SERVER, AGENT)}


@pytest.mark.parametrize("killed", KILLED)
def test_traffic_goes_on_and_the_same_server_process_is_adopted(shared: Installation, killed: str) -> None:
    name, parts = f"without-{killed}", KILLED[killed]
    shared.apply(name)
    pid = shared.server_pid(name)
    traffic = Traffic(shared, name)
    traffic.start()
    traffic.more(20)
    old = {part: shared.kill_part(part) for part in parts}
    traffic.more(50)
    for part in parts:
        until(lambda p=part: shared.part_pid(p) != old[p], f"a new {part}")
    until(lambda: _settled(shared, name), "the installation to settle")
    traffic.more(50)
    traffic.end()
    assert traffic.failures == []
    assert shared.server_pid(name) == pid
    codes = shared.codes(name)
    assert "replica.failed" not in codes
    assert codes.count("container.started") == 1
    assert shared.deployment(name)["phase"] == "ACTIVE"


def _settled(installation: Installation, name: str) -> bool:
    try:
        (machine,) = installation.asked("machines")["items"]
        return installation.phase(name) == "ACTIVE" and machine["state"] == "Ready"
    except httpx.HTTPError:
        return False


def test_a_server_that_dies_while_the_agent_is_dead_is_replaced_and_its_exit_is_known(shared: Installation) -> None:
    import os
    import signal

    shared.apply("unlucky")
    pid = shared.server_pid("unlucky")
    agent = shared.part_pid(AGENT)
    os.kill(agent, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the server to be gone")
    os.kill(agent, signal.SIGKILL)
    until(lambda: shared.request("unlucky").status_code == 200, "the replacement to answer")
    ended = next(e for e in shared.events("unlucky") if e["reason"]["code"] == "exited")
    assert ended["reason"]["params"]["code"] == 137


def test_a_killed_gateway_comes_back_with_its_routes(shared: Installation) -> None:
    shared.apply("routed")
    old = shared.kill_part(GATEWAY)
    until(lambda: shared.part_pid(GATEWAY) != old, "a new gateway")
    until(lambda: _answers(shared), "an answer")


def _answers(installation: Installation) -> bool:
    try:
        return installation.request("routed").status_code == 200
    except httpx.TransportError:
        return False


def test_down_leaves_nothing_running_and_up_brings_everything_back(shared: Installation) -> None:
    shared.apply("returning")
    pid = shared.server_pid("returning")
    shared.down()
    assert not alive(pid)
    assert shared._find("moorage") is None
    shared.up()
    until(lambda: shared.phase("returning") == "ACTIVE", "it to serve again")
    assert shared.request("returning").status_code == 200
    assert "replica.machine_drained" in shared.codes("returning")


def test_a_cancel_while_the_control_plane_restarts_is_not_lost(shared: Installation) -> None:
    shared.apply("doomed")
    pid = shared.server_pid("doomed")
    shared.moor("stop", "doomed")
    shared.kill_part(SERVER)
    until(lambda: not alive(pid), "the stop to be carried out")
    until(lambda: shared.run("get", "deployment", "doomed").returncode == 0, "the control plane")
    shared.moor("wait", "doomed", "--for", "stopped")
