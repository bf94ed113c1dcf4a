"""What an agent tells of its GPUs and its pressure, with a fake driver."""

import asyncio

import pytest
import structlog
from agent_clock import SteppedClock, settle

from moorage.agent.inventory import FOREIGN_BYTES, LIMIT_S, SILENT_S, Inventory, Ours, strangers
from moorage.agent.pressure import Levels, conditions
from moorage.devices.port import Device, DevicesUnavailable, Health, Reading, Use
from moorage.devices.recording import RecordingDevices

GIB = 1 << 30


def reading(index=0, **fields):
    return Reading(Device(index, f"u{index}", "nvidia", "H100", "NVIDIA H100", 80 * GIB), **fields)


class World:
    def __init__(self, tmp_path, *readings, ours=None):
        self.clock = SteppedClock()
        self.devices = RecordingDevices(readings)
        self.it = Inventory(self.devices, (tmp_path,), self.clock, structlog.get_logger())
        self.it.attend(lambda: ours or Ours())
        self.changes = 0
        self.it.on_change = self._count

    def _count(self):
        self.changes += 1

    async def look(self):
        await asyncio.wait_for(self.it.look(), 60)
        return self.it.gpus


async def test_a_change_is_told_once_and_sameness_is_not(tmp_path):
    world = World(tmp_path, reading())
    await world.look()
    await world.look()
    assert world.changes == 1
    world.devices.change(0, health=Health.FAULTY, fault="Xid 79")
    (gpu,) = await world.look()
    assert (gpu.health, gpu.fault, world.changes) == ("faulty", "Xid 79", 2)


async def test_a_driver_that_hangs_holds_up_a_look_no_longer_than_its_limit(tmp_path):
    world = World(tmp_path, reading())
    seen = await world.look()
    world.devices.hang()
    looking = asyncio.ensure_future(world.it.look())
    await settle()
    await world.clock.forward(LIMIT_S)
    await asyncio.wait_for(looking, 60)
    assert world.it.gpus == seen, "what was seen last stands"
    again = asyncio.ensure_future(world.it.look())
    await settle()
    assert world.devices.reads == 2, "no second thread goes where one hangs"
    await world.clock.forward(SILENT_S)
    await asyncio.wait_for(again, 60)
    assert world.it.gpus[0].health == "faulty"
    assert "has not answered" in (world.it.gpus[0].fault or "")
    world.devices.go_on()
    for _ in range(2):  # the late answer, then one of now
        await world.look()
    assert world.it.gpus == seen


async def test_at_the_end_the_driver_is_let_go_unless_a_look_hangs_in_it(tmp_path):
    world = World(tmp_path, reading())
    await world.look()
    await world.it.close()
    assert world.devices.closes == 1
    world.devices.hang()
    looking = asyncio.ensure_future(world.it.look())
    await settle()
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    await asyncio.wait_for(world.it.close(), 60)
    assert world.devices.closes == 1
    world.devices.go_on()


async def test_a_driver_that_fails_for_a_moment_changes_nothing(tmp_path):
    world = World(tmp_path, reading())
    seen = await world.look()
    world.devices.fail(DevicesUnavailable("busy"))
    assert await world.look() == seen


async def test_a_drivers_library_that_fails_in_any_way_costs_no_agent(tmp_path):
    world = World(tmp_path, reading())
    seen = await world.look()
    world.devices.fail(TypeError("an answer of another shape"))
    assert await world.look() == seen
    world.devices.fail(None)
    assert await world.look() == seen


async def test_a_gpu_that_is_not_shown_any_more_stays_as_faulty(tmp_path):
    world = World(tmp_path, reading(0), reading(1))
    await world.look()
    world.devices.lose(1)
    assert [(g.index, g.health) for g in await world.look()] == [(0, "ok"), (1, "faulty")]
    world.devices.show(reading(1))
    assert [(g.index, g.health) for g in await world.look()] == [(0, "ok"), (1, "ok")]


