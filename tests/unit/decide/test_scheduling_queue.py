"""Gangs, the head of the queue, backfill, reservations and preemption: what a cycle does with a small cluster."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.domain.changes import Update
from moorage.domain.nouns import Run
from moorage.domain.states import RunState, WorkerState
from tests.scheduling_world import SchedulingWorld, gpu_holders, gpus


@pytest.fixture
def world() -> SchedulingWorld:
    return SchedulingWorld()


# Gangs


def test_a_gang_of_two_machines_with_room_for_half_starts_nothing(world: SchedulingWorld) -> None:
    world.machine("a")
    world.machine("b", cordoned="disk")
    world.submit("pair", gpu=8, count=2, gang=True)
    cycle = world.settle()
    assert world.where("pair-worker-0", "pair-worker-1") == [None, None]
    assert {world.code(f"pair-worker-{n}") for n in range(2)} == {"place.gang_not_whole"}
    assert dict(world.params("pair")) == {"ready": 2, "total": 2}
    assert cycle.outcome.head is None, "nothing that ends by itself would let it start"


def test_a_gang_is_placed_in_one_change(world: SchedulingWorld) -> None:
    world.machine("a")
    world.machine("b")
    world.submit("pair", gpu=8, count=2, gang=True)
    (change,) = world.cycle().changes
    assert sorted(w.uid for w in change.writes if isinstance(w, Update)) == ["pair-worker-0", "pair-worker-1"]
    assert sorted(map(str, world.where("pair-worker-0", "pair-worker-1"))) == ["a", "b"]


def test_a_gang_with_a_minimum_starts_with_its_first_members_and_takes_the_others_as_room_comes(
    world: SchedulingWorld,
) -> None:
    world.machine("a", gpu_count=3)
    world.submit("filler", gpu=1)
    world.cycle()
    world.submit("gang", gpu=1, count=4, gang={"min_available": 2})
    world.settle()
    assert world.where(*(f"gang-worker-{n}" for n in range(4))) == ["a", "a", None, None]
    world.start_all()
    world.ends("filler")
    world.settle()
    assert world.where("gang-worker-2", "gang-worker-3") == ["a", None]


def test_the_minimum_of_a_gang_that_does_not_fit_says_so(world: SchedulingWorld) -> None:
    world.machine("a", gpu_count=1)
    world.machine("b", gpu_count=1, cordoned="fan")
    world.submit("gang", gpu=1, count=3, gang={"min_available": 2})
    world.settle()
    assert world.where(*(f"gang-worker-{n}" for n in range(3))) == [None] * 3
    assert world.code("gang-worker-0") == "place.min_not_whole"


def test_a_worker_alone_is_never_told_of_a_gang_that_asks_for_the_same(world: SchedulingWorld) -> None:
    world.machine("a", cordoned="fan")
    world.submit("gang", gpu=1, count=3, gang={"min_available": 2})
    world.submit("whole", gpu=1, count=3, gang=True)
    world.submit("alone", gpu=1)
    world.settle()
    said = {name: world.code(f"{name}-worker-0") for name in ("gang", "whole", "alone")}
    assert said == {
        "gang": "place.min_not_whole",
        "whole": "place.gang_not_whole",
        "alone": "place.no_machine_fits",
    }


def test_groups_count_in_the_order_of_the_spec_for_the_minimum(world: SchedulingWorld) -> None:
    world.machine("a", gpu_count=2)
    groups = [{"name": "b", "count": 1}, {"name": "a", "count": 3}]
    world.submit("mixed", gpu=1, groups=groups, gang={"min_available": 2})
    world.settle()
    assert world.where("mixed-b-0", "mixed-a-0", "mixed-a-1") == ["a", "a", None]


def test_members_of_a_gang_with_different_requests_are_placed_together_or_not_at_all(world: SchedulingWorld) -> None:
    world.machine("a", gpu_count=4)
    groups = [
        {"name": "head", "count": 1, "request": {"cpu_milli": 64000}},
        {"name": "hand", "count": 4, "request": {"gpus": {"count": 1}, "cpu_milli": 1000}},
    ]
    world.submit("mixed", groups=groups, gang=True)
    world.settle()
    assert {w.machine for w in world.pending()} == {None}
    assert len(world.pending()) == 5
    world.machine("b", gpu_count=0)
    world.settle()
    assert not world.pending()


def test_each_group_is_placed_with_its_own_engine(world: SchedulingWorld) -> None:
    world.machine("plain")
    world.machine("podman", engines=("podman",))
    groups = [
        {"name": "one", "count": 1, "runtime": {"runner": "process"}},
        {"name": "two", "count": 1, "runtime": {"runner": "podman"}},
    ]
    world.submit("mixed", groups=groups)
    world.settle()
    assert world.where("mixed-one-0", "mixed-two-0") == ["plain", "podman"]


@pytest.mark.parametrize(
    "fields",
    [
        {"cancel": {"cause": "user"}},
        {"deleting": True},
        {"deleted_at": 1.0},
        {"restarting": {"cause": "gang_restart"}},
        {"state": RunState.FAILED},
    ],
)
def test_a_run_that_is_to_end_or_starts_again_gets_no_place(world: SchedulingWorld, fields: dict[str, Any]) -> None:
    world.machine("a")
    run = world.submit("job")
    world.rows[run.uid] = replace(run, **fields)
    assert world.cycle().changes == ()


def test_a_worker_that_its_run_holds_back_is_not_placed_and_keeps_its_reason(world: SchedulingWorld) -> None:
    world.machine("a")
    world.submit("job")
    world.write(world.w("job"), waits={"code": "array.limit"})
    assert world.cycle().changes == ()


def test_a_gang_waits_whole_for_the_back_off_of_one_member(world: SchedulingWorld) -> None:
    world.machine("a")
    world.submit("pair", gpu=1, count=2, gang=True)
    world.write(world.w("pair-worker-1"), restart_at=world.now + 10)
    cycle = world.cycle()
    assert cycle.changes == ()
    assert cycle.wake_at == world.now + 10
    world.now += 10
    world.cycle()
    assert not world.pending()


# The head, and backfill


def full(world: SchedulingWorld, limits: tuple[float | None, ...], gpu: int = 1) -> None:
    """A machine of as many GPUs, each held by a running job with that time limit."""
    world.machine("a", gpu_count=gpu * len(limits))
    for n, limit in enumerate(limits):
        world.submit(f"job{n}", gpu=gpu, **({} if limit is None else {"time_limit": limit}))
        world.now += 1
    world.cycle()
    world.start_all()


def test_the_head_says_when_it_starts_and_short_work_runs_before_it(world: SchedulingWorld) -> None:
    full(world, (3000.0, 5000.0, 7000.0), gpu=1)
    world.rows["machine-a"] = world.machine("a", gpu_count=4)
    world.now += 1
    world.submit("big", gpu=4)
    world.now += 1
    world.submit("endless", gpu=1)
    world.submit("short", gpu=1, time_limit=60.0)
    world.settle()
    started = world.w("job2").started_at
    assert started is not None
    assert world.code("big") == "queue.head"
    assert world.params("big")["starts_by"] == started + 7000.0 + 20.0
    assert world.code("endless") == "queue.behind"
    assert dict(world.params("endless")) == {"run": "big", "starts_by": started + 7020.0}
    assert world.where("short") == ["a"]


def test_endless_small_jobs_do_not_starve_a_large_one(world: SchedulingWorld) -> None:
    full(world, (3000.0,) * 8)
    world.submit("big", gpu=8)
    world.now += 1
    for n in range(8):
        world.submit(f"small{n}", gpu=1)
    for n in range(8):
        world.now += 10
        world.ends(f"job{n}")
        world.settle()
        assert all(world.where(f"small{k}") == [None] for k in range(8))
    assert world.where("big") == ["a"]


def test_a_head_without_a_known_start_says_so_and_is_not_starved_either(world: SchedulingWorld) -> None:
    full(world, (None,) * 4)
    world.submit("big", gpu=4)
    world.now += 1
    world.submit("small", gpu=1, time_limit=1.0)
    world.settle()
    assert world.code("big") == "queue.head_unknown"
    for n in range(4):
        world.ends(f"job{n}")
        world.settle()
    assert (world.where("big"), world.where("small")) == (["a"], [None])


def test_work_that_uses_nothing_the_head_needs_is_placed(world: SchedulingWorld) -> None:
    full(world, (None, None))
    world.machine("b", gpu_count=1)
    world.submit("big", gpu=2)
    world.now += 1
    world.submit("small", gpu=1)
    world.submit("cpu", request={"cpu_milli": 1000})
    world.settle()
    assert world.where("big", "small") == [None, "b"]
    assert world.where("cpu") != [None]


def test_overdue_work_makes_the_start_unknown_and_never_negative(world: SchedulingWorld) -> None:
    full(world, (100.0,))
    world.submit("next", gpu=1)
    world.settle()
    assert world.code("next") == "queue.head"
    world.now += 500
    world.settle()
    assert world.code("next") == "queue.head_unknown"


def test_higher_priority_is_looked_at_first_however_long_others_waited(world: SchedulingWorld) -> None:
    """Retry delays must not let lower priority win: six of 50, then six of 51, one slot after the other."""
    full(world, (None,) * 3)
    for n in range(3):
        world.submit(f"low{n}", gpu=1, priority=50)
    world.now += 3600
    for n in range(3):
        world.submit(f"high{n}", gpu=1, priority=51)
    world.settle()
    placed = []
    for n in range(3):
        world.ends(f"job{n}")
        world.settle()
        placed += [w for w in (f"high{k}" for k in range(3)) if world.where(w) != [None] and w not in placed]
    assert len(placed) == 3
    assert all(world.where(f"low{n}") == [None] for n in range(3))


def test_a_service_is_not_waited_for_and_holds_nobody_back(world: SchedulingWorld) -> None:
    world.machine("a", gpu_count=2)
    world.submit("model", gpu=1, replica="replica-1", deployment="dep-1")
    world.cycle()
    world.start_all()
    world.submit("big", gpu=2)
    world.now += 1
    world.submit("small", gpu=1)
    world.settle()
    assert world.code("big") == "place.no_machine_fits"
    assert world.where("small") == ["a"]


def test_work_of_another_namespace_is_not_named(world: SchedulingWorld) -> None:
    full(world, (None,))
    world.submit("secret-head", gpu=1, namespace="other")
    world.now += 1
    world.submit("mine", gpu=1)
    world.settle()
    assert world.params("mine")["run"] == "work in another namespace"


# Rooms kept for restarts


def test_a_restarting_worker_keeps_its_gpu_until_a_minute_after_it_may_start(world: SchedulingWorld) -> None:
    full(world, (None,))
    world.fails("job0")
    world.submit("rival", gpu=1, priority=9)
    world.settle()
    assert world.where("rival") == [None], "kept from the moment of the failure"
    world.queued_again("job0", restart_at=world.now + 10)
    world.settle()
    assert world.where("rival", "job0") == [None, None]
    world.now += 10
    world.settle()
    assert world.where("rival", "job0") == [None, "a"]


def test_a_reservation_lapses(world: SchedulingWorld) -> None:
    full(world, (None,))
    world.fails("job0")
    world.queued_again("job0", restart_at=world.now + 10)
    world.write(world.w("job0"), waits={"code": "depends.waiting"})
    world.submit("rival", gpu=1)
    cycle = world.settle()
    assert world.where("rival") == [None]
    assert cycle.wake_at == world.now + 70
    world.now += 70
    world.settle()
    assert world.where("rival") == ["a"]


def test_the_place_of_a_failed_replica_is_kept_for_its_replacement(world: SchedulingWorld) -> None:
    world.machine("a", gpu_count=1)
    world.submit("gemma-0-1", gpu=1, replica="replica-1", deployment="dep-1")
    world.cycle()
    world.start_all()
    world.fails("gemma-0-1")
    world.submit("rival", gpu=1, priority=9)
    world.settle()
    assert world.where("rival") == [None]
    world.submit("gemma-0-2", gpu=1, replica="replica-2", deployment="dep-1")
    world.settle()
    assert world.where("rival", "gemma-0-2") == [None, "a"]


def test_nothing_is_kept_on_a_machine_that_is_cordoned(world: SchedulingWorld) -> None:
    full(world, (None,))
    world.machine("b", gpu_count=1)
    world.fails("job0")
    world.queued_again("job0", restart_at=world.now + 10)
    row = world.rows["machine-a"]
    world.commit_writes([Update("Machine", row.uid, row.version, fields={"cordoned": "fan"})], "person:p")
    world.now += 10
    world.settle()
    assert world.where("job0") == ["b"]


# Preemption


def test_lower_priority_is_stopped_and_its_room_belongs_to_who_it_was_stopped_for(world: SchedulingWorld) -> None:
    full(world, (None,))
    world.submit("urgent", gpu=1, priority=10)
    world.cycle()
    assert world.w("job0").state is WorkerState.STOPPING
    assert dict(world.w("job0").stop or {})["cause"] == "preemption"
    assert world.code("urgent") == "preempt.stopping"
    assert dict(world.params("urgent")) == {"k": 1, "runs": ["job0"]}
    world.settle()
    assert world.code("urgent") == "preempt.waiting"
    world.gone("job0")
    world.requeue_preempted()
    world.now += 1
    world.submit("thief", gpu=1, priority=9)
    world.settle()
    assert world.where("urgent", "job0", "thief") == ["a", None, None]


def test_work_that_comes_later_does_not_take_freed_room_however_high_its_priority(world: SchedulingWorld) -> None:
    full(world, (None,))
    world.submit("urgent", gpu=1, priority=10)
    world.settle()
    world.now += 1
    world.submit("thief", gpu=1, priority=11)
    world.gone("job0")
    world.requeue_preempted()
    world.cycle()
    assert world.where("urgent", "thief") == ["a", None]


def test_victims_that_end_at_different_times_leave_their_room_to_the_preemptor(world: SchedulingWorld) -> None:
    full(world, (None, None))
    world.submit("urgent", gpu=2, priority=10)
    world.settle()
    world.gone("job0")
    world.requeue_preempted()
    world.now += 30
    world.settle()
    assert world.where("job0", "urgent") == [None, None], "the victim is not let in again"
    world.gone("job1")
    world.requeue_preempted()
    world.settle()
    assert world.where("urgent") == ["a"]


def test_nobody_is_stopped_for_work_that_could_not_start_then(world: SchedulingWorld) -> None:
    full(world, (None, None))
    world.machine("b", gpu_count=1)
    world.submit("urgent", gpu=4, priority=10)
    world.submit("elsewhere", gpu=1, priority=10, placement={"labels": {"zone": "x"}})
    world.settle()
    assert not world.stopping()


def test_equal_and_higher_priority_are_never_stopped(world: SchedulingWorld) -> None:
    full(world, (None,))
    world.submit("same", gpu=1)
    world.submit("lower", gpu=1, priority=-1)
    world.settle()
    assert not world.stopping()


def test_one_is_stopped_where_one_is_enough(world: SchedulingWorld) -> None:
    world.machine("a", gpu_count=8)
    world.machine("b", gpu_count=8)
    for n in range(8):
        world.submit(f"one{n}", gpu=1, placement={"machines": ["a"]})
    world.submit("eight", gpu=8, placement={"machines": ["b"]})
    world.settle()
    world.start_all()
    world.submit("urgent", gpu=8, priority=10)
    world.settle()
    assert [w.uid for w in world.stopping()] == ["eight-worker-0"]


def test_the_lowest_priority_goes_first_then_the_least_beyond_the_need_then_the_newest(world: SchedulingWorld) -> None:
    world.machine("a", gpu_count=6)
    for name, gpu, priority in (("p5", 1, 5), ("wide", 2, 1), ("old", 1, 1), ("new", 1, 1), ("rest", 1, 5)):
        world.now += 1
        world.submit(name, gpu=gpu, priority=priority)
    world.settle()
    for name in ("p5", "wide", "old", "new", "rest"):
        world.now += 1
        world.starts(name)
    world.submit("urgent", gpu=1, priority=10)
    world.settle()
    assert [w.uid for w in world.stopping()] == ["new-worker-0"]


def test_a_gang_is_stopped_whole(world: SchedulingWorld) -> None:
    world.machine("a", gpu_count=1)
    world.machine("b", gpu_count=1)
    world.submit("pair", gpu=1, count=2, gang=True)
    world.settle()
    world.start_all()
    world.submit("urgent", gpu=1, priority=10)
    world.settle()
    assert sorted(w.uid for w in world.stopping()) == ["pair-worker-0", "pair-worker-1"]


def test_a_run_that_was_preempted_five_times_is_left_alone_until_it_ran(world: SchedulingWorld) -> None:
    full(world, (None,))
    run = world.rows["run-job0"]
    world.commit_writes([Update("Run", run.uid, run.version, fields={"preemptions": 5})], "controller:x")
    world.write(world.w("job0"), ran=False)
    world.submit("urgent", gpu=1, priority=10)
    world.settle()
    assert not world.stopping()
    world.write(world.w("job0"), ran=True)
    world.settle()
    assert [w.uid for w in world.stopping()] == ["job0-worker-0"]
    run = world.rows["run-job0"]
    assert isinstance(run, Run)
    assert run.preemptions == 1


def test_a_gang_gets_a_plan_for_all_of_its_members(world: SchedulingWorld) -> None:
    for name in "abc":
        world.machine(name, gpu_count=2)
    for n in range(6):
        world.submit(f"job{n}", gpu=1)
    world.settle()
    world.start_all()
    world.submit("pair", gpu=2, count=2, gang=True, priority=10)
    world.settle()
    assert len(world.stopping()) == 4
    for worker in world.stopping():
        world.gone(worker.uid)
    world.requeue_preempted()
    world.settle()
    assert None not in world.where("pair-worker-0", "pair-worker-1")


# Topology, health, foreign processes


def racks(world: SchedulingWorld, *names: str, gpu: int = 2) -> None:
    for n, rack in enumerate(names):
        world.machine(f"m{n}", gpu_count=gpu, labels={"moorage/rack": rack})


def test_a_run_kept_in_one_rack_goes_to_one_that_holds_all_of_it(world: SchedulingWorld) -> None:
    racks(world, "r1", "r2", "r2", "r3")
    world.submit("gang", gpu=2, count=2, gang=True, placement={"topology": {"keep": "rack"}})
    world.settle()
    assert sorted(map(str, world.where("gang-worker-0", "gang-worker-1"))) == ["m1", "m2"]


def test_a_run_kept_on_one_machine_is_not_spread(world: SchedulingWorld) -> None:
    racks(world, "r1", "r1", gpu=2)
    world.submit("gang", gpu=1, count=3, gang=True, placement={"topology": {"keep": "machine"}})
    world.settle()
    assert world.code("gang") == "place.never_fits"
    world.machine("large", gpu_count=4)
    world.settle()
    assert world.where("gang-worker-0", "gang-worker-1", "gang-worker-2") == ["large"] * 3


def test_single_workers_of_a_kept_run_follow_the_first(world: SchedulingWorld) -> None:
    racks(world, "r1", "r2")
    world.submit("kept", gpu=2, count=2, placement={"topology": {"keep": "machine"}})
    world.settle()
    first, second = world.where("kept-worker-0", "kept-worker-1")
    assert (first, second) == ("m0", None)
    (other,) = [m for m in dict(world.w("kept-worker-1").placement or {})["machines"] if m["machine"] == "m1"]
    assert [r["code"] for r in other["reasons"]] == ["node.kept_machine"]


def test_at_most_so_many_machines_are_used(world: SchedulingWorld) -> None:
    racks(world, *("r",) * 3, gpu=2)
    world.machine("large", gpu_count=4)
    world.submit("gang", gpu=1, count=6, gang=True, placement={"topology": {"max_machines": 2}})
    world.settle()
    used = {w.machine_name for w in world.of(type(world.w("gang"))) if w.machine}
    assert len(used) == 2


def test_one_worker_a_rack(world: SchedulingWorld) -> None:
    racks(world, "r1", "r1", "r2")
    world.submit("gang", gpu=1, count=2, gang=True, placement={"topology": {"spread": "rack"}})
    world.settle()
    assert "m2" in world.where("gang-worker-0", "gang-worker-1")
    world.submit("three", gpu=1, count=3, gang=True, placement={"topology": {"spread": "rack"}})
    world.settle()
    assert world.code("three") == "place.never_fits"


def test_a_run_waits_for_its_fabric_as_long_as_its_patience(world: SchedulingWorld) -> None:
    world.machine("plain")
    topology = {"fabric": "infiniband", "min_gbps": 200, "patience": 100.0}
    world.submit("job", gpu=1, placement={"topology": topology})
    queued = world.now
    cycle = world.settle()
    assert world.code("job") == "topology.patience"
    assert (world.params("job")["until"], cycle.wake_at) == (queued + 100.0, queued + 100.0)
    world.now += 100
    world.settle()
    assert world.where("job") == ["plain"]


def test_a_required_fabric_is_waited_for_for_ever(world: SchedulingWorld) -> None:
    world.machine("plain")
    world.machine("slow", capacity={"fabrics": [{"fabric": "infiniband", "gbps": 100}]})
    topology = {"fabric": "infiniband", "min_gbps": 200, "patience": 100.0, "required": True}
    world.submit("job", gpu=1, placement={"topology": topology})
    world.now += 1000
    world.settle()
    machines = dict(world.w("job").placement or {})["machines"]
    assert {m["machine"]: m["reasons"][-1]["code"] for m in machines} == {
        "plain": "node.no_rdma",
        "slow": "node.slow_fabric",
    }
    world.machine("fast", capacity={"fabrics": [{"fabric": "infiniband", "gbps": 400}]})
    world.settle()
    assert world.where("job") == ["fast"]


def test_a_gpu_with_a_foreign_process_is_not_given_out(world: SchedulingWorld) -> None:
    world.machine("a", capacity={"gpus": gpus(1, foreign_bytes=5 << 30)})
    world.submit("job", gpu=1)
    world.settle()
    (machine,) = dict(world.w("job").placement or {})["machines"]
    assert [r["code"] for r in machine["reasons"]] == ["node.gpus", "node.gpu_foreign"]


def test_a_faulty_gpu_names_its_fault(world: SchedulingWorld) -> None:
    world.machine("a", capacity={"gpus": gpus(1, health="faulty", fault="Xid 79")})
    world.submit("job", gpu=1)
    world.settle()
    (machine,) = dict(world.w("job").placement or {})["machines"]
    assert [r["code"] for r in machine["reasons"]] == ["node.gpus", "node.gpu_fault"]


def test_whole_machines_stay_free_for_large_work(world: SchedulingWorld) -> None:
    for name in "abc":
        world.machine(name)
    for n in range(7):
        world.submit(f"small{n}", gpu=1)
        world.settle()
    world.submit("big", gpu=8, count=2, gang=True)
    world.settle()
    assert None not in world.where("big-worker-0", "big-worker-1")


# Writing little


def test_ten_waiting_runs_write_nothing_while_nothing_changes(world: SchedulingWorld) -> None:
    full(world, (None,))
    for n in range(10):
        world.submit(f"wait{n}", gpu=1)
    world.settle()
    world.now += 3600
    assert world.cycle().changes == ()


def test_far_back_in_the_queue_a_new_head_is_no_news(world: SchedulingWorld) -> None:
    full(world, (None,))
    for n in range(100):
        world.now += 1
        world.submit(f"wait{n:03}", gpu=1)
    world.settle()
    world.ends("job0")
    before = world.now
    changes = len(world.cycle().changes)
    assert world.where("wait000") == ["a"]
    assert changes <= 70, f"{changes} rows were written at {before}"


def test_a_gang_stops_those_of_the_lowest_priority_and_no_more_than_it_needs(world: SchedulingWorld) -> None:
    for name, priority in (("a", 2), ("b", 0), ("c", 1)):
        world.machine(name)
        world.submit(f"on-{name}", gpu=8, priority=priority, placement={"machines": [name]})
    world.settle()
    world.start_all()
    world.submit("urgent", gpu=8, count=2, gang=True, priority=5)
    world.cycle()
    assert sorted(w.name for w in world.stopping()) == ["on-b-0", "on-c-0"]


# Long stretches of the queue


def test_two_kinds_of_work_in_one_long_stretch_never_share_a_gpu(world: SchedulingWorld) -> None:
    for name in ("a", "b", "c", "d", "e"):
        world.machine(name)
    world.submit("small", gpu=1, count=20)
    world.submit("large", gpu=1, count=20, request={"gpus": {"count": 1}, "cpu_milli": 2000})
    cycle = world.cycle()
    assert len(cycle.outcome.fills) == 2, "the stretch was tried as a whole"
    taken = list(gpu_holders(world))
    assert len(taken) == len(set(taken)) == 40
