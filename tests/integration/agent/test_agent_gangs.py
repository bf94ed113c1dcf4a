"""The barrier of a gang on its machines: set up, kept back until the word comes, met, and never started twice."""

import sys

from agent_plane import until_true
from agent_work import job, stopping

from moorage.runners.identity import alive
from moorage.runners.shimming.kernel import start_ticks
from tests.ports import free_range

W = "wrk-1"
WRITE_ENV = "import os, sys; open(sys.argv[1], 'a').write(os.environ['MASTER_ADDR'] + ' ' + os.environ['RANK'] + '\\n')"


def member(*command, **given):
    launch = {"barrier": True, "world_size": 2, "leads": True, **given}
    return job(*command, **launch).model_copy(update={"go": False})


def opened(assignment):
    return assignment.model_copy(update={"go": True, "leader": "10.0.0.9:29500", "hosts": ("10.0.0.9", "10.0.0.8")})


def rendezvous(plane, worker=W):
    return [r.rendezvous for r in plane.of(worker) if r.rendezvous is not None]


async def test_a_member_starts_only_once_its_gang_may_and_then_knows_where_to_meet(plane, make_agent, tmp_path):
    ports = free_range(8)
    await make_agent(ports=ports).start()
    wrote = tmp_path / "env"
    it = member(sys.executable, "-c", WRITE_ENV, str(wrote))
    await plane.want(it)
    await plane.until(lambda: plane.path(W) == ["Preparing", "ReadyToStart"])
    assert plane.codes(W)[-1] == "gang.barrier"
    host, _, port = rendezvous(plane)[0].partition(":")
    assert host == "127.0.0.1"
    assert ports[0] <= int(port) <= ports[1]
    await plane.want(job("/bin/true", worker="other"))
    await plane.until(lambda: plane.gone("other"))
    assert not wrote.exists()
    await plane.want(opened(it))
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W) == ["Preparing", "ReadyToStart", "Starting", "Running", "Completed"]
    assert plane.codes(W)[2:4] == ["gang.barrier_open", "container.running"]
    assert wrote.read_text() == "10.0.0.9 0\n"


async def test_a_stop_of_one_that_waits_at_the_barrier_is_confirmed_at_once(plane, make_agent, tmp_path):
    await make_agent().start()
    ran = tmp_path / "ran"
    it = member("/usr/bin/touch", str(ran))
    await plane.want(it)
    await plane.until(lambda: "ReadyToStart" in plane.path(W))
    await plane.want(stopping(it, cause="barrier_timeout", grace_s=3600.0))
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W)[-1] == "Cancelled"
    await plane.want(opened(it))
    await plane.want(job("/bin/true", worker="other"))
    await plane.until(lambda: plane.gone("other"))
    assert not ran.exists()


async def test_an_agent_killed_at_the_barrier_goes_on_waiting_there_at_the_same_port(plane, make_agent, tmp_path):
    agent = make_agent()
    await agent.start()
    started = tmp_path / "started"
    it = member("/bin/sh", "-c", f"echo x >> {started}; exec sleep 1000")
    await plane.want(it)
    await plane.until(lambda: "ReadyToStart" in plane.path(W))
    await until_true(lambda: agent.remembers_state(W) == "ReadyToStart")
    await agent.kill()
    await agent.start()
    await plane.until(lambda: len(rendezvous(plane)) == 2)
    assert [(h.worker, h.alive, h.state) for h in plane.reconciles[1].held] == [(W, True, "ReadyToStart")]
    assert len(set(rendezvous(plane))) == 1
    assert not started.exists()
    await plane.want(opened(it))
    await plane.until(lambda: "Running" in plane.path(W))
    await until_true(started.exists)
    assert plane.path(W) == ["Preparing", "ReadyToStart", "Starting", "Running"]
    assert started.read_text() == "x\n"


async def test_a_go_that_came_while_the_agent_was_dead_is_honoured_and_once_only(plane, make_agent, tmp_path):
    agent = make_agent()
    await agent.start()
    started = tmp_path / "started"
    it = member("/bin/sh", "-c", f"echo x >> {started}; exec sleep 1000")
    await plane.want(it)
    await plane.until(lambda: "ReadyToStart" in plane.path(W))
    await until_true(lambda: agent.remembers_state(W) == "ReadyToStart")
    await agent.kill()
    await plane.want(opened(it))
    await agent.start()
    await plane.until(lambda: "Running" in plane.path(W))
    await until_true(started.exists)
    pid = plane.pid(W)
    ticks = start_ticks(pid)
    await until_true(lambda: agent.remembers_state(W) == "Running")
    await agent.kill()
    await agent.start()
    await plane.until(lambda: len(plane.reconciles) >= 3)
    await plane.want(job("/bin/true", worker="other"))
    await plane.until(lambda: plane.gone("other"))
    assert alive(pid, ticks)
    assert started.read_text() == "x\n"


async def test_one_that_waits_and_is_no_longer_wanted_after_the_agents_return_ends_unstarted(plane, make_agent):
    agent = make_agent()
    await agent.start()
    await plane.want(member("/bin/sleep", "1000"))
    await plane.until(lambda: "ReadyToStart" in plane.path(W))
    await until_true(lambda: agent.remembers_state(W) == "ReadyToStart")
    await agent.kill()
    await plane.drop(W)
    plane.stop_at_reconcile = {W}
    await agent.start()
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W) == ["Preparing", "ReadyToStart", "Cancelled"]
