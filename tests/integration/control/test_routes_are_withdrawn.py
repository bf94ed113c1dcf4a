"""A route goes before anything is read, only for the copy that ended, and comes back when the word was out of date."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.domain.errors import Conflict
from moorage.wire.agent import Assignment
from moorage.wire.routing import RoutingTable
from tests.integration.control.control_plane import CRASH, Agent, Gateway, HandClock, Plane, until


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    plane = await Plane.open(tmp_path, HandClock())
    yield plane
    await plane.die()


async def served(plane: Plane) -> tuple[Agent, Assignment, RoutingTable]:
    """A deployment with a ready replica, and the table that routes to it."""
    agent = await Agent(plane).join()
    await plane.apply()
    told = await agent.serve()
    return agent, told, await plane.table("serve")


async def test_a_crash_is_out_of_the_table_before_the_store_is_read(plane: Plane) -> None:
    agent, told, before = await served(plane)
    read, gate = plane.store.get, asyncio.Event()

    async def slow(*args: object, **kwargs: object) -> object:
        await gate.wait()
        return await read(*args, **kwargs)  # type: ignore[arg-type]

    plane.store.get = slow
    reporting = asyncio.create_task(agent.report(told, CRASH, exit_code=137, gone=True))
    table = await plane.publisher.table(before.incarnation, before.number, 60.0)
    assert table is not None
    assert table.endpoints[0].targets == ()
    assert table.endpoints[0].mode == "starting"
    gate.set()
    await reporting


async def test_what_is_read_while_a_crash_is_written_does_not_bring_its_route_back(plane: Plane) -> None:
    agent, told, before = await served(plane)
    uid = before.endpoints[0].deployment
    assert await plane.publisher.withdraw(told.worker, agent.uid, told.epoch) == uid
    await plane.publisher.refresh(uid)
    table = await plane.publisher.table(None, -1, 0.0)
    assert table is not None
    assert table.endpoints[0].targets == (), "the rows still say that it is ready"
    await plane.publisher.settle(uid, told.worker)
    back = await plane.publisher.table(None, -1, 0.0)
    assert back is not None
    assert [t.worker for t in back.endpoints[0].targets] == [told.worker]
    assert back.number > table.number > before.number


async def test_a_report_of_another_copy_or_machine_withdraws_nothing(plane: Plane) -> None:
    agent, told, before = await served(plane)
    assert await plane.publisher.withdraw(told.worker, agent.uid, told.epoch + 1) is None
    assert await plane.publisher.withdraw(told.worker, "another machine", told.epoch) is None
    assert await plane.publisher.withdraw("no such worker", agent.uid, 1) is None
    table = await plane.publisher.table(None, -1, 0.0)
    assert table is not None
    assert table.number == before.number


async def test_a_report_that_is_refused_leaves_the_route_as_it_was(plane: Plane) -> None:
    agent, told, _ = await served(plane)
    late = Agent(plane)
    late.uid, late.incarnation = agent.uid, "an agent before this one"
    with pytest.raises(Conflict):
        await late.report(told, CRASH, exit_code=137)
    table = await plane.publisher.table(None, -1, 0.0)
    assert table is not None
    assert [t.worker for t in table.endpoints[0].targets] == [told.worker]


async def test_gateways_know_the_active_revision_by_its_number_while_nothing_is_compared(plane: Plane) -> None:
    _, _, table = await served(plane)
    (endpoint,) = table.endpoints
    ((revision,), (target,)) = endpoint.revisions, endpoint.targets
    assert (revision.revision, revision.number, revision.role) == (target.revision, 1, "active")
    assert endpoint.evidence_id is None


async def test_a_drain_shows_who_still_runs_how_old_it_is_and_which_gateway_has_not_confirmed(plane: Plane) -> None:
    _, _, table = await served(plane)
    one, two = Gateway(plane, "gw-1"), Gateway(plane, "gw-2")
    await one.report(table, in_flight=2, replicas={"rep": 2}, oldest_s={"rep": 12.5})
    await two.report(None, in_flight=1, replicas={"rep": 1}, oldest_s={"rep": 3.0})
    plane.clock.advance(2.0)
    deployment = await plane.deployment()
    assert deployment is not None
    demand = plane.publisher.demand(deployment)
    assert demand.by_replica == {"rep": 3}
    assert demand.oldest_s == {"rep": 14.5}
    assert demand.gateways == {"gw-1": True, "gw-2": False}
    assert not demand.confirmed
    await two.report(table)

    async def confirmed() -> bool:
        demand = plane.publisher.demand(deployment)
        return demand.confirmed and demand.gateways == {"gw-1": True, "gw-2": True}

    await until(confirmed, "both confirmed")
    assert plane.publisher.demand(deployment).oldest_s == {"rep": 14.5}
