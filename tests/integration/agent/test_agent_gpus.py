"""A whole control plane and an agent on a fake driver: what happens to GPUs reaches the scheduler, and the ledger."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
import structlog
from agent_process import end_leftovers
from whole_plane import TOKENS, ShiftedClock, WholePlane

from moorage.agent.agent import Agent
from moorage.agent.config import AgentConfig
from moorage.agent.inventory import LOOK_S
from moorage.devices.port import Device, Health, Reading, Use
from moorage.devices.recording import RecordingDevices
from moorage.domain.nouns import Machine
from moorage.domain.states import WorkerState
from tests.ports import free_range

GIB = 1 << 30


@dataclass
class Box:
    """One machine: its agent's clock and driver, and the plane it joined."""

    plane: WholePlane
    clock: ShiftedClock
    devices: RecordingDevices

    async def gpus(self) -> list[dict[str, Any]]:
        """The ledger's lines."""
        found: dict[str, Any] = await self.plane.graph.deps.reader.machine("box")
        return list(found["gpus"])

    async def shows(self, holders: list[str]) -> list[dict[str, Any]]:
        """The ledger once it shows these; the agent looks again at each asking."""

        async def ask() -> list[dict[str, Any]] | None:
            self.clock.ahead_s += LOOK_S
            seen = await self.gpus()
            return seen if [g["holder"] for g in seen] == holders else None

        return await self.plane.until(ask, f"GPUs are {holders}")

    async def notes(self) -> list[str]:
        """Codes in the machine's history."""
        machine = (await self.plane.store.find(Machine, name="box"))[0]
        return [h.reason.code for h in await self.plane.store.history(uid=machine.uid, limit=1000)]


@pytest.fixture
async def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Box]:
    plane = WholePlane(tmp_path)
    await plane.open(monkeypatch)
    some = [Device(n, f"GPU-{n}", "nvidia", "H100", "NVIDIA H100 80GB HBM3", 80 * GIB) for n in range(2)]
    made = Box(plane, ShiftedClock(), RecordingDevices(Reading(d, used_bytes=0, uses=()) for d in some))
    home = tmp_path / "box"
    config = AgentConfig(
        server_url=plane.url, name="box", home=home, token=TOKENS["agent_join"], ports=free_range(8), worker_env={}
    )
    agent = Agent(config, made.clock, SystemRandom(), structlog.get_logger(), "test", devices=made.devices)
    stop = asyncio.Event()
    running = asyncio.create_task(agent.run(stop))
    await plane.machine_is("box", "Ready")
    yield made
    made.devices.go_on()
    stop.set()
    await running
    end_leftovers(home)
    await plane.close()


async def worker_waits_for(plane: WholePlane, code: str) -> None:
    async def ask() -> bool:
        told = await plane.graph.deps.explain.why("default", "train")
        return any(r["code"] == code for group in told["machines"] for r in group["reasons"])

    await plane.until(ask, f"it waits for {code}")


async def test_a_worker_holds_a_gpu_and_its_own_memory_there_is_nobody_elses(box: Box) -> None:
    await box.plane.submit(group={"resources": {"gpus": 1}})
    worker = await box.plane.worker_is("Running")
    pid = await box.plane.pid_of(1)
    box.devices.change(0, used_bytes=40 * GIB, uses=(Use(pid, 40 * GIB),))
    before = box.devices.reads
    held, free = await box.shows(["held", "free"])
    await box.plane.until(_later(box, before + 3), "the agent looked three times")
    held, free = await box.gpus()
    assert (held["worker"], held["work"], held["process"]["pid"]) == (worker.uid, worker.name, pid)
    assert (held["foreign_bytes"], free["holder"], held["since"] is not None) == (0, "free", True)


