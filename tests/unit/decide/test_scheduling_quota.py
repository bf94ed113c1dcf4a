"""Quotas and pools of namespaces in the queue: who waits for them, what they are told, and that they block nobody."""

import pytest

from moorage.decide.scheduling import whatif
from moorage.decide.scheduling.assign import Why, decide
from moorage.decide.scheduling.quota import Usage
from moorage.domain.catalogue import ANOTHER_NAMESPACE
from tests.scheduling_world import GIB, SchedulingWorld, gpus


@pytest.fixture
def world() -> SchedulingWorld:
    world = SchedulingWorld()
    world.machine("m1")
    world.machine("m2")
    return world


def in_a(world: SchedulingWorld, name: str, gpu: int = 1, count: int = 1, **spec: object) -> None:
    world.now += 1
    world.submit(name, gpu, count, namespace="a", **spec)


def test_what_would_exceed_the_quota_waits_with_the_sum_and_what_comes_after_it_starts(world: SchedulingWorld) -> None:
    world.limits = {"a": {"gpus": 3}}
    in_a(world, "first", gpu=2)
    in_a(world, "second", gpu=2)
    in_a(world, "third", gpu=1)
    world.submit("other", gpu=8, namespace="b")
    world.settle()
    assert None not in world.where("first", "third", "other")
    assert world.code("second") == "quota.waiting"
    assert world.params("second") == {"resource": "gpus", "used": 3, "asked": 2, "limit": 3, "gang": False}


def test_what_waits_alike_for_a_quota_is_told_what_is_in_use_at_its_own_turn(world: SchedulingWorld) -> None:
    world.limits = {"a": {"gpus": 3}}
    for n, gpu in enumerate((2, 2, 1, 2)):
        in_a(world, f"job{n}", gpu=gpu)
    cycle = world.cycle()
    told = {w.unit.run.name: w.full.first.used for w in cycle.outcome.waits if w.full is not None}
    assert told == {"job1": 2, "job3": 3}


def test_a_gang_waits_for_its_whole_sum_and_is_never_started_in_part(world: SchedulingWorld) -> None:
    world.limits = {"a": {"gpus": 8}}
    in_a(world, "small")
    in_a(world, "gang", gpu=2, count=4, gang=True)
    world.settle()
    assert {world.w(f"gang-worker-{n}").machine for n in range(4)} == {None}
    assert world.params("gang") == {"resource": "gpus", "used": 1, "asked": 8, "limit": 8, "gang": True}
    world.starts("small-worker-0")
    world.ends("small-worker-0")
    world.settle()
    assert None not in {world.w(f"gang-worker-{n}").machine for n in range(4)}
    assert world.used("a")["gpus"] == 8


def test_more_than_the_whole_quota_is_never_and_of_a_gang_the_total_counts(world: SchedulingWorld) -> None:
    world.limits = {"a": {"gpus": 4, "memory": 8 * GIB}}
    in_a(world, "wide", gpu=5)
    in_a(world, "gang", gpu=2, count=3, gang=True)
    in_a(world, "fat", gpu=0, request={"memory_bytes": 16 * GIB})
    world.settle()
    assert world.params("wide") == {"resource": "gpus", "asked": 5, "limit": 4, "total": False}
    assert world.params("gang") == {"resource": "gpus", "asked": 6, "limit": 4, "total": True}
    assert world.params("fat") == {"resource": "memory", "asked": "16GiB", "limit": "8GiB", "total": False}
    assert {world.code(n) for n in ("wide", "gang", "fat")} == {"quota.never"}
    assert "quota.reached" not in world.codes


def test_a_run_that_waits_for_its_quota_is_told_once_a_wait(world: SchedulingWorld) -> None:
    world.limits = {"a": {"gpus": 2}}
    in_a(world, "job", count=5)
    world.settle()
    assert world.codes.count("quota.reached") == 1
    world.starts("job-worker-0")
    world.write(world.w("job-worker-0"), ("Completed", "exited_zero", "exited"), release=True, handed_over=False)
    world.settle()
    assert world.used("a")["gpus"] == 2
    assert world.codes.count("quota.reached") == 1


