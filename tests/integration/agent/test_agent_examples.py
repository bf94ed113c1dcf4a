"""The examples that come with Moorage, on real agents: a sum over two machines, and work that survives a preemption."""

import asyncio
import sys
from pathlib import Path

import pytest
from agent_plane import FakePlane, until_true
from agent_process import AgentProcess, end_leftovers
from agent_work import job, stopping

from tests.ports import free_range

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
JAX = ROOT / ".venv-jax" / "bin" / "python"
PROGRAMS = [
    pytest.param(sys.executable, "all_reduce.py", id="plain"),
    pytest.param(
        str(JAX),
        "all_reduce_jax.py",
        id="jax",
        marks=pytest.mark.skipif(
            not JAX.exists(), reason="JAX takes 530 MB; `make example-jax` brings it and runs this"
        ),
    ),
]
SIZE = 4


@pytest.fixture
async def machines(tmp_path):
    """Two machines, each an agent with a home and ports of its own, and the control plane as each of them sees it."""
    planes, agents = [FakePlane(), FakePlane()], []
    for index, plane in enumerate(planes):
        await plane.up()
        agents.append(AgentProcess(tmp_path / f"machine{index}", plane.url, name=f"box-{index}", ports=free_range(8)))
        await agents[-1].start()
    yield list(zip(planes, agents, strict=True))
    for plane, agent in zip(planes, agents, strict=True):
        if agent.running:
            await agent.kill()
        end_leftovers(agent.home)
        await plane.away()


def log_of(agent: AgentProcess, worker: str) -> str:
    return "".join(p.read_text() for p in sorted(agent.home.glob(f"workers/{worker}/*/log.*")))


@pytest.mark.parametrize(("python", "program"), PROGRAMS)
async def test_four_workers_on_two_machines_sum_what_only_all_of_them_together_can(machines, python, program):
    members = {
        rank: job(
            python,
            str(EXAMPLES / program),
            worker=f"wrk-{rank}",
            rank=rank,
            world_size=SIZE,
            barrier=True,
            leads=rank == 0,
        ).model_copy(update={"go": False})
        for rank in range(SIZE)
    }
    placed = {rank: machines[rank % 2] for rank in members}
    for rank, (plane, _) in placed.items():
        await plane.want(members[rank])
    for rank, (plane, _) in placed.items():
        await plane.until(lambda plane=plane, w=f"wrk-{rank}": "ReadyToStart" in plane.path(w))
    leader = next(r.rendezvous for r in placed[0][0].of("wrk-0") if r.rendezvous)
    word = {"go": True, "leader": leader, "hosts": ("127.0.0.1",) * SIZE}
    for rank, (plane, _) in placed.items():
        await plane.want(members[rank].model_copy(update=word))
    for rank, (plane, agent) in placed.items():
        await plane.until(lambda plane=plane, w=f"wrk-{rank}": plane.gone(w))
        assert plane.path(f"wrk-{rank}")[-1] == "Completed", log_of(agent, f"wrk-{rank}")
        said = log_of(agent, f"wrk-{rank}")
        assert f"rank {rank} of {SIZE} met the others" in said
        assert "step 3: the sum over 4 ranks is 30" in said


async def test_work_that_was_preempted_goes_on_from_what_it_saved_and_knew_why_it_was_stopped(machines):
    plane, agent = machines[0]
    command = (sys.executable, str(EXAMPLES / "checkpoint.py"), "--until", "30", "--step-seconds")
    first = job(*command, "0.02", epoch=1)
    await plane.want(
        first.model_copy(update={"launch": first.launch.model_copy(update={"command": (*command, "0.5")})})
    )
    await plane.until(lambda: "Running" in plane.path("wrk-1"))
    await until_true(lambda: "going on from 0" in log_of(agent, "wrk-1"))
    await plane.until(lambda: "wrk-1" in plane.heartbeats[-1].ages)  # it has counted: it beats at each step
    await plane.want(stopping(first, cause="preemption", grace_s=60.0))
    await plane.until(lambda: plane.gone("wrk-1"))
    assert plane.path("wrk-1")[-1] == "Cancelled"
    assert plane.last("wrk-1").exit_code == 143
    said = log_of(agent, "wrk-1")
    assert "asked to stop (preemption): saved " in said
    saved = int(said.rpartition("saved ")[2].split()[0])
    assert saved > 0
    plane.reports.clear()
    await plane.want(first.model_copy(update={"epoch": 2, "attempt": 2}))
    await plane.until(lambda: plane.gone("wrk-1"))
    assert plane.path("wrk-1")[-1] == "Completed"
    assert f"attempt 2: going on from {saved}" in log_of(agent, "wrk-1")
    assert "done: 30" in log_of(agent, "wrk-1")


async def test_agents_beside_each_other_on_one_host_share_nothing(machines):
    """The same worker name on both, as two installations could have: neither touches the other's process."""
    both = [plane for plane, _ in machines]
    for plane in both:
        await plane.want(job("/bin/sleep", "1000", port=True))
    await asyncio.gather(*(plane.until(lambda plane=plane: "Running" in plane.path("wrk-1")) for plane in both))
    addresses = {next(r.address for r in plane.of("wrk-1") if r.address) for plane in both}
    assert len(addresses) == 2
    await both[0].want(stopping(job("/bin/sleep", "1000", port=True)))
    await both[0].until(lambda: both[0].gone("wrk-1"))
    beats = len(both[1].heartbeats)
    await both[1].until(lambda: len(both[1].heartbeats) > beats + 1)
    assert both[1].heartbeats[-1].workers == {"wrk-1": 1}
    await machines[0][1].kill()
    await machines[0][1].start()
    await both[0].until(lambda: len(both[0].reconciles) >= 2)
    beats = len(both[1].heartbeats)
    await both[1].until(lambda: len(both[1].heartbeats) > beats + 1)
    assert both[1].heartbeats[-1].workers == {"wrk-1": 1}
