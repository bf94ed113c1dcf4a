"""What outlives what: workers their agent, reports an outage, the agent its control plane."""

import os
import signal

from agent_plane import until_true
from agent_work import job, server, stopping

from moorage.runners.identity import alive
from moorage.runners.shimming.kernel import start_ticks

W = "wrk-1"


async def test_an_agent_killed_and_started_again_adopts_the_same_process(plane, make_agent):
    agent = make_agent()
    await agent.start()
    await plane.want(server())
    await plane.until(lambda: plane.ready(W))
    pid = plane.pid(W)
    ticks = start_ticks(pid)
    await until_true(lambda: agent.remembers_ready(W))
    before = len(plane.of(W))
    await agent.kill()
    assert alive(pid, ticks)
    await agent.start()
    await plane.until(lambda: len(plane.reconciles) >= 2 and any(W in h.workers for h in plane.heartbeats[-1:]))
    held = plane.reconciles[1].held
    assert [(h.worker, h.epoch, h.alive, h.state, h.ready) for h in held] == [(W, 1, True, "Running", True)]
    assert held[0].process["pid"] == pid
    assert alive(pid, ticks)
    assert plane.path(W).count("Running") == 1
    assert len(plane.of(W)) == before
    os.kill(pid, signal.SIGKILL)
    await plane.until(lambda: plane.gone(W))
    assert plane.last(W).exit_code == 137


async def test_a_server_that_ended_while_the_agent_was_dead_is_reported_with_its_exit_code(plane, make_agent, tmp_path):
    agent = make_agent()
    await agent.start()
    go = tmp_path / "go"
    await plane.want(job("/bin/sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; echo bye; exit 9"))
    await plane.until(lambda: "Running" in plane.path(W))
    pid = plane.pid(W)
    ticks = start_ticks(pid)
    # A report goes out before the disk has it, and what is not on disk is told again: the path is asked for below.
    await until_true(lambda: agent.remembers_state(W) == "Running")
    await agent.kill()
    go.touch()
    await until_true(lambda: not alive(pid, ticks))
    await agent.start()
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W) == ["Preparing", "Starting", "Running", "Failed"]
    assert plane.last(W).exit_code == 9
    assert plane.last(W).log_tail == "bye"
    assert [h.alive for h in plane.reconciles[1].held] == [False]


async def test_during_an_outage_everything_runs_on_and_every_step_arrives_afterwards_once(plane, make_agent):
    agent = make_agent()
    await agent.start()
    await plane.want(server(worker="a"), server(worker="b"))
    await plane.until(lambda: plane.ready("a") and plane.ready("b"))
    kept, lost = plane.pid("a"), plane.pid("b")
    ticks = start_ticks(kept)
    await plane.away()
    lost_ticks = start_ticks(lost)
    os.kill(lost, signal.SIGKILL)
    await until_true(lambda: not alive(lost, lost_ticks))
    await plane.up()
    await plane.until(lambda: plane.gone("b"))
    assert plane.path("b") == ["Preparing", "Starting", "Running", "Failed"]
    assert alive(kept, ticks)
    assert plane.path("a") == ["Preparing", "Starting", "Running"]
    seqs = [r.seq for r in plane.reports]
    assert seqs == sorted(set(seqs))


async def test_reports_survive_an_outage_and_the_death_of_the_agent_in_it(plane, make_agent):
    agent = make_agent()
    await agent.start()
    await plane.want(server())
    await plane.until(lambda: plane.ready(W))
    pid = plane.pid(W)
    await plane.away()
    os.kill(pid, signal.SIGKILL)
    await until_true(lambda: "exited" in agent.log())
    await agent.kill()
    await agent.start()
    await plane.up()
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W) == ["Preparing", "Starting", "Running", "Failed"]
    assert plane.last(W).exit_code == 137


async def test_an_answer_that_got_lost_makes_the_report_come_again_and_nothing_twice(plane, make_agent):
    await make_agent().start()
    plane.lose_answers = 2
    await plane.want(job("/bin/true"))
    await plane.until(lambda: plane.gone(W))
    assert plane.duplicates > 0
    assert plane.path(W) == ["Preparing", "Starting", "Running", "Completed"]


async def test_nothing_older_than_what_was_seen_is_ever_started(plane, make_agent, tmp_path):
    agent = make_agent()
    await agent.start()
    ran = tmp_path / "ran"
    await plane.want(job("/bin/true", epoch=5))
    await plane.until(lambda: plane.gone(W))
    await plane.drop(W)
    await plane.want(job("/usr/bin/touch", str(ran), epoch=4))
    await plane.want(job("/bin/true", worker="other"))
    await plane.until(lambda: plane.gone("other"))
    assert not ran.exists()
    await agent.kill()
    await agent.start()
    await plane.want(job("/bin/true", worker="third"))
    await plane.until(lambda: plane.gone("third"))
    assert not ran.exists()
    assert "refused an old command" in agent.log()