def test_what_is_being_stopped_is_still_in_use(world: SchedulingWorld) -> None:
    world.limits = {"a": {"gpus": 1}}
    in_a(world, "old")
    world.settle()
    world.start_all()
    world.write(world.w("old"), ("Stopping", "stop_requested", "stop.default"), stop={"cause": "user"})
    in_a(world, "new")
    world.settle()
    assert world.code("new") == "quota.waiting"
    world.gone("old-worker-0")
    world.settle()
    assert world.where("new") != [None]


def test_the_room_kept_for_a_restart_is_in_use_and_the_restart_itself_gets_it(world: SchedulingWorld) -> None:
    world.limits = {"a": {"gpus": 2}}
    in_a(world, "crashing", gpu=2)
    world.settle()
    world.start_all()
    world.fails("crashing-worker-0")
    world.queued_again("crashing-worker-0", restart_at=world.now + 10)
    in_a(world, "eager")
    world.settle()
    assert world.code("eager") == "quota.waiting"
    world.now += 11
    world.settle()
    assert world.where("crashing") != [None]
    assert world.where("eager") == [None]


def test_a_model_that_is_used_up_is_left_alone_and_another_one_taken(world: SchedulingWorld) -> None:
    world.machine("a100", capacity={"gpus": gpus(8, model="A100")})
    world.limits = {"a": {"gpu_models.H100": 2}}
    in_a(world, "first", gpu=2, request={"gpus": {"count": 2, "models": ("H100",)}})
    in_a(world, "any", gpu=2)
    in_a(world, "picky", request={"gpus": {"count": 1, "models": ("H100",)}})
    world.settle()
    assert world.where("any") == ["a100"]
    assert world.params("picky")["resource"] == "gpu_models.H100"
    assert world.used("a") == {"gpus": 4, "cpu": 0, "memory": 0, "gpu_models.H100": 2, "gpu_models.A100": 2}


def test_where_every_model_is_used_up_it_waits_and_the_smallest_raise_lets_it_start(world: SchedulingWorld) -> None:
    world.machine("a100", capacity={"gpus": gpus(8, model="A100")})
    world.limits = {"a": {"gpu_models.H100": 1, "gpu_models.A100": 3}}
    in_a(world, "any", gpu=2, count=2)
    world.settle()
    assert sorted(world.where("any-worker-0", "any-worker-1"), key=str) == [None, "a100"]
    book = world.book()
    (wait,) = decide(book, world.now).waits
    assert wait.why is Why.QUOTA
    assert not wait.full.never  # type: ignore[union-attr]
    (remedy,) = whatif.raised_quota(book, wait, world.now)
    assert remedy.change == "raise the quota of gpu_models.H100 to 2" or remedy.change.endswith("A100 to 4")


def test_raising_the_quota_by_what_why_says_starts_it(world: SchedulingWorld) -> None:
    world.limits = {"a": {"gpus": 2, "cpu": 4000}}
    in_a(world, "one", gpu=2, request={"cpu_milli": 3000, "gpus": {"count": 2}})
    in_a(world, "two", gpu=2, request={"cpu_milli": 3000, "gpus": {"count": 2}})
    world.settle()
    book = world.book()
    (wait,) = decide(book, world.now).waits
    (remedy,) = whatif.raised_quota(book, wait, world.now)
    assert remedy.change == "raise the quota of gpus to 4 and of cpu to 6"
    assert remedy.effect.startswith("starts on m")
    world.limits["a"] = {"gpus": 4, "cpu": 6000}
    world.settle()
    assert None not in world.where("one", "two")


def test_a_quota_that_is_not_all_is_no_remedy(world: SchedulingWorld) -> None:
    world.limits = {"a": {"gpus": 4}}
    in_a(world, "one", gpu=4)
    in_a(world, "twenty", gpu=20)
    world.settle()
    book = world.book()
    (wait,) = decide(book, world.now).waits
    assert wait.full is not None
    assert list(whatif.raised_quota(book, wait, world.now)) == []


