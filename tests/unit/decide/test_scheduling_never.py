"""What can never be placed is told so at once and in the most telling words; what only passes is not called never."""

from dataclasses import replace

import pytest

from moorage.domain.nouns import Machine
from tests.scheduling_world import GIB, SchedulingWorld, gpus


@pytest.fixture
def world() -> SchedulingWorld:
    """Nothing in it."""
    return SchedulingWorld()


def why(world: SchedulingWorld, name: str) -> str:
    """What a run that can never be placed is told."""
    assert world.code(name) == "place.never_fits"
    reason = world.w(f"{name}-worker-0").reason
    assert reason is not None
    return str(reason.params["why"])


def test_a_gang_larger_than_the_fleet_is_told_so_in_the_first_cycle(world: SchedulingWorld) -> None:
    for n in range(3):
        world.machine(f"m{n}")
    world.submit("wide", gpu=8, count=4, gang=True)
    world.submit("fits", gpu=8, count=3, gang=True, priority=-1)
    world.cycle()
    assert why(world, "wide") == "asks for 4 workers of 8 x GPU at once, the machines hold 3 of them at most"
    assert world.code("fits") != "place.never_fits"


def test_a_gang_that_fits_an_empty_fleet_waits_and_is_not_told_never(world: SchedulingWorld) -> None:
    world.machine("m0")
    world.submit("first", gpu=8)
    world.cycle()
    world.submit("gang", gpu=4, count=2, gang=True)
    world.cycle()
    assert world.code("gang") != "place.never_fits"


@pytest.mark.parametrize("spoilt", [{"health": "faulty", "fault": "xid 79"}, {"foreign_bytes": GIB}])
def test_a_gpu_that_is_faulty_or_foreign_now_is_no_reason_for_never(
    world: SchedulingWorld, spoilt: dict[str, object]
) -> None:
    sound, other = gpus(2)
    world.machine("m0", capacity={"gpus": (sound, {**other, **spoilt})})
    world.submit("alone", gpu=2)
    world.submit("gang", gpu=1, count=2, gang=True)
    world.cycle()
    assert world.code("alone") == "place.no_machine_fits"
    assert world.code("gang") == "place.gang_not_whole"


def test_a_cordon_is_no_reason_for_never(world: SchedulingWorld) -> None:
    world.machine("m0")
    world.machine("m1", cordoned="maintenance")
    world.submit("gang", gpu=8, count=2, gang=True)
    world.cycle()
    assert world.code("gang") == "place.gang_not_whole"


@pytest.mark.parametrize(
    ("topology", "most"),
    [
        ({"keep": "machine"}, 2),
        ({"keep": "rack"}, 4),
        ({"max_machines": 2}, 4),
        ({"spread": "rack"}, 2),
    ],
)
def test_rules_about_machines_bound_what_a_gang_can_ever_have(
    world: SchedulingWorld, topology: dict[str, object], most: int
) -> None:
    for n, rack in enumerate(("r1", "r1", "r2")):
        world.machine(f"m{n}", gpu_count=8, labels={"moorage/rack": rack})
    asked = {"gpu": 4, "gang": True, "placement": {"topology": topology}}
    world.submit("over", count=most + 1, **asked)
    world.cycle()
    assert why(world, "over").endswith(f"the machines hold {most} of them at most")
    world.submit("just", count=most, **asked)
    world.cycle()
    assert all(world.w(f"just-worker-{n}").machine is not None for n in range(most))


def test_one_worker_a_machine_bounds_what_a_gang_can_ever_have(world: SchedulingWorld) -> None:
    world.machine("m0")
    world.submit("gang", gpu=1, count=2, gang=True, placement={"spread": "machine"})
    world.cycle()
    assert why(world, "gang") == "asks for 2 workers of 1 x GPU at once, the machines hold 1 of them at most"


def test_never_names_the_machine_that_comes_nearest(world: SchedulingWorld) -> None:
    world.machine("a-large", gpu_count=8)
    world.machine("z-small", gpu_count=2)
    world.submit("wide", gpu=12)
    world.cycle()
    assert why(world, "wide") == "asks for 12 x GPU, a-large has 8"


def test_never_names_a_machine_that_lacks_one_thing_before_one_that_lacks_two(world: SchedulingWorld) -> None:
    world.machine("a-both", gpu_count=7)
    world.machine("b-one", gpu_count=4, capacity={"cpu_milli": 200_000})
    world.submit("wide", gpu=8, request={"cpu_milli": 100_000})
    world.cycle()
    assert why(world, "wide") == "asks for 8 x GPU, b-one has 4"


def test_never_says_all_that_the_nearest_machine_lacks(world: SchedulingWorld) -> None:
    world.machine("m0", gpu_count=4)
    world.submit("wide", gpu=8, request={"cpu_milli": 128_000})
    world.cycle()
    assert why(world, "wide") == "asks for 128 cores, m0 has 64; it asks for 8 x GPU, m0 has 4"


# A fabric that a run requires binds its reservation and its victims too


def fabric(world: SchedulingWorld, name: str, gbps: int) -> Machine:
    return world.machine(name, gpu_count=2, capacity={"fabrics": [{"fabric": "infiniband", "gbps": gbps}]})


def ask(world: SchedulingWorld, name: str, **fields: object) -> None:
    topology = {"fabric": "infiniband", "min_gbps": 200, "required": True}
    world.submit(name, gpu=2, placement={"topology": topology}, **fields)


def test_the_head_is_kept_no_room_without_the_fabric_that_it_requires(world: SchedulingWorld) -> None:
    fabric(world, "fast", 400)
    fabric(world, "slow", 100)
    world.submit("late", gpu=2, time_limit=5000, placement={"machines": ["fast"]})
    world.submit("early", gpu=2, time_limit=1000, placement={"machines": ["slow"]})
    world.cycle()
    ask(world, "picky")
    cycle = world.cycle()
    assert cycle.outcome.head is not None
    assert [cycle.outcome.ledger.fleet.room(spot.row).machine.name for _, spot in cycle.outcome.head.room] == ["fast"]


def test_nobody_is_stopped_where_the_required_fabric_is_missing(world: SchedulingWorld) -> None:
    fabric(world, "slow", 100)
    world.submit("victim", gpu=2)
    world.cycle()
    ask(world, "picky", priority=5)
    cycle = world.cycle()
    assert all(wait.plan is None for wait in cycle.outcome.waits)
    fabric(world, "fast", 400)
    world.submit("other", gpu=2, placement={"machines": ["fast"]}, priority=6)
    world.cycle()
    assert world.w("other-worker-0").machine is not None
    run = world.run_of(world.w("other-worker-0"))
    world.rows[run.uid] = replace(run, priority=0)
    plans = [wait.plan for wait in world.cycle().outcome.waits if wait.plan is not None]
    assert [[h.worker.uid for h in plan.workers] for plan in plans] == [["other-worker-0"]]
