"""The ledger of GPUs: what each is taken by, and that a ledger which lies is found out."""

from dataclasses import replace

import pytest

from moorage.decide.invariants import gpu_violations
from moorage.decide.scheduling.accounts import Holder, Kept, Line, Surroundings, counts, kept_now, lines
from moorage.decide.scheduling.feasible import refusals
from moorage.decide.scheduling.fleet import Fleet
from moorage.decide.scheduling.snapshot import Ask, Request
from moorage.domain.nouns import Machine, Run
from tests.scheduling_world import SchedulingWorld, gpus


def of(world: SchedulingWorld, name: str = "m0") -> tuple[Line, ...]:
    machine = world.rows[f"machine-{name}"]
    assert isinstance(machine, Machine)
    held = [{"worker": h.worker, "epoch": h.epoch, "gpus": h.gpus} for h in world.holds.values()]
    around = Surroundings({w.uid: w for w in world.standing()}, {r.uid: r for r in world.of(Run)})
    return lines(machine, held, kept_now(world.book(), world.now), around)


def states(found: tuple[Line, ...]) -> list[str]:
    return [str(line.holder) for line in found]


def test_a_held_gpu_says_by_whom_since_when_and_until_when() -> None:
    world = SchedulingWorld()
    world.machine("m0", gpu_count=2)
    world.submit("a", gpu=1, time_limit=600.0)
    world.submit("b", gpu=1)
    world.cycle()
    placed_at = world.now
    world.now += 5
    world.start_all()
    first, second = of(world)
    assert (first.worker, first.since, first.until) == ("a-worker-0", placed_at, world.now + 600.0 + 20.0)
    assert (second.worker, second.since, second.until) == ("b-worker-0", placed_at, None)


def test_what_an_earlier_placement_still_holds_is_held() -> None:
    machine = Machine(uid="m", capacity={"gpus": gpus(1)})
    (line,) = lines(machine, [{"worker": "w", "epoch": 1, "gpus": [0]}], [], Surroundings())
    assert (line.holder, line.worker, line.since) == (Holder.HELD, "w", None)


def test_faults_and_strangers_take_a_gpu_and_a_risk_does_not() -> None:
    world = SchedulingWorld()
    some = gpus(4)
    some[1].update(health="faulty", fault="Xid 79")
    some[2].update(foreign_bytes=1 << 30)
    some[3].update(health="at_risk", fault="rows")
    world.machine("m0", capacity={"gpus": some})
    assert states(of(world)) == ["free", "faulty", "foreign", "free"]
    assert dict(counts(of(world))) == {"free": 2, "held": 0, "reserved": 0, "faulty": 1, "foreign": 1}


def test_a_held_gpu_that_fails_stays_held() -> None:
    world = SchedulingWorld()
    some = gpus(1)
    world.machine("m0", capacity={"gpus": some})
    world.submit("a", gpu=1)
    world.cycle()
    some[0].update(health="faulty", fault="Xid 79")
    (line,) = of(world)
    assert (line.holder, line.gpu["fault"]) == (Holder.HELD, "Xid 79")


def test_a_restarting_workers_gpus_are_reserved_for_it_until_a_minute_after_it_may_start() -> None:
    world = SchedulingWorld()
    world.machine("m0", gpu_count=2)
    world.submit("a", gpu=1)
    world.cycle()
    world.start_all()
    world.fails("a-worker-0")
    world.queued_again("a-worker-0", restart_at=world.now + 30)
    first, second = of(world)
    assert first.kept == Kept("machine-m0", 0, "a-worker-0", world.now + 90, "restart")
    assert (first.holder, first.until, second.holder) == (Holder.RESERVED, world.now + 90, Holder.FREE)


def test_what_the_head_needs_is_reserved_for_it_until_it_starts() -> None:
    world = SchedulingWorld()
    world.machine("m0", gpu_count=4)
    world.submit("small", gpu=2, time_limit=600.0)
    world.cycle()
    world.start_all()
    world.submit("large", gpu=4)
    world.cycle()
    found = of(world)
    assert states(found) == ["held", "held", "reserved", "reserved"]
    assert found[2].kept is not None
    assert (found[2].kept.owner, found[2].kept.why, found[2].until) == ("large-worker-0", "head", found[0].until)


