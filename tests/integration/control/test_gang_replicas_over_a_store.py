"""A gang behind a replica, over a real database: its routes go with any member, and a stop waits for every one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.domain.nouns import Operation, Worker
from moorage.wire.agent import Assignment, StepReport
from tests.integration.control.control_plane import CANCELLED, CRASH, Agent, HandClock, Plane, until, worker_is

AT_BARRIER = (
    StepReport(to="Preparing", trigger="picked_up", code="prepare.network"),
    StepReport(to="ReadyToStart", trigger="barrier", code="gang.barrier"),
)
RUNS = (
    StepReport(to="Starting", trigger="barrier_open", code="container.started"),
    StepReport(to="Running", trigger="running", code="container.running"),
)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    plane = await Plane.open(tmp_path, HandClock())
    yield plane
    await plane.die()


async def members(plane: Plane, agent: Agent) -> list[Assignment]:
    """Both, the leader first, as their machine is told them once they may start."""

    async def told() -> list[Assignment] | None:
        work = await plane.machines.work(agent.uid, agent.incarnation, -1, 1.0)
        found = [a for a in work.assignments if a.desired == "run"] if work else []
        return found if len(found) == 2 else None

    for assignment in await until(told, "both are placed"):
        await agent.report(assignment, *AT_BARRIER, rendezvous="127.0.0.1:18005")

    async def may_start() -> list[Assignment] | None:
        found = await told()
        return found if found and all(a.go for a in found) else None

    found = await until(may_start, "the barrier is open")
    return sorted(found, key=lambda a: a.launch.rank)


async def serving(plane: Plane, agent: Agent) -> list[Assignment]:
    found = await members(plane, agent)
    for port, assignment in enumerate(found, 18000):
        await agent.report(assignment, *RUNS, process={"pid": port}, address=f"127.0.0.1:{port}")
        await agent.report(assignment, ready=True)
    await plane.table("serve")
    return found


async def test_only_the_leader_is_asked_whether_it_is_ready_and_the_others_are_told_where_it_is(plane: Plane) -> None:
    agent = await Agent(plane).join()
    await plane.apply(replicas={"workers": 2})
    leader, follower = await members(plane, agent)
    assert (leader.launch.leads, leader.launch.ready is not None) == (True, True)
    assert (follower.launch.leads, follower.launch.ready, follower.launch.live) == (False, None, None)
    assert follower.leader == "127.0.0.1:18005"
    assert (leader.launch.world_size, follower.launch.world_size) == (2, 2)


async def test_a_follower_that_dies_takes_the_route_with_its_report_and_a_stop_waits_for_the_leader(
    plane: Plane,
) -> None:
    agent = await Agent(plane).join(cpu_milli=2000)
    await plane.apply(replicas={"workers": 2}, resources={"cpu": "1"})
    leader, follower = await serving(plane, agent)
    before = await plane.table("serve")
    (target,) = before.endpoints[0].targets
    assert (target.worker, target.port) == (leader.worker, 18000)

    await agent.report(follower, CRASH, exit_code=137, gone=True)
    at_once = await plane.publisher.table(before.incarnation, before.number, 5.0)
    assert at_once is not None
    assert at_once.endpoints[0].targets == ()
    await worker_is(plane, leader.worker, "Stopping")

    answer = await plane.commands.stop_deployment("default", "gemma", actor="person:p", key=None, text=None)
    operation = answer["operation"]

    async def waits() -> bool:
        row = await plane.store.get(Operation, operation)
        why = dict((row.waiting_reason if row is not None else None) or {}).get("message", "")
        return "every process is gone" in why and not await plane.replicas()

    await until(waits, "no replica is left, and the stop waits for a process")
    row = await plane.store.get(Worker, leader.worker)
    assert row is not None
    assert row.state == "Stopping"
    await agent.report(leader, CANCELLED, gone=True)

    async def done() -> bool:
        row = await plane.store.get(Operation, operation)
        return row is not None and row.state == "succeeded"

    await until(done, "the stop is over")