async def test_a_newer_epoch_starts_only_after_the_older_process_is_gone(plane, make_agent):
    await make_agent().start()
    await plane.want(job("/bin/sleep", "1000", epoch=1))
    await plane.until(lambda: "Running" in plane.path(W))
    old = plane.pid(W)
    ticks = start_ticks(old)
    await plane.want(job("/bin/true", epoch=2))
    await plane.until(lambda: "Completed" in plane.path(W))
    assert not alive(old, ticks)
    kinds = [(r.epoch, s.to) for r in plane.of(W) for s in r.steps]
    assert kinds.index((1, "Cancelled")) < kinds.index((2, "Preparing"))


async def test_what_reconciling_does_not_keep_is_stopped_first(plane, make_agent):
    agent = make_agent()
    await agent.start()
    await plane.want(server())
    await plane.until(lambda: plane.ready(W))
    pid = plane.pid(W)
    ticks = start_ticks(pid)
    await agent.kill()
    plane.stop_at_reconcile = {W}
    await plane.drop(W)
    await agent.start()
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W)[-1] == "Cancelled"
    assert not alive(pid, ticks)


async def test_an_empty_desired_set_alone_ends_nothing_until_reconciling_says_so(plane, make_agent):
    await make_agent().start()
    await plane.want(server())
    await plane.until(lambda: plane.ready(W))
    await plane.drop(W)
    await plane.until(lambda: len(plane.reconciles) >= 2)
    pid = plane.pid(W)
    await plane.want(job("/bin/true", worker="other"))
    await plane.until(lambda: plane.gone("other"))
    assert alive(pid, start_ticks(pid))
    assert plane.path(W)[-1] == "Running"


async def test_the_control_plane_can_ask_for_a_new_join(plane, make_agent):
    await make_agent().start()
    await plane.until(lambda: plane.heartbeats)
    plane.rejoin = True
    await plane.until(lambda: len(plane.reconciles) >= 2)
    assert plane.bearers == ["join-token", "the-credential"]
    await plane.want(job("/bin/true"))
    await plane.until(lambda: plane.gone(W))


async def test_sigterm_leaves_workers_to_be_adopted(plane, make_agent):
    agent = make_agent()
    await agent.start()
    await plane.want(server())
    await plane.until(lambda: plane.ready(W))
    pid = plane.pid(W)
    ticks = start_ticks(pid)
    assert await agent.terminate() == 0
    assert alive(pid, ticks)
    await agent.start()
    await plane.until(lambda: len(plane.reconciles) >= 2)
    assert plane.reconciles[1].held[0].alive


async def test_sigterm_with_stop_workers_on_exit_stops_and_tells(plane, make_agent):
    agent = make_agent(stop_workers_on_exit=True)
    await agent.start()
    await plane.want(server())
    await plane.until(lambda: plane.ready(W))
    pid = plane.pid(W)
    ticks = start_ticks(pid)
    assert await agent.terminate() == 0
    assert not alive(pid, ticks)
    assert plane.path(W)[-2:] == ["Stopping", "Cancelled"]
    assert plane.codes(W)[-2:] == ["stop.drain", "stop.confirmed"]
    assert plane.gone(W)


async def test_the_agent_of_a_removed_machine_stops_all_and_exits(plane, make_agent):
    agent = make_agent()
    await agent.start()
    await plane.want(server())
    await plane.until(lambda: plane.ready(W))
    pid = plane.pid(W)
    ticks = start_ticks(pid)
    plane.removed = True
    await plane.bump()
    assert await agent.wait() == 0
    assert not alive(pid, ticks)


async def test_two_agents_on_one_home_are_refused(plane, make_agent):
    first = make_agent()
    await first.start()
    await plane.until(lambda: plane.heartbeats)
    second = make_agent()
    second.home = first.home
    second._config["home"] = str(first.home)
    await second.start()
    assert await second.wait() == 1


async def test_a_stop_that_comes_while_the_agent_is_dead_reaches_the_process_afterwards(plane, make_agent):
    agent = make_agent()
    await agent.start()
    it = server()
    await plane.want(it)
    await plane.until(lambda: plane.ready(W))
    await agent.kill()
    await plane.want(stopping(it))
    await agent.start()
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W)[-1] == "Cancelled"
