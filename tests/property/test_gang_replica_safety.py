"""Safety of a replica of three workers, in any order in which they come, go, are lost and come back."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.decide.serving.gang import leader_of
from moorage.domain.changes import Step, Update
from moorage.domain.lifecycles import WORKER
from moorage.domain.nouns import Replica, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import (
    ENDED_WORKER,
    TERMINAL_REPLICA,
    TERMINAL_RUN,
    DeploymentStatus,
    ReplicaStatus,
    WorkerState,
)
from tests.examples import examples
from tests.serving_world import World, spec

SIZE = 3
EVENTS = ("arrives", "starts", "ready", "exits", "ends", "lost", "back", "stops", "late", "time", "place")

EVERY = SIZE
"""As a rank: of each member, in order."""

events = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, EVERY)), max_size=30)
AWAY = ("arrives", "starts", "ready")
"""What each member does on its way to serving."""


def gang_world() -> World:
    world = World(machines=4, capacity={"cpu_milli": 4000})
    world.apply(spec(replicas={"min": 1, "max": 2, "workers": SIZE}, resources={"cpu": 4.0}))
    world.settle()
    world.place()
    return world


def members(world: World, replica: Replica) -> list[Worker]:
    return sorted((w for w in world.of(Worker) if w.run == replica.run), key=lambda w: w.rank)


def step(world: World, worker: Worker, to: WorkerState, trigger: str, code: str, **fields: Any) -> None:
    """What a machine or the fleet would write, if the table allows it."""
    row = world.rows[worker.uid]
    if not isinstance(row, Worker) or not WORKER.allows(row.state, to, trigger):
        return
    params = {"worker.gone": {}, "machine.lost": {"machine": "m"}, "exited": {"code": 1}}.get(code, {})
    why = reason(code, **params)
    world.commit_writes((Update("Worker", row.uid, row.version, (Step(to, trigger, why),), fields),), "test")


def happens(world: World, event: str, rank: int) -> None:
    if event == "time":
        world.advance(70.0)
    elif event == "place":
        world.place()
    for replica in list(world.of(Replica)) if event == "stops" else world.replicas[-1:]:
        for worker in members(world, replica) if rank == EVERY else [members(world, replica)[rank]]:
            _of_member(world, worker, event)
    world.settle()


def _of_member(world: World, worker: Worker, event: str) -> None:
    if event == "stops" and worker.state is WorkerState.STOPPING:
        world.stops(worker)
    elif worker.machine is None:
        return
    elif event == "arrives" and worker.state is WorkerState.PENDING:
        world.report(worker, "Preparing:picked_up:prepare.network", "ReadyToStart:barrier:gang.barrier")
    elif event == "starts" and worker.go and worker.state is WorkerState.READY_TO_START:
        steps = ("Starting:barrier_open:container.started", "Running:running:container.running")
        world.report(worker, *steps, address=f"127.0.0.1:1800{worker.rank}")
    elif event == "ready" and worker.state is WorkerState.RUNNING:
        world.report(worker, ready=True)
    elif event in ("exits", "ends") and worker.state is WorkerState.RUNNING:
        world.exits(worker, 1 if event == "exits" else 0)
    elif event == "lost":
        step(world, worker, WorkerState.DOWN, "machine_lost", "machine.lost", ended_at=world.now, ready=False)
    elif event == "back" and worker.ran:
        step(world, worker, WorkerState.RUNNING, "returned", "heartbeat.back", ended_at=None, ready=True)
    elif event == "late":
        step(world, worker, WorkerState.STALE, "heartbeat_late", "heartbeat.late")


def check(world: World) -> None:
    routed = [r for r in world.of(Replica) if r.routed]
    for replica in routed:
        gang = members(world, replica)
        assert all(w.state is WorkerState.RUNNING for w in gang), "requests go only where every member runs"
        assert leader_of(gang).ready
        assert replica.address == leader_of(gang).address
    assert world.published is not None
    assert {t.replica.uid for t in world.published.targets} <= {r.uid for r in routed}
    for replica in world.of(Replica):
        gang = members(world, replica)
        assert len(gang) == SIZE
        if replica.status in TERMINAL_REPLICA:
            over = (*ENDED_WORKER, WorkerState.STOPPING)
            assert all(w.state in over for w in gang), "of what ended nothing is left to run on"
            assert world.rows[replica.run].state_word in TERMINAL_RUN
        if any(w.go for w in gang):
            assert all(w.barrier_at is not None or w.state is not WorkerState.PENDING for w in gang)
    live = [r for r in world.replicas if r.stopping is None]
    assert len(live) <= 2, "one, and the replacement of one that may still come back"
    assert len({(r.ordinal, r.attempt) for r in world.of(Replica)}) == len(world.of(Replica))


def _calm(world: World) -> Iterator[None]:
    """Everything answers from now on."""
    for _ in range(12):
        world.advance(310.0)
        world.settle()
        world.place()
        for worker in list(world.of(Worker)):
            row = world.rows[worker.uid]
            assert isinstance(row, Worker)
            if row.state is WorkerState.STOPPING:
                world.stops(row)
            elif row.state is WorkerState.STALE:
                step(world, row, WorkerState.RUNNING, "heartbeat_back", "heartbeat.back")
            elif row.state is WorkerState.DOWN and row.handed_over:
                world.report(row, gone=True)
        for event in AWAY:
            happens(world, event, EVERY)
        yield


@settings(max_examples=examples(80), deadline=None)
@given(st.sampled_from((0, 1, 2, 3, 3, 3)), events)
def test_whatever_its_members_do_it_is_whole_or_it_is_replaced(far: int, history: list[tuple[str, int]]) -> None:
    world = gang_world()
    for event in AWAY[:far]:
        happens(world, event, EVERY)
        check(world)
    for event, rank in history:
        if world.deployment.status is not DeploymentStatus.CREATED:
            break
        happens(world, event, rank)
        check(world)
    if world.deployment.status is DeploymentStatus.FAILED:
        assert not world.deployment.initial_scale_reached, "it never served, and its program ends"
        return
    for _ in _calm(world):
        check(world)
        if [r.status for r in world.replicas if r.routed] == [ReplicaStatus.RUNNING]:
            return
    raise AssertionError(f"it does not come to serve again: {[(r.name, r.status, r.reason) for r in world.replicas]}")
