"""kill -9 of the control plane, the agent, or both, under traffic: nobody notices, and the same server is adopted."""

import pytest

from tests.acceptance.installation import Installation, Traffic, alive, until

pytestmark = pytest.mark.acceptance

SERVER, AGENT, GATEWAY = "moorage.app.server", "moorage.agent.main", "moorage.gateway.main"


@pytest.mark.parametrize("parts", [(SERVER,), (AGENT,), (SERVER, AGENT)], ids=["server", "agent", "both"])
def test_traffic_goes_on_and_the_same_server_process_is_adopted(own: Installation, parts: tuple[str, ...]) -> None:
    own.apply("steady")
    pid = own.server_pid("steady")
    traffic = Traffic(own, "steady")
    traffic.start()
    traffic.more(20)
    old = {part: own.kill_part(part) for part in parts}
    traffic.more(50)
    for part in parts:
        until(lambda p=part: own.part_pid(p) != old[p], f"a new {part}")
    until(lambda: _settled(own), "the installation to settle")
    traffic.more(50)
    traffic.end()
    assert traffic.failures == []
    assert own.server_pid("steady") == pid
    codes = own.codes("steady")
    assert "replica.failed" not in codes
    assert codes.count("container.started") == 1
    assert own.deployment("steady")["phase"] == "ACTIVE"


def _settled(installation: Installation) -> bool:
    done = installation.run("get", "deployment", "steady", "--output", "json")
    machines = installation.run("machines", "--output", "json")
    return done.returncode == 0 and '"ACTIVE"' in done.stdout and '"Ready"' in machines.stdout


def test_a_server_that_dies_while_the_agent_is_dead_is_replaced_and_its_exit_is_known(own: Installation) -> None:
    import os
    import signal

    own.apply("unlucky")
    pid = own.server_pid("unlucky")
    agent = own.part_pid(AGENT)
    os.kill(agent, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the server to be gone")
    os.kill(agent, signal.SIGKILL)
    until(lambda: own.request("unlucky").status_code == 200, "the replacement to answer")
    ended = next(e for e in own.events("unlucky") if e["reason"]["code"] == "exited")
    assert ended["reason"]["params"]["code"] == 137


def test_a_killed_gateway_comes_back_with_its_routes(own: Installation) -> None:
    own.apply("routed")
    old = own.kill_part(GATEWAY)
    until(lambda: own.part_pid(GATEWAY) != old, "a new gateway")
    until(lambda: _answers(own), "an answer")


def _answers(installation: Installation) -> bool:
    import httpx

    try:
        return installation.request("routed").status_code == 200
    except httpx.TransportError:
        return False


def test_down_leaves_nothing_running_and_up_brings_everything_back(own: Installation) -> None:
    own.apply("returning")
    pid = own.server_pid("returning")
    own.down()
    assert not alive(pid)
    assert own._find("moorage") is None
    own.up()
    until(lambda: own.phase("returning") == "ACTIVE", "it to serve again")
    assert own.request("returning").status_code == 200
    assert "replica.machine_drained" in own.codes("returning")


def test_a_cancel_while_the_control_plane_restarts_is_not_lost(own: Installation) -> None:
    own.apply("doomed")
    pid = own.server_pid("doomed")
    own.moor("stop", "doomed")
    own.kill_part(SERVER)
    until(lambda: not alive(pid), "the stop to be carried out")
    until(lambda: own.run("get", "deployment", "doomed").returncode == 0, "the control plane")
    own.moor("wait", "doomed", "--for", "stopped")
