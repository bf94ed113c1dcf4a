"""What an agent does by itself: time limits, a machine cut off, programs that beat, a machine that was removed."""

import sys
from pathlib import Path

import pytest
from agent_plane import until_true
from agent_work import job, stopping

from moorage.runners.identity import alive
from moorage.runners.shimming.kernel import start_ticks

W = "wrk-1"
TERMINATED = (
    "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(1000)"
)
BEATS = """
import os, time
path = os.environ["MOORAGE_HEARTBEAT_FILE"]
while not os.path.exists(os.environ["QUIET"]):
    open(path, "w").close()
    time.sleep(0.05)
open(os.environ["QUIET"] + "-now", "w").close()
time.sleep(1000)
"""


def cause_file(agent):
    return next(agent.home.glob(f"workers/{W}/*/stop-cause")).read_text()


async def test_a_run_past_its_time_limit_is_stopped_by_its_machine_and_says_so(plane, make_agent):
    agent = make_agent()
    await agent.start()
    it = job(sys.executable, "-c", TERMINATED, time_limit_s=1.0)
    await plane.want(it)
    await plane.until(lambda: "Stopping" in plane.path(W))
    await plane.want(stopping(it, cause="time_limit"))  # the control plane keeps the same limit, and comes second
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W) == ["Preparing", "Starting", "Running", "Stopping", "Cancelled"]
    assert plane.codes(W)[-2:] == ["stop.time_limit", "stop.confirmed"]
    assert next(r.steps[-1].params for r in plane.of(W) if r.steps[-1:] and r.steps[-1].to == "Stopping") == {"d": 1.0}
    assert cause_file(agent) == "time_limit\n"


async def test_a_time_limit_counts_from_the_start_of_the_attempt_also_when_the_agent_was_dead(plane, make_agent):
    agent = make_agent()
    await agent.start()
    await plane.want(job("/bin/sleep", "1000", time_limit_s=3600.0))
    await plane.until(lambda: "Running" in plane.path(W))
    await until_true(lambda: agent.remembers_state(W) == "Running")
    await agent.kill()
    agent.alter_memory("UPDATE attempts SET started = started - 3600")  # an hour passes
    await agent.start()
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W)[-2:] == ["Stopping", "Cancelled"]
    assert plane.codes(W)[-2:] == ["stop.time_limit", "stop.confirmed"]


async def test_a_machine_cut_off_stops_what_asks_for_that_and_keeps_the_rest(plane, make_agent):
    agent = make_agent()
    await agent.start()
    await plane.want(
        job("/bin/sleep", "1000", worker="stops", on_disconnect="stop", disconnect_after_s=5.0),
        job("/bin/sleep", "1000", worker="stays"),
    )
    await plane.until(lambda: "Running" in plane.path("stops") and "Running" in plane.path("stays"))
    stops, stays = plane.pid("stops"), plane.pid("stays")
    ticks, kept = start_ticks(stops), start_ticks(stays)
    seen = len(plane.heartbeats)
    await plane.until(lambda: len(plane.heartbeats) > seen + 10)  # while it is answered nothing ends
    assert alive(stops, ticks)
    await plane.away()
    await until_true(lambda: not alive(stops, ticks))
    assert alive(stays, kept)
    await plane.up()
    await plane.until(lambda: plane.gone("stops"))
    assert plane.path("stops") == ["Preparing", "Starting", "Running", "Down"]
    assert plane.codes("stops")[-1] == "stop.disconnected"
    assert plane.path("stays") == ["Preparing", "Starting", "Running"]
    assert alive(stays, kept)


async def test_a_restart_of_the_agent_in_the_dark_does_not_put_the_end_off(plane, make_agent):
    agent = make_agent()
    await agent.start()
    await plane.want(job("/bin/sleep", "1000", on_disconnect="stop", disconnect_after_s=3600.0))
    await plane.until(lambda: "Running" in plane.path(W))
    pid = plane.pid(W)
    ticks = start_ticks(pid)
    await until_true(lambda: agent.remembers_state(W) == "Running")
    await plane.away()
    await agent.kill()
    agent.alter_memory("UPDATE attempts SET started = started - 3600")  # an hour passes
    agent.alter_memory(
        "UPDATE notes SET value = json_set(value, '$.at', json_extract(value, '$.at') - 3600)"
        " WHERE name = 'heartbeat_answered'"
    )
    await agent.start()
    await until_true(lambda: not alive(pid, ticks))
    await plane.up()
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W)[-1] == "Down"


async def test_a_program_that_beats_by_itself_is_known_by_its_own_age_and_others_by_their_process(
    plane, make_agent, tmp_path
):
    await make_agent().start()
    quiet = tmp_path / "quiet"
    await plane.want(
        job(sys.executable, "-c", BEATS, worker="beats", env={"QUIET": str(quiet)}),
        job("/bin/sleep", "1000", worker="plain"),
    )
    await plane.until(lambda: plane.heartbeats and "beats" in plane.heartbeats[-1].ages)
    await plane.until(lambda: "plain" in plane.heartbeats[-1].workers)
    assert "plain" not in plane.heartbeats[-1].ages
    quiet.touch()
    await until_true(Path(f"{quiet}-now").exists)
    first = len(plane.heartbeats) + 1  # one may be on its way that was made before
    await plane.until(lambda: plane.heartbeats[-1].ages.get("beats", 0.0) > 1.0)
    ages = [h.ages["beats"] for h in plane.heartbeats[first:]]
    assert all(age >= 0.0 for age in ages)
    assert ages == sorted(ages)
    assert plane.heartbeats[-1].workers.keys() >= {"beats", "plain"}


@pytest.mark.parametrize("asked", [{"heartbeat_ttl_s": 0.6}, {"on_disconnect": "stop", "disconnect_after_s": 3.0}])
async def test_heartbeats_come_often_enough_for_the_shortest_silence_that_matters(plane, make_agent, asked):
    plane.heartbeat_s = 3600.0
    await make_agent().start()
    await plane.until(lambda: plane.heartbeats)
    await plane.want(job("/bin/sleep", "1000", **asked))
    await plane.until(lambda: sum(W in h.workers for h in plane.heartbeats) >= 3)


async def test_the_agent_of_a_removed_machine_respects_graces_tells_and_forgets_its_credential(plane, make_agent):
    agent = make_agent()
    await agent.start()
    await plane.want(job(sys.executable, "-c", TERMINATED))
    await plane.until(lambda: "Running" in plane.path(W))
    await until_true(lambda: any("up" in log.read_text() for log in agent.home.glob(f"workers/{W}/*/log.*")))
    plane.removed = True
    await plane.bump()
    assert await agent.wait() == 0
    assert plane.gone(W)
    assert plane.last(W).exit_code == 0
    assert "was removed from the cluster and its credential is dropped" in agent.log()
    plane.removed = False
    await agent.start()
    await plane.until(lambda: len(plane.joins) >= 2)
    assert plane.bearers == ["join-token", "join-token"]