def test_nobody_is_stopped_for_work_that_its_quota_keeps_waiting(world: SchedulingWorld) -> None:
    world.limits = {"a": {"gpus": 4}}
    world.submit("low", gpu=8, count=2, namespace="b")
    world.settle()
    world.start_all()
    in_a(world, "high", gpu=8, priority=5)
    world.settle()
    assert world.stopping() == []
    assert world.code("high") == "quota.never"


def test_the_head_keeps_its_share_of_the_quota_from_later_work(world: SchedulingWorld) -> None:
    world.limits = {"a": {"gpus": 8}}
    world.submit("busy", gpu=6, count=2, namespace="b", time_limit=600.0)
    world.settle()
    world.start_all()
    in_a(world, "head", gpu=8)
    in_a(world, "later", gpu=2)
    world.settle()
    assert world.code("head") in ("queue.head", "queue.head_unknown")
    assert world.code("later") == "quota.waiting"
    for n in range(2):
        world.ends(f"busy-worker-{n}")
    world.settle()
    assert world.where("head") != [None]


def test_a_namespace_uses_only_the_machines_of_its_pool(world: SchedulingWorld) -> None:
    world.machine("p1", labels={"pool": "a"}, accepts=("pool=a",))
    world.pools = {"a": {"pool": "a"}}
    in_a(world, "job", count=10)
    world.settle()
    placed = [w.machine_name for w in map(world.w, (f"job-worker-{n}" for n in range(10))) if w.machine]
    assert placed == ["p1"] * 8
    waiting = world.w("job-worker-9")
    reasons = {m["machine"]: [r["code"] for r in m["reasons"]] for m in (waiting.placement or {})["machines"]}
    assert reasons == {"m1": ["node.outside_pool"], "m2": ["node.outside_pool"], "p1": ["node.gpus"]}


def test_a_pool_without_machines_says_so_and_what_is_larger_than_the_pool_never_fits(world: SchedulingWorld) -> None:
    world.pools = {"a": {"pool": "a"}}
    in_a(world, "job")
    world.settle()
    assert world.code("job") == "place.no_machines"
    world.machine("p1", gpu_count=2, labels={"pool": "a"})
    in_a(world, "wide", gpu=4)
    world.settle()
    assert world.where("job") == ["p1"]
    assert world.code("wide") == "place.never_fits"
    assert "p1 has 2" in world.w("wide").reason.message  # type: ignore[union-attr]


def test_reasons_never_name_work_of_another_namespace(world: SchedulingWorld) -> None:
    world.submit("secret-head", gpu=8, count=2, namespace="b", time_limit=600.0)
    world.settle()
    world.start_all()
    world.submit("secret-next", gpu=8, namespace="b", priority=1)
    in_a(world, "job", gpu=8)
    in_a(world, "high", gpu=8, priority=9)
    world.settle()
    for name in ("job", "high"):
        worker = world.w(name)
        assert "secret" not in f"{worker.reason} {(worker.placement or {})['machines']}"
    assert world.code("high") in ("preempt.stopping", "preempt.waiting")
    assert world.params("job").get("run", ANOTHER_NAMESPACE) in (ANOTHER_NAMESPACE, "high")


def test_usage_is_kept_up_machine_by_machine() -> None:
    usage = Usage()
    holding = {"namespace": "a", "gpus": (0, 1), "models": ("H100", "H100"), "cpu_milli": 5, "memory_bytes": 7}
    usage.put("m1", [holding, {**holding, "namespace": "b", "gpus": (), "models": ()}])
    usage.put("m2", [holding])
    assert usage.totals["a"] == {"gpus": 4, "cpu": 10, "memory": 14, "gpu_models.H100": 4}
    usage.put("m1", [])
    assert usage.totals["a"] == {"gpus": 2, "cpu": 5, "memory": 7, "gpu_models.H100": 2}
    assert usage.totals["b"] == {"gpus": 0, "cpu": 0, "memory": 0}
