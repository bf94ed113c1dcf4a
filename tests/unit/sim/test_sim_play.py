"""A simulation does what a cluster would: who waits, who is stopped, who never starts; and what is measured of it."""

from collections.abc import Sequence
from typing import Any

import pytest

from moorage.decide.scheduling.policies import Policy
from moorage.domain.nouns import Machine
from moorage.domain.states import MachineState
from moorage.sim.cluster import EPOCH, BrokenPromise, Cluster
from moorage.sim.measures import Series, Work, percentile, size_class, waits_by_class
from moorage.sim.play import Played, Setting, play
from moorage.sim.traces import Task

GIB = 1 << 30


def machine(name: str, gpus: int = 8, cpu: int = 64, model: str = "H100") -> Machine:
    found = tuple(
        {"index": n, "vendor": "nvidia", "model": model, "memory_bytes": 0, "health": "ok"} for n in range(gpus)
    )
    capacity = {"cpu_milli": cpu * 1000, "memory_bytes": 512 * GIB, "gpus": found}
    return Machine(uid=name, name=name, state=MachineState.READY, capacity=capacity)


def task(name: str, submit_s: float, duration_s: float, gpus: int, **fields: Any) -> Task:
    return Task(name, submit_s, duration_s, gpus, **{"cpu_milli": 1000, "memory_bytes": GIB, **fields})


def played(machines: Sequence[Machine], *tasks: Task, **setting: Any) -> Played:
    return play(machines, sorted(tasks, key=lambda t: t.submit_s), Policy.FGD, Setting(**setting))


def test_a_task_waits_until_the_one_before_it_has_ended() -> None:
    result = played([machine("m")], task("a", 0, 100, 8), task("b", 10, 50, 8))
    (waits,) = result.waits
    assert (waits.size, waits.started, waits.waiting) == ("8 GPUs", 2, 0)
    assert (waits.p50_s, waits.p99_s) == (0.0, 90.0)
    assert result.until_s == 150.0
    assert result.completed == 2
    assert result.allocated_most == 8
    assert result.allocated_mean == 8.0


def test_while_as_many_gpus_are_asked_for_as_there_are_the_cluster_counts_as_full() -> None:
    result = played([machine("m")], task("a", 0, 100, 6), task("b", 20, 100, 4))
    assert result.allocated_full == 6.0  # from 20 to 100: 10 asked for, 6 held
    assert played([machine("m")], task("a", 0, 100, 4)).allocated_full is None


def test_a_shorter_task_is_let_past_the_head_and_counted() -> None:
    result = played(
        [machine("m")],
        task("long", 0, 100_000, 4, time_limit_s=100_000.0),
        task("head", 1, 100, 8),
        task("short", 2, 100, 4, time_limit_s=200.0),
    )
    assert result.backfills == 1
    assert {w.size: w.p50_s for w in result.waits}["4-7 GPUs"] == 0.0


def test_higher_priority_stops_lower_which_starts_over() -> None:
    result = played([machine("m")], task("low", 0, 1000, 8), task("high", 100, 500, 8, priority=5))
    assert result.preemptions == 1
    assert result.lost_s == 100.0
    assert result.completed == 2
    # 20 s of grace, 500 s of the other, then its 1,000 s from the beginning
    assert result.until_s == 100 + 20 + 500 + 1000
    assert result.placed == 3


def test_a_preempted_gang_leaves_and_comes_back_whole() -> None:
    result = played(
        [machine("m"), machine("n")],
        task("gang", 0, 1000, 8, workers=2, gang=True),
        task("high", 100, 500, 8, priority=5),
    )
    assert result.preemptions == 2
    assert result.completed == 2
    assert result.placed == 5
    assert result.until_s == 1620.0


def test_what_fits_on_no_machine_never_starts_and_says_why() -> None:
    result = played([machine("m")], task("big", 0, 10, 16), task("small", 5, 10, 1))
    (never,) = result.never
    assert (never.code, never.tasks, never.sizes) == ("place.never_fits", 1, {"9-63 GPUs": 1})
    assert "asks for 16" in never.message
    assert result.completed == 1


def test_where_nothing_ends_what_finds_no_room_is_refused_once() -> None:
    result = played([machine("m")], *(task(f"t{n}", n, 10, 3) for n in range(4)), services=True)
    assert result.allocated_full == 6.0
    assert (result.completed, result.placed) == (0, 2)
    (never,) = result.never
    assert (never.code, never.tasks) == ("place.no_machine_fits", 2)
    assert result.series.waiting[-1] == 2


def test_a_simulation_that_is_stopped_reports_what_there_is() -> None:
    seen: list[float] = []
    tasks = [task(f"t{n}", n * 10, 5, 1) for n in range(50)]
    result = played([machine("m")], *tasks, progress=lambda _done, at: seen.append(at), stopped=lambda: len(seen) >= 10)
    assert result.interrupted
    assert 0 < result.tasks < 50
    assert result.waits[0].started == result.tasks