async def test_a_stranger_is_told_when_seen_twice_so_that_an_end_is_not_one(tmp_path):
    world = World(tmp_path, reading())
    await world.look()
    world.devices.change(0, used_bytes=3 * GIB, uses=(Use(1, 3 * GIB),))
    assert (await world.look())[0].foreign_bytes == 0
    (gpu,) = await world.look()
    assert (gpu.foreign_bytes, gpu.foreign_pids) == (3 * GIB, (1,))
    world.devices.change(0, used_bytes=0, uses=())
    assert (await world.look())[0].foreign_bytes == 0


async def test_a_stranger_that_was_there_first_is_told_at_once(tmp_path):
    world = World(tmp_path, reading(used_bytes=3 * GIB, uses=(Use(1, 3 * GIB),)))
    assert (await world.look())[0].foreign_bytes == 3 * GIB


async def test_a_strangers_growth_within_a_step_is_no_news(tmp_path):
    world = World(tmp_path, reading(used_bytes=300 << 20, uses=(Use(1, 300 << 20),)))
    await world.look()
    world.devices.change(0, used_bytes=310 << 20, uses=(Use(1, 310 << 20),))
    await world.look()
    assert world.changes == 1


@pytest.mark.parametrize(
    ("fields", "ours", "shown", "held", "expected"),
    [
        ({"used_bytes": 2 * GIB, "uses": (Use(7, 2 * GIB),)}, {7}, {7}, {0}, 0),
        ({"used_bytes": 2 * GIB, "uses": (Use(7, 2 * GIB),)}, set(), {7}, {0}, 2 * GIB),
        ({"used_bytes": 2 * GIB, "uses": (Use(7, 2 * GIB),)}, set(), set(), {0}, 0),
        ({"used_bytes": 2 * GIB, "uses": (Use(7, 2 * GIB),)}, set(), set(), set(), 2 * GIB),
        ({"used_bytes": 2 * GIB, "uses": None}, set(), set(), set(), 2 * GIB),
        ({"used_bytes": 2 * GIB, "uses": None}, set(), set(), {0}, 0),
        ({"used_bytes": None, "uses": None}, set(), set(), set(), 0),
    ],
    ids=[
        "ours",
        "visible stranger",
        "unseen on a held one",
        "unseen on a free one",
        "no list, free",
        "no list, held",
        "nothing known",
    ],
)
def test_whose_memory_it_is(fields, ours, shown, held, expected):
    found, _ = strangers(reading(**fields), frozenset(ours), frozenset(shown), frozenset(held))
    assert found == expected


def test_a_display_is_no_stranger_worth_a_gpu():
    found, _ = strangers(
        reading(used_bytes=40 << 20, uses=(Use(1, 40 << 20),)), frozenset(), frozenset({1}), frozenset()
    )
    assert found < FOREIGN_BYTES


@pytest.mark.parametrize(
    ("levels", "before", "expected"),
    [
        (Levels(1.0, 0.01, ()), (), ()),
        (Levels(30.0, 0.5, ()), (), ("memory",)),
        (Levels(10.0, 0.5, ()), (), ()),
        (Levels(10.0, 0.5, ()), ("memory",), ("memory",)),
        (Levels(4.0, 0.5, ()), ("memory",), ()),
        (Levels(None, 0.01, ()), (), ("memory",)),
        (Levels(0.0, 0.5, ((3 * GIB, 1000 * GIB),)), (), ()),
        (Levels(0.0, 0.5, ((1 * GIB, 1000 * GIB),)), (), ("disk",)),
        (Levels(0.0, 0.5, ((int(2.5 * GIB), 1000 * GIB),)), ("disk",), ("disk",)),
        (Levels(0.0, 0.5, ((int(3.5 * GIB), 1000 * GIB),)), ("disk",), ()),
        (Levels(0.0, 0.5, ((1 * GIB, 10 * GIB),)), (), ()),
    ],
)
def test_pressure_begins_at_one_level_and_ends_at_a_better_one(levels, before, expected):
    assert conditions(levels, before) == expected
