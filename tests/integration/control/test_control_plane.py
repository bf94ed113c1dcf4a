"""The whole control plane over a real database: from an apply to a route, through crashes, restarts and races."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.control.credentials import Principal, Role
from moorage.control.gateways import LEASE_S
from moorage.domain.changes import Change
from moorage.domain.errors import Conflict, Fenced, KeyReused, NotFound
from moorage.domain.nouns import Machine, Operation, Replica, Worker
from moorage.domain.states import MachineState, WorkerState
from moorage.wire.agent import Capacity, Join
from tests.integration.control.control_plane import (
    CANCELLED,
    CRASH,
    EXIT_0,
    STEPS,
    Agent,
    Gateway,
    HandClock,
    Plane,
    until,
    worker_is,
)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def plane(tmp_path: Path, clock: HandClock) -> AsyncIterator[Plane]:
    plane = await Plane.open(tmp_path, clock)
    yield plane
    await plane.die()


async def again(plane: Plane, path: Path, *others: Agent | Gateway) -> Plane:
    """The control plane dies and another process starts on the same database."""
    await plane.die()
    successor = await Plane.open(path, plane.clock)
    for other in others:
        other.plane = successor
    return successor


async def test_an_apply_is_placed_started_ready_and_routed(plane: Plane) -> None:
    agent = await Agent(plane).join()
    answer = await plane.apply()
    told = await agent.serve()
    table = await plane.table("serve")
    (target,) = table.endpoints[0].targets
    assert (target.worker, target.host, target.port) == (told.worker, "127.0.0.1", 18000)

    async def done() -> bool:
        operation = await plane.store.get(Operation, answer["operation"])
        return operation is not None and operation.state == "succeeded"

    await until(done, "the apply succeeded")


async def test_a_crash_is_withdrawn_before_it_is_replaced(plane: Plane) -> None:
    agent = await Agent(plane).join()
    await plane.apply()
    told = await agent.serve()
    before = await plane.table("serve")
    await agent.report(told, CRASH, exit_code=137, gone=True)
    at_once = await plane.publisher.table(before.incarnation, before.number, 5.0)
    assert at_once is not None
    assert at_once.endpoints[0].targets == (), "the route goes with the report itself"
    assert not await plane.rows(Worker, state=WorkerState.RUNNING)
    second = await agent.serve(not_in=(told.worker,))
    await plane.table("serve")
    codes = await plane.codes()
    assert codes.index("exited") < codes.index("replica.failed") < len(codes) - codes[::-1].index("replica.created")
    assert second.attempt == 1
    assert (await plane.rows(Replica, name="gemma-0-2"))[0].attempt == 2


async def test_a_report_that_arrives_twice_is_written_once(plane: Plane) -> None:
    agent = await Agent(plane).join()
    await plane.apply()
    told = await agent.serve()
    await plane.table("serve")
    await agent.report(told, CRASH, exit_code=137)
    await agent.say_again()
    await agent.report(told, gone=True)
    await agent.say_again()
    assert [c for c in await plane.codes() if c in ("exited", "worker.gone")] == ["exited", "worker.gone"]


async def test_a_place_given_back_after_the_end_is_taken_by_whoever_waits_for_it(plane: Plane) -> None:
    agent = await Agent(plane).join(gpus=1)
    await plane.apply(resources={"gpus": {"count": 1}})
    told = await agent.serve()
    await plane.table("serve")
    await agent.report(told, CRASH, exit_code=137)

    async def explained() -> bool:
        waiting = await plane.rows(Worker, state=WorkerState.PENDING)
        return any(w.reason is not None and w.reason.code == "place.no_machine_fits" for w in waiting)

    await until(explained, "the replacement waits for the GPU")
    await agent.report(told, gone=True)
    second = await agent.assigned("run", not_in=(told.worker,))
    assert second.launch.gpus == (0,)


async def test_two_deployments_never_get_the_same_last_gpu(plane: Plane) -> None:
    agent = await Agent(plane).join(gpus=1)
    for name in ("gemma", "llama"):
        await plane.apply(name, resources={"gpus": {"count": 1}})

    async def settled() -> bool:
        placed = [w.machine is not None for w in await plane.rows(Worker)]
        waits = [w for w in await plane.rows(Worker) if w.machine is None and w.placement is not None]
        return len(placed) == 2 and sum(placed) == 1 and len(waits) == 1

    await until(settled, "one has the GPU and the other knows why not")
    (holding,) = await plane.store.holdings(agent.uid)
    assert list(holding["gpus"]) == [0]


async def test_two_schedulers_racing_for_the_last_gpu_place_one(tmp_path: Path, clock: HandClock) -> None:
    first = await Plane.open(tmp_path, clock, lead=False)
    second = await Plane.open(tmp_path, clock, lead=False)
    leading = await Plane.open(tmp_path, clock)
    agent = await Agent(leading).join(gpus=1)
    for name in ("gemma", "llama"):
        await leading.apply(name, resources={"gpus": {"count": 2 if name == "none" else 1}})

    async def both() -> bool:
        return len(await leading.rows(Worker)) == 2

    await until(both, "two workers wait")
    await leading.die()
    outcomes = []
    for plane in (first, second):
        try:
            outcomes.append(await plane.scheduling("fleet"))
        except Conflict as lost:
            outcomes.append(lost)
    assert len(await first.store.holdings(agent.uid)) == 1
    for plane in (first, second):
        await plane.die()


@pytest.mark.parametrize("moment", ["applied", "assigned", "running", "crashed", "stopping"])
async def test_a_control_plane_that_dies_in_the_middle_is_finished_by_the_next(
    tmp_path: Path, plane: Plane, clock: HandClock, moment: str
) -> None:
    agent = await Agent(plane).join()
    await plane.apply()
    if moment == "applied":
        plane = await again(plane, tmp_path, agent)
    told = await agent.assigned("run")
    if moment == "assigned":
        plane = await again(plane, tmp_path, agent)
    await agent.report(told, *STEPS, process={"pid": 1})
    if moment == "running":
        plane = await again(plane, tmp_path, agent)
    await agent.report(told, ready=True, address="127.0.0.1:18000")
    await plane.table("serve")
    if moment == "crashed":
        await agent.report(told, CRASH, exit_code=137, gone=True)
        plane = await again(plane, tmp_path, agent)
        told = await agent.serve(not_in=(told.worker,))
        await plane.table("serve")
    await plane.commands.delete_deployment("default", "gemma", actor="person:p", key=None)
    stop = await agent.assigned("stop")
    if moment == "stopping":
        plane = await again(plane, tmp_path, agent)
        stop = await agent.assigned("stop")
    await agent.report(stop, CANCELLED, gone=True)

    async def gone() -> bool:
        return await plane.deployment() is None

    await until(gone, "the deployment is deleted")
    assert not await plane.rows(Worker)
    assert not await plane.store.holdings()
    assert len([r for r in await plane.codes() if r == "replica.created"]) == (2 if moment == "crashed" else 1)
    await plane.die()


async def test_the_same_server_is_adopted_after_both_sides_restarted(tmp_path: Path, plane: Plane) -> None:
    agent = await Agent(plane).join()
    await plane.apply()
    told = await agent.serve()
    await plane.table("serve")
    plane = await again(plane, tmp_path, agent)
    agent.incarnation = "i2"
    message = Join(name="lab", incarnation="i2", boot_id="b1", capacity=Capacity(cpu_milli=8000, memory_bytes=1 << 36))
    await plane.machines.join(message, Principal(Role.AGENT, "lab", agent.uid))
    assert (await agent.reconcile(agent.held(told))).keep == (told.worker,)
    await plane.table("serve")
    assert [r.attempt for r in await plane.replicas()] == [1]
    await plane.die()


async def test_a_machine_that_was_given_up_must_reconcile_before_its_reports_count(
    plane: Plane, clock: HandClock
) -> None:
    agent = await Agent(plane).join()
    await plane.apply()
    told = await agent.serve()
    await plane.table("serve")
    clock.advance(5.0)
    await agent.beat()

    async def down() -> bool:
        clock.advance(10.0)
        machine = await plane.store.get(Machine, agent.uid)
        return machine is not None and machine.state is MachineState.DOWN

    await until(down, "its lease is over")
    with pytest.raises(Conflict) as refused:
        await agent.report(told, *STEPS)
    assert refused.value.code == "rejoin"
    assert (await worker_is(plane, told.worker, "Down")).ready is False


async def test_the_last_agent_of_a_removed_machine_is_heard_to_the_end_and_no_other(plane: Plane) -> None:
    agent = await Agent(plane).join()
    await plane.apply()
    told = await agent.serve()
    await plane.table("serve")
    await plane.commands.remove_machine("lab", actor="person:p", key=None)
    assert (await worker_is(plane, told.worker, "Down")).handed_over is False
    await agent.report(told, EXIT_0, exit_code=0, gone=True)
    assert (await worker_is(plane, told.worker, "Completed")).exit_code == 0
    agent.incarnation = "another"
    with pytest.raises(Conflict):
        await agent.report(told, *STEPS)


async def test_idle_sleep_waits_for_the_gateway_and_a_request_wakes_it_once(plane: Plane, clock: HandClock) -> None:
    agent, gateway = await Agent(plane).join(), Gateway(plane)
    await gateway.report(None)
    await plane.apply(replicas={"min": 0, "max": 1, "initial": 1}, scaling={"idle_timeout": 60})
    told = await agent.serve()
    table = await plane.table("serve")
    for second in range(0, 70, 10):
        await gateway.report(table, in_flight=0, idle_s=float(second), requests=1)
        clock.advance(10.0)
        await agent.beat()
    held = await plane.table("hold")
    assert not [w for w in await plane.rows(Worker) if w.state is WorkerState.STOPPING]
    await gateway.report(held, in_flight=0, idle_s=70.0, requests=1)
    await plane.phase_is("paused")
    asleep = await plane.table("asleep")
    await gateway.report(asleep, in_flight=0, idle_s=70.0, requests=1)
    await agent.report(await agent.assigned("stop"), CANCELLED, gone=True)
    for waiting in (1, 7, 30):
        await gateway.report(asleep, held=waiting, requests=1)
    again_up = await agent.serve(not_in=(told.worker,))
    await plane.table("serve")
    row = await plane.deployment()
    assert row is not None
    assert (row.wakes, again_up.worker != told.worker) == (1, True)


async def test_after_a_restart_nothing_is_confirmed_before_every_known_gateway_spoke(
    tmp_path: Path, plane: Plane, clock: HandClock
) -> None:
    gateway = Gateway(plane)
    await gateway.report(None)
    plane = await again(plane, tmp_path, gateway)
    assert not plane.gateways.confirmed(0)
    await gateway.report(await plane.publisher.table(None, -1, 1.0))
    assert plane.gateways.confirmed(0)
    clock.advance(LEASE_S + 0.1)
    assert plane.gateways.confirmed(10**12), "a gateway whose lease is over does not block"
    await plane.die()


async def test_a_key_answers_its_first_request_whatever_became_of_the_object(plane: Plane) -> None:
    first = await plane.apply(key="k1")
    assert await plane.apply(key="k1") == first
    with pytest.raises(KeyReused):
        await plane.apply(key="k1", priority=5)
    delete = await plane.commands.delete_deployment("default", "gemma", actor="person:p", key="k2")

    async def gone() -> bool:
        return await plane.deployment() is None

    await until(gone, "the deployment is deleted")
    assert await plane.commands.delete_deployment("default", "gemma", actor="person:p", key="k2") == delete
    with pytest.raises(NotFound):
        await plane.commands.delete_deployment("default", "gemma", actor="person:p", key="k3")
    with pytest.raises(NotFound):
        await plane.commands.delete_deployment("default", "gemma", actor="person:p", key="k3")


async def test_a_control_plane_that_lost_its_lease_writes_nothing_and_leads_again_later(
    tmp_path: Path, plane: Plane, clock: HandClock
) -> None:
    agent = await Agent(plane).join()
    old_fence = plane.leadership.fence
    other = await Plane.open(tmp_path, clock, "home:b", lead=False)
    lease = await other.store.acquire("control", "home:a", 30.0)
    assert lease is not None
    await other.store.release(lease)
    other.lead()
    await until(other._leads, "the other control plane leads")
    assert old_fence is not None
    await other.apply()

    async def waits() -> bool:
        return bool(await other.rows(Worker))

    await until(waits, "the successor serves")
    with pytest.raises(Fenced):
        await plane.store.commit(Change((), "controller:serving", fence=old_fence))
    agent.plane = other
    await agent.serve()
    await other.table("serve")
    await other.leadership.step_down()
    await other.die()

    async def back() -> bool:
        clock.advance(3.0)
        await agent_beat(agent, plane)
        fence = plane.leadership.fence
        return fence is not None and fence.generation > old_fence.generation

    await until(back, "the first one leads again")
    await plane.apply("llama")

    async def decided() -> bool:
        return bool(await plane.rows(Replica, name="llama-0-1"))

    await until(decided, "its loops decide again")


async def agent_beat(agent: Agent, plane: Plane) -> None:
    agent.plane = plane
    await agent.beat()