def test_a_decision_that_no_store_would_commit_is_a_defect() -> None:
    cluster = Cluster.of([machine("m")])
    cluster.submit(task("a", 0, 10, 1), 0, EPOCH)
    outcome = cluster.cycle(EPOCH, Policy.FGD, 0)
    cluster.commit(outcome, EPOCH)
    with pytest.raises(BrokenPromise):
        cluster.commit(outcome, EPOCH)


@pytest.mark.parametrize("policy", list(Policy))
def test_every_policy_places_what_there_is_room_for(policy: Policy) -> None:
    machines = [machine(f"m{n}", cpu=8 + n) for n in range(4)]
    tasks = [task(f"t{n}", n, 1000, 8) for n in range(4)]
    result = play(machines, tasks, policy, Setting(seed=5))
    assert result.until_s == 1003.0


def first_machine(policy: Policy, machines: Sequence[Machine], held: int = 0) -> str:
    """Where a 2-GPU task goes, `held` GPUs of the second machine being taken."""
    cluster = Cluster.of(machines)
    if held:
        cluster.submit(task("held", 0, 10, held, labels={}, models=("A100",)), 0, EPOCH)
        cluster.commit(cluster.cycle(EPOCH, policy, 0), EPOCH)
    cluster.submit(task("a", 0, 10, 2), 1, EPOCH)
    (worker,) = cluster.commit(cluster.cycle(EPOCH, policy, 7), EPOCH).placed
    return worker.machine_name or ""


def test_policies_differ_as_their_names_say() -> None:
    fleet = [machine("a", 8), machine("b", 8, model="A100"), machine("c", 4)]
    assert first_machine(Policy.FIRST_FIT, fleet) == "a"
    assert first_machine(Policy.BEST_FIT, fleet) == "c"
    assert first_machine(Policy.BEST_FIT, fleet, held=6) == "b"
    assert first_machine(Policy.FGD, fleet, held=6) == "b"


def test_a_random_policy_follows_its_draw() -> None:
    def chosen(draw: int) -> str:
        cluster = Cluster.of([machine(f"m{n}") for n in range(8)])
        cluster.submit(task("a", 0, 10, 1), 0, EPOCH)
        (worker,) = cluster.commit(cluster.cycle(EPOCH, Policy.RANDOM, draw), EPOCH).placed
        return worker.machine_name or ""

    assert [chosen(draw) for draw in range(20)] == [chosen(draw) for draw in range(20)]
    assert len({chosen(draw * 1_000_003) for draw in range(40)}) > 4


# Measures


def test_fragmentation_is_the_free_gpus_that_the_work_is_expected_not_to_be_able_to_use() -> None:
    work = Work([task("one", 0, 1, 1), task("four", 0, 1, 4)])
    whole = Cluster.of([machine("m", 8), machine("n", 2)])
    # 1 GPU can use all ten; 4 GPUs cannot use the two of the small machine: half of 2
    assert work.fragmentation(whole.book.fleet) == 1.0
    assert work.fragmentation(Cluster.of([machine("m", 8, cpu=0)]).book.fleet) == 8.0
    assert Work([task("none", 0, 1, 0)]).fragmentation(whole.book.fleet) == 0.0


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile([], 0.5) is None
    assert percentile([7.0], 0.99) == 7.0
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, part) for part in (0.5, 0.9, 0.99, 1.0)] == [50.0, 90.0, 99.0, 100.0]


def test_every_number_of_gpus_has_a_size_class() -> None:
    assert [size_class(n) for n in (0, 1, 2, 7, 8, 9, 64, 4096)] == [
        *("no GPU", "1 GPU", "2-3 GPUs", "4-7 GPUs", "8 GPUs", "9-63 GPUs"),
        *("64 GPUs and more", "64 GPUs and more"),
    ]


def test_waits_are_told_by_class_in_order_of_size() -> None:
    found = waits_by_class([(8, 30.0), (1, 5.0), (1, 10.0)], [2, 2])
    assert [(w.size, w.started, w.waiting) for w in found] == [
        *(("1 GPU", 2, 0), ("2-3 GPUs", 0, 2), ("8 GPUs", 1, 0)),
    ]
    assert found[1].p50_s is None


def test_a_series_is_drawn_from_means_over_equal_stretches() -> None:
    series = Series()
    for at, held in ((0.0, 4), (10.0, 8), (30.0, 0), (40.0, 0)):
        series.add(at, held, held, 0)
    assert series.mean(series.allocated) == 5.0
    assert series.points(series.allocated, 2) == [(20.0, 6.0), (40.0, 4.0)]
    assert series.points(series.allocated, 4) == [(10.0, 4.0), (20.0, 8.0), (30.0, 8.0), (40.0, 0.0)]