async def test_a_gpu_that_fails_under_a_worker_is_told_and_the_worker_goes_on(box: Box) -> None:
    await box.plane.submit(group={"resources": {"gpus": 1}})
    await box.plane.worker_is("Running")
    box.devices.change(0, health=Health.FAULTY, fault="Xid 79: it fell off the bus")
    box.clock.ahead_s += LOOK_S

    async def told() -> bool:
        worker = await box.plane.worker_is("Running", epoch=1)
        return worker.reason is not None and worker.reason.code == "worker.gpu_fault"

    await box.plane.until(told, "its reason tells of the fault")
    assert (await box.gpus())[0]["holder"] == "held"
    box.plane.tell_to_exit(1)
    await box.plane.run_is("Completed")
    (faulty, _) = await box.shows(["faulty", "free"])
    assert faulty["fault"] == "Xid 79: it fell off the bus"
    assert "machine.gpu_faulty" in await box.notes()


async def test_faulty_and_foreign_gpus_are_given_to_nobody_until_they_are_well(box: Box) -> None:
    box.devices.change(0, health=Health.FAULTY, fault="Xid 79")
    box.devices.change(1, used_bytes=5 * GIB, uses=(Use(1, 5 * GIB),))
    (_, foreign) = await box.shows(["faulty", "foreign"])
    assert foreign["foreign_pids"] == [1]
    await box.plane.submit(group={"resources": {"gpus": 1}})
    await worker_waits_for(box.plane, "node.gpu_fault")
    await worker_waits_for(box.plane, "node.gpu_foreign")
    box.devices.change(1, used_bytes=0, uses=())
    box.clock.ahead_s += LOOK_S
    worker = await box.plane.worker_is(WorkerState.RUNNING)  # nothing else woke the scheduler than the agent's word
    assert worker.gpus == (1,)
    assert [c for c in await box.notes() if "gpu" in c][-1] == "machine.gpu_ok"
    assert await box.plane.graph.deps.reader.accounts.check() == ()


async def test_work_that_wants_only_healthy_gpus_does_not_get_one_at_risk(box: Box) -> None:
    for index in (0, 1):
        box.devices.change(index, health=Health.AT_RISK, fault="memory rows are to be remapped at the next reset")
    before = len(await box.notes())
    await box.plane.until(_noted(box, before + 2), "the risk is noted")
    await box.plane.submit(group={"resources": {"gpus": {"count": 1, "healthy_only": True}}})
    await worker_waits_for(box.plane, "node.healthy_gpus")


async def test_a_driver_that_hangs_leaves_the_machine_and_its_work_as_they_are(box: Box) -> None:
    await box.plane.submit(group={"resources": {"gpus": 1}})
    await box.plane.worker_is("Running")
    box.devices.hang()
    before = box.devices.reads
    await box.plane.until(_later(box, before + 1), "a look hangs")
    heard = (await box.plane.machine_is("box", "Ready")).heartbeat_at or 0.0

    async def beats() -> bool:
        return ((await box.plane.machine_is("box", "Ready")).heartbeat_at or 0.0) > heard + 2.0

    await box.plane.until(beats, "heartbeats go on while it hangs")
    assert [g["holder"] for g in await box.gpus()] == ["held", "free"]
    assert [g["health"] for g in await box.gpus()] == ["ok", "ok"]


ASKS = 100
"""Asked so often without a look in between, time is put forward once more: the agent may have begun its wait late."""


def _later(box: Box, reads: int) -> Callable[[], bool]:
    """Puts time forward look by look: much more of it at once would be a silence of the whole machine."""
    seen, asked = -1, 0

    def ask() -> bool:
        nonlocal seen, asked
        asked += 1
        if box.devices.reads != seen or asked % ASKS == 0:
            seen = box.devices.reads
            box.clock.ahead_s += LOOK_S
        return box.devices.reads >= reads

    return ask


def _noted(box: Box, count: int) -> Callable[[], Awaitable[bool]]:
    async def ask() -> bool:
        box.clock.ahead_s += LOOK_S
        return len(await box.notes()) >= count

    return ask