def test_a_gpu_that_is_held_and_not_reported_any_more_is_in_the_ledger() -> None:
    machine = Machine(uid="m", capacity={"gpus": gpus(1)})
    found = lines(machine, [{"worker": "w", "epoch": 1, "gpus": [3]}], [], Surroundings())
    assert [(line.index, line.holder) for line in found] == [(0, Holder.FREE), (3, Holder.HELD)]
    assert "not report" in str(found[1].gpu["fault"])


MACHINE = Machine(uid="m", name="m", capacity={"gpus": gpus(3)})
HELD = [{"worker": "w", "epoch": 1, "gpus": [0]}]
KEPT = [Kept("m", 1, "v", None, "head")]
RIGHT = lines(MACHINE, HELD, KEPT, Surroundings())


def test_a_ledger_that_agrees_has_no_violation() -> None:
    assert states(RIGHT) == ["held", "reserved", "free"]
    assert gpu_violations(MACHINE, HELD, KEPT, RIGHT) == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lines": RIGHT[:2]}, "the ledger has GPUs"),
        ({"lines": (*RIGHT, RIGHT[0])}, "in two states"),
        ({"held": [*HELD, {"worker": "x", "epoch": 1, "gpus": [0]}]}, "held twice"),
        ({"held": []}, "is held by None"),
        ({"held": [*HELD, {"worker": "x", "epoch": 1, "gpus": [2]}]}, "held by x"),
        ({"kept": [*KEPT, Kept("m", 1, "u", None, "restart")]}, "reserved twice"),
        ({"kept": []}, "reserved for None"),
        ({"kept": [*KEPT, Kept("m", 2, "u", None, "restart")]}, "calls it free"),
        ({"lines": (*RIGHT[:2], replace(RIGHT[2], gpu={"index": 2, "health": "faulty"}))}, "is faulty"),
        ({"lines": (*RIGHT[:2], replace(RIGHT[2], gpu={"index": 2, "foreign_bytes": 1}))}, "strangers"),
        ({"machine": replace(MACHINE, capacity={"gpus": gpus(2)})}, "the ledger has GPUs"),
    ],
)
def test_each_way_of_not_agreeing_is_found(change, says) -> None:
    given = {"machine": MACHINE, "held": HELD, "kept": KEPT, "lines": RIGHT, **change}
    found = gpu_violations(given["machine"], given["held"], given["kept"], given["lines"])
    assert any(says in text for text in found), found


def test_a_fleet_kept_up_learns_what_becomes_of_gpus_as_one_built_whole() -> None:
    world = SchedulingWorld()
    some = gpus(4)
    machine = world.machine("m0", capacity={"gpus": some})
    ask = Request(gpus=1, healthy_only=True)
    kept = Fleet(world.rooms())
    kept.kind(ask)
    for index, fields in enumerate(
        [{"health": "faulty", "fault": "x"}, {"foreign_bytes": 1 << 30}, {"health": "at_risk", "fault": "y"}]
    ):
        some = (*some[:index], {**some[index], **fields}, *some[index + 1 :])
        world.rows[machine.uid] = replace(machine, capacity={**machine.capacity, "gpus": some})
        kept.put(world.rooms()[0])
        whole = Fleet(world.rooms())
        for name in ("gpus", "usable"):
            assert kept.base(name)[0] == whole.base(name)[0]
        assert kept.kind(ask)[0] == whole.kind(ask)[0]
    assert int(kept.base("usable")[0]) == 0b1100, "one at risk may be used"
    assert int(kept.kind(ask)[0]) & int(kept.base("usable")[0]) == 0b1000, "not by who wants healthy ones only"


def test_a_gpu_at_risk_is_no_fault_to_who_would_take_it() -> None:
    world = SchedulingWorld()
    some = gpus(2, health="at_risk", fault="rows")
    world.machine("m0", capacity={"gpus": some})
    room = world.rooms()[0]
    assert [r.code for r in refusals(Ask(Request(gpus=3)), room)] == ["node.gpus"]
    assert [r.code for r in refusals(Ask(Request(gpus=1, healthy_only=True)), room)] == ["node.healthy_gpus"]
    some[0]["health"] = "faulty"
    assert [r.code for r in refusals(Ask(Request(gpus=2)), world.rooms()[0])] == ["node.gpus", "node.gpu_fault"]
