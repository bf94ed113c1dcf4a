"""A large run's workers are made in bounded steps, and until the last nothing counts it as whole."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.domain import limits
from moorage.domain.changes import Create
from moorage.domain.nouns import Replica, Worker
from moorage.domain.states import RunState, WorkerState
from tests.run_world import RunWorld
from tests.serving_world import World, spec

LARGE = 2 * limits.AT_ONCE + 1


def begun(**spec: Any) -> RunWorld:
    """A run whose first workers are made, and not the last."""
    world = RunWorld(machines=0)
    world.settle = lambda limit=5: world.decide()  # type: ignore[method-assign,misc]
    world.submit(**spec)
    step(world)
    return world


def step(world: RunWorld) -> int:
    """One decision, and how many workers it made."""
    change = world.decide().change
    assert change is not None
    world.commit(change)
    return sum(isinstance(w, Create) for w in change.writes)


def test_one_decision_makes_a_bounded_number_of_workers_and_the_last_one_completes_them() -> None:
    world = begun(count=LARGE)
    assert (len(world.workers), world.run.planned_at) == (limits.AT_ONCE, None)
    assert [step(world), step(world)] == [limits.AT_ONCE, 1]
    assert [w.rank for w in world.workers] == list(range(LARGE))
    assert len({w.name for w in world.workers}) == LARGE
    assert world.run.planned_at == world.now
    assert not any(isinstance(w, Create) for w in getattr(world.decide().change, "writes", ()))


def test_a_gang_that_is_not_made_whole_is_not_placed() -> None:
    world = begun(count=LARGE, gang=True)
    assert {w.waits["code"] for w in world.workers if w.waits} == {"run.planning"}
    assert all(w.waits for w in world.workers)
    step(world)
    step(world)
    assert not any(w.waits for w in world.workers)


def test_a_run_whose_first_workers_completed_is_not_complete_before_the_last_are_made() -> None:
    world = begun(count=LARGE)
    for worker in world.workers:
        world.rows[worker.uid] = _ended(worker, WorkerState.COMPLETED)
    step(world)
    assert world.run.state is RunState.PENDING
    step(world)
    world.decide()
    assert world.run.state is not RunState.COMPLETED


def test_a_run_that_is_cancelled_while_its_workers_are_made_ends_and_makes_no_more() -> None:
    world = begun(count=LARGE)
    world.cancel()
    step(world)
    assert world.run.state is RunState.CANCELLED
    assert len(world.workers) == limits.AT_ONCE


@pytest.mark.parametrize("count", [limits.WORKERS_MAX + 1, 100_000_000, 10**23])
def test_a_stored_run_of_too_many_workers_says_so_makes_none_and_can_be_cancelled(count: int) -> None:
    world = begun(count=count)
    assert (world.workers, world.code(world.run)) == ([], "run.cannot_plan")
    assert f"at most {limits.WORKERS_MAX}" in (world.run.reason.message if world.run.reason else "")
    world.cancel()
    step(world)
    assert world.run.state is RunState.CANCELLED


def test_gpus_are_not_divided_over_more_workers_than_a_run_may_have() -> None:
    world = begun(groups=[{"name": "worker", "total_gpus": limits.GPUS_TOTAL_MAX, "restart_policy": "Never"}])
    assert (world.workers, world.code(world.run)) == ([], "run.cannot_plan")


def _ended(worker: Worker, state: WorkerState) -> Worker:
    return replace(worker, state=state, exit_code=0, placed_at=1.0)


def test_one_decision_makes_a_bounded_number_of_replicas_and_the_next_ones_go_on() -> None:
    world = World(machines=0)
    world.apply(spec(replicas={"min": LARGE, "max": LARGE, "initial": 1}))
    made = []
    while (change := world.step().change) is not None and len(made) < 10:
        made.append(sum(isinstance(w, Create) and w.row.kind == Replica.kind for w in change.writes))
    assert [n for n in made if n] == [limits.AT_ONCE, limits.AT_ONCE, 1]


def test_a_stored_deployment_of_too_many_replicas_makes_no_more_than_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REPLICAS_MAX", LARGE)
    world = World(machines=0)
    world.apply(spec(replicas={"min": 10**9, "max": 10**9, "initial": 1}))
    for _ in range(5):
        world.step()
    assert len(world.of(Replica)) == limits.REPLICAS_MAX
