"""An agent whose folder was lost ends what it cannot know of and can prove, and nothing else."""

import json
import os
import shutil
import signal
import sys

import pytest
from agent_plane import FakePlane, until_true
from agent_work import job, server

from moorage.runners.identity import alive, identity_from, read_fields
from moorage.runners.shimming.kernel import start_ticks

W = "wrk-1"

SCRUBBED = (
    "import os,signal,subprocess,sys,time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen(['/bin/sleep', '1000'], env={}, start_new_session=True)\n"
    "open(sys.argv[1], 'w').write(str(child.pid))\n"
    "time.sleep(1000)\n"
)
"""A worker with a descendant that carries nothing of ours, in a session of its own."""


@pytest.fixture
def swept():
    """Processes that a failed test would leave."""
    seen: list[tuple[int, int]] = []
    yield seen
    for pid, ticks in seen:
        if alive(pid, ticks):
            os.kill(pid, signal.SIGKILL)


def known(swept, pid):
    swept.append((pid, start_ticks(pid)))
    return swept[-1]


def shim_of(home):
    (path,) = home.glob(f"workers/{W}/*/identity")
    return identity_from(read_fields(path.read_text())).shim_pid


@pytest.fixture(params=["moved", "removed"])
def lose(request, tmp_path):
    def lost(home):
        if request.param == "moved":
            home.rename(tmp_path / "away")
        else:
            shutil.rmtree(home)

    return lost


async def test_a_server_of_a_lost_folder_is_ended_before_the_agent_says_what_it_holds(plane, make_agent, swept, lose):
    agent = make_agent()
    await agent.start()
    await plane.want(server())
    await plane.until(lambda: plane.ready(W))
    old, shim = known(swept, plane.pid(W)), known(swept, shim_of(agent.home))
    await agent.kill()
    lose(agent.home)
    alive_then = []
    plane.on_reconcile = lambda: alive_then.append(alive(*old) or alive(*shim))
    await agent.start()
    await plane.until(lambda: len(plane.reconciles) >= 2)
    assert plane.reconciles[1].held == ()
    assert alive_then
    assert not any(alive_then)
    await plane.until(lambda: any(r.process and r.process["pid"] != old[0] for r in plane.of(W)))
    assert "proven to be of this home: ending its tree" in agent.log()
    assert W in agent.log()


async def test_all_of_its_tree_is_ended_also_what_carries_nothing_of_ours(plane, make_agent, swept, tmp_path):
    agent = make_agent()
    await agent.start()
    told = tmp_path / "child"
    await plane.want(job(sys.executable, "-c", SCRUBBED, str(told), stop_grace_s=0.1))
    await until_true(lambda: told.exists() and told.read_text())
    await plane.until(lambda: "Running" in plane.path(W))
    below, root = known(swept, int(told.read_text())), known(swept, plane.pid(W))
    await agent.kill()
    shutil.rmtree(agent.home)
    await plane.drop(W)
    await agent.start()
    await plane.until(lambda: len(plane.reconciles) >= 2)
    assert not alive(*below)
    assert not alive(*root)


async def test_another_installation_on_the_same_machine_is_not_touched(plane, make_agent, swept, tmp_path):
    neighbours = FakePlane()
    await neighbours.up()
    other, agent = make_agent(server_url=neighbours.url), make_agent()
    await other.start()
    await neighbours.want(job("/bin/sleep", "1000"))
    await neighbours.until(lambda: "Running" in neighbours.path(W))
    theirs, their_shim = known(swept, neighbours.pid(W)), known(swept, shim_of(other.home))
    await agent.start()
    await plane.want(server())
    await plane.until(lambda: plane.ready(W))
    ours = known(swept, plane.pid(W))
    await agent.kill()
    agent.home.rename(tmp_path / "away")
    await agent.start()
    await plane.until(lambda: len(plane.reconciles) >= 2)
    assert not alive(*ours)
    assert alive(*theirs)
    assert alive(*their_shim)
    assert str(other.home) not in agent.log()
    await neighbours.away()


async def test_what_names_the_home_and_is_not_proven_is_left_and_named(plane, make_agent, swept, tmp_path):
    agent = make_agent()
    cookie = "c" * 32
    forged = {
        "MOORAGE_COOKIE": cookie,
        "MOORAGE_WORKER": "wrk-other",
        "MOORAGE_EPOCH": "1",
        "MOORAGE_HEARTBEAT_FILE": f"{agent.home}/workers/wrk-1/1-{cookie[:8]}/heartbeat",
    }
    pid = os.posix_spawn("/bin/sleep", ["/bin/sleep", "1000"], forged)
    stranger = known(swept, pid)
    await agent.start()
    await plane.until(lambda: plane.reconciles)
    assert alive(*stranger)
    (line,) = [json.loads(row) for row in agent.log().splitlines() if "left alone" in row]
    assert (line["count"], line["level"]) == (1, "warning")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
