"""Operations over a real database: resumed by the next control plane, deletes that are proven, names that come free."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.control.reading import Reader
from moorage.domain.errors import Conflict
from moorage.domain.nouns import Deployment, Machine, Operation
from moorage.domain.states import MachineState, OperationState
from tests.integration.control.control_plane import CANCELLED, Agent, HandClock, Plane, until


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def plane(tmp_path: Path, clock: HandClock) -> AsyncIterator[Plane]:
    plane = await Plane.open(tmp_path, clock)
    yield plane
    await plane.die()


async def operation_is(plane: Plane, uid: str, *states: OperationState) -> Operation:
    async def ask() -> Operation | None:
        row = await plane.store.get(Operation, uid)
        return row if row is not None and row.state in states else None

    return await until(ask, f"operation {uid} is {' or '.join(states)}")


async def gone(plane: Plane) -> None:
    async def ask() -> bool:
        return await plane.deployment() is None

    await until(ask, "the deployment is deleted")


async def test_the_next_control_plane_resumes_what_the_last_one_held_and_says_so(
    tmp_path: Path, plane: Plane, clock: HandClock
) -> None:
    answer = await plane.apply()
    held = await operation_is(plane, answer["operation"], OperationState.RUNNING, OperationState.WAITING)
    await plane.die()
    plane = await Plane.open(tmp_path, clock)
    fence = plane.leadership.fence
    assert fence is not None

    async def taken_over() -> Operation | None:
        row = await plane.store.get(Operation, held.uid)
        return row if row is not None and row.lease_generation == fence.generation else None

    await until(taken_over, "the operation is held under the new lease")
    codes = [h.reason.code for h in await plane.store.history(uid=held.uid)]
    assert fence.generation > held.lease_generation
    assert "op.lease_lost" in codes or held.state is OperationState.WAITING
    shown = await Reader(plane.store, clock, "http://gateway").operation(held.uid)
    assert (shown["lease"]["owner"], shown["lease"]["generation"]) == ("home:a", fence.generation)
    agent = await Agent(plane).join()
    await agent.serve()
    await operation_is(plane, held.uid, OperationState.SUCCEEDED)
    await plane.die()


async def test_a_deleted_name_is_free_again_and_its_history_stays_readable(plane: Plane, clock: HandClock) -> None:
    agent = await Agent(plane).join()
    first = await plane.apply()
    await agent.serve()
    await plane.table("serve")
    delete = await plane.commands.delete_deployment("default", "gemma", actor="person:p", key="d")
    with pytest.raises(Conflict) as refused:
        await plane.apply()
    assert delete["operation"] in refused.value.message
    await agent.report(await agent.assigned("stop"), CANCELLED, gone=True)
    await gone(plane)
    second = await plane.apply()
    assert second["deployment"] != first["deployment"]
    reader = Reader(plane.store, clock, "http://gateway")
    (tombstone,) = await reader.tombstones(Deployment, "default", "gemma")
    assert (tombstone["id"], tombstone["actor"]) == (first["deployment"], "person:p")
    told = await reader.history(Deployment, "default", first["deployment"])
    assert "deploy.deleted" in [c["reason"]["code"] for c in told["items"]]
    assert (await reader.operation(delete["operation"]))["state"] == "succeeded"


async def test_a_delete_waits_for_a_lost_machine_and_ends_when_it_answers(plane: Plane, clock: HandClock) -> None:
    agent = await Agent(plane).join()
    await plane.apply()
    await agent.serve()
    await plane.table("serve")
    clock.advance(31.0)

    async def lost() -> bool:
        return bool(await plane.rows(Machine, state=MachineState.DOWN))

    await until(lost, "the machine is lost")
    delete = await plane.commands.delete_deployment("default", "gemma", actor="person:p", key=None)
    waiting = await operation_is(plane, delete["operation"], OperationState.WAITING)

    async def says_why() -> bool:
        row = await plane.store.get(Operation, waiting.uid)
        return row is not None and "lab is lost" in str(row.waiting_reason)

    async def passes() -> bool:
        clock.advance(5.0)
        return await says_why()

    await until(passes, "it says which machine it cannot see")
    assert await plane.deployment() is not None
    await agent.join()

    async def proven() -> bool:
        clock.advance(1.0)
        await agent.beat()
        return await plane.deployment() is None

    await until(proven, "the machine answered that nothing is there")
    await operation_is(plane, delete["operation"], OperationState.SUCCEEDED)
