"""`total_gpus`: an even division that some machines can hold, or the reason why there is none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.decide.running.splitting import Host, Split, hosts_of, split, warnings
from moorage.domain.nouns import Machine, Run
from moorage.domain.reasons import Reason
from moorage.domain.states import MachineState, RunState
from moorage.wire.spec import document, normalise
from tests.run_world import RunWorld


def hosts(*sizes: int, free: tuple[int, ...] | None = None) -> list[Host]:
    return [Host(total, left) for total, left in zip(sizes, free or sizes, strict=True)]


@pytest.mark.parametrize(
    ("total", "machines", "fleet", "expected"),
    [
        (12, None, hosts(8, 8), Split(2, 6)),
        (12, 2, hosts(8, 8), Split(2, 6)),
        (16, None, hosts(8, 8), Split(2, 8)),
        (8, None, hosts(8, 8), Split(1, 8)),
        (6, 3, hosts(8, 8, 8), Split(3, 2)),
        (12, None, hosts(8, 4), Split(3, 4)),
        (12, None, hosts(8, 8, free=(4, 8)), Split(3, 4)),
        (16, 2, hosts(8, 8, free=(0, 0)), Split(2, 8)),
    ],
)
def test_gpus_are_divided_evenly_over_the_fewest_workers_that_fit(
    total: int, machines: int | None, fleet: list[Host], expected: Split
) -> None:
    assert split({"total_gpus": total, "machines": machines}, fleet) == expected


@pytest.mark.parametrize(
    ("total", "machines", "fleet", "why"),
    [
        (12, 5, hosts(8, 8), "uneven"),
        (13, None, hosts(8, 5, free=(8, 4)), "none_free"),
        (7, None, [Host(2, 2)] * 3, "none_free"),
        (6, 1, hosts(4, 4), "per_worker_size"),
        (24, 2, hosts(8, 8), "per_worker_size"),
        (8, None, [], "no_host"),
        (8, None, hosts(8, free=(4,)), "none_free"),
        (16, 2, hosts(8), "none_free"),
    ],
)
def test_what_cannot_be_divided_says_which_of_four_things_is_in_the_way(
    total: int, machines: int | None, fleet: list[Host], why: str
) -> None:
    found = split({"name": "g", "total_gpus": total, "machines": machines}, fleet)
    assert isinstance(found, Reason)
    assert (found.code, found.params["why"], found.params["gpus"]) == ("run.cannot_plan", why, total)
    assert found.params["detail"]


@given(st.integers(1, 64), st.lists(st.tuples(st.integers(1, 16), st.integers(0, 16)), max_size=8))
def test_a_division_is_even_whole_and_fits_what_is_free(total: int, fleet: list[tuple[int, int]]) -> None:
    machines = [Host(size, min(size, free)) for size, free in fleet]
    found = split({"total_gpus": total, "machines": None}, machines)
    if isinstance(found, Split):
        assert found.workers * found.gpus == total
        assert sum(h.free // found.gpus for h in machines) >= found.workers
    else:
        assert sum(h.free for h in machines) < total, "one GPU for each worker would fit"


def gpus(count: int, model: str = "H100") -> dict[str, Any]:
    found = [
        {"index": n, "vendor": "nvidia", "model": model, "memory_bytes": 80 << 30, "health": "ok"} for n in range(count)
    ]
    return {"cpu_milli": 8000, "memory_bytes": 64 << 30, "gpus": tuple(found)}


def machine(name: str, count: int = 8, **fields: Any) -> Machine:
    model = fields.pop("model", "H100")
    state = fields.pop("state", MachineState.READY)
    return Machine(uid=f"mch-{name}", name=name, state=state, capacity=gpus(count, model), **fields)


def run(**parts: Any) -> Run:
    group = {"runtime": {"command": ["x"]}, **parts.pop("group", {})}
    spec = normalise(document({"kind": "Run", "name": "t", "groups": [group], **parts}))
    return Run(uid="run-1", name="t", spec=spec)


def test_a_host_is_a_machine_that_takes_the_work_and_has_the_kind_of_gpu() -> None:
    wanted = run(
        group={"total_gpus": 8, "resources": {"gpus": {"models": ["H100"]}}}, placement={"labels": {"pool": "gpu"}}
    )
    fleet = [
        machine("a", labels={"pool": "gpu"}),
        machine("b", labels={"pool": "cpu"}),
        machine("c", labels={"pool": "gpu"}, model="A100"),
        machine("d", labels={"pool": "gpu"}, cordoned="mending"),
        machine("e", labels={"pool": "gpu"}, state=MachineState.DOWN),
    ]
    group = wanted.spec["groups"][0]
    assert hosts_of(wanted, group, fleet, {"mch-a": frozenset({0, 1, 2})}) == [Host(8, 5)]


def test_what_no_machine_could_ever_hold_is_said_at_submission() -> None:
    fleet = [machine("a", cordoned="mending"), machine("b", state=MachineState.DOWN)]
    assert warnings(run(group={"resources": {"gpus": 8}}), fleet) == ()
    (said,) = warnings(run(group={"resources": {"gpus": 16}}), fleet)
    assert "no machine of this fleet could ever hold" in said
    (uneven,) = warnings(run(group={"total_gpus": 12, "machines": 5}), fleet)
    assert "evenly" in uneven
    (none,) = warnings(run(), [])
    assert "no machine has joined" in none


def test_a_run_is_planned_when_the_fleet_can_hold_it_and_says_until_then_what_is_missing() -> None:
    world = RunWorld(machines=0)
    world.submit(groups=[{"name": "worker", "total_gpus": 12, "restart_policy": "Never"}])
    assert (world.workers, world.code(world.run)) == ([], "run.cannot_plan")
    assert world.decide().wake_at == world.now + 60.0
    assert world.run.state is RunState.PENDING
    for name in ("x", "y"):
        world.add_machine(name, capacity=gpus(8))
    world.settle()
    assert [w.request["gpus"]["count"] for w in world.workers] == [6, 6]
    assert world.run.planned_at == world.now


def test_the_elements_of_an_array_are_workers_of_its_one_group() -> None:
    world = RunWorld(array={"count": 5, "max_parallel": None, "fail": "end"})
    assert [w.rank for w in world.workers] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "parts",
    [
        {"array": {"count": 3}, "gang": True},
        {"array": {"count": 3}, "group": {"count": 2}},
        {"gang": {"min_available": 3}, "group": {"count": 2}},
        {"gang": True, "leader": "other-0"},
        {"gang": True, "leader": "worker-1"},
        {"after": [{"run": "t"}]},
        {"group": {"total_gpus": 4, "resources": {"gpus": 2}}},
    ],
)
def test_a_spec_that_contradicts_itself_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="not valid"):
        run(**parts)
