"""A replica of several workers: placed whole, started together, asked at its leader, and gone as a whole."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.domain.changes import Step, Update
from moorage.domain.nouns import Replica, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import (
    ENDED_WORKER,
    DeploymentStatus,
    MachineState,
    ReplicaStatus,
    RunState,
    StopCause,
    WorkerState,
)
from tests.serving_world import World, spec

TOGETHER: dict[str, Any] = {"replicas": {"min": 1, "max": 3, "workers": 3}, "resources": {"cpu": 4.0}}
BARRIER_S = 900.0


def placed(machines: int = 3, **parts: Any) -> World:
    world = World(machines=machines, capacity={"cpu_milli": 4000})
    world.apply(spec(**{**TOGETHER, **parts}))
    world.settle()
    world.place()
    return world


def workers(world: World, replica: Replica | None = None) -> list[Worker]:
    of = replica or world.replicas[-1]
    return sorted((w for w in world.of(Worker) if w.run == of.run), key=lambda w: w.rank)


def waits(world: World, rank: int) -> None:
    """A member comes to the barrier."""
    worker = workers(world)[rank]
    world.report(worker, "Preparing:picked_up:prepare.network", "ReadyToStart:barrier:gang.barrier")
    world.settle()


def meets(world: World) -> None:
    for rank in range(3):
        waits(world, rank)


def runs(world: World, rank: int) -> None:
    worker = workers(world)[rank]
    steps = ("Starting:barrier_open:container.started", "Running:running:container.running")
    world.report(worker, *steps, address=f"127.0.0.1:1800{rank}", ready=None if rank == 0 else True)
    world.settle()


def serving(**parts: Any) -> World:
    world = placed(**parts)
    meets(world)
    for rank in range(3):
        runs(world, rank)
    world.ready(workers(world)[0])
    world.settle()
    assert world.replicas[-1].routed
    return world


def status(world: World) -> ReplicaStatus:
    return world.replicas[-1].status


def targets(world: World) -> list[str]:
    assert world.published is not None
    return [str(t.worker.address) for t in world.published.targets]


def test_all_of_its_workers_are_made_at_once_and_none_is_placed_unless_all_fit() -> None:
    world = placed(machines=2)
    assert [(w.rank, w.name) for w in workers(world)] == [(n, f"gemma-0-1-{n}") for n in range(3)]
    assert [w.machine for w in workers(world)] == [None] * 3
    world.settle()
    why = world.replicas[0].reason
    assert why is not None
    assert (why.code, "3 workers" in why.message) == ("replica.queued", True), "it asks for all of them at once"
    world.add_machine("m2", capacity={"cpu_milli": 4000})
    world.place()
    assert len({w.machine for w in workers(world)}) == 3
    run = world.of(Run)[0]
    assert (run.spec["gang"], run.spec["leader"]) == (True, "server-0")


def test_none_starts_before_all_are_at_the_barrier() -> None:
    world = placed()
    for rank in range(2):
        waits(world, rank)
    assert [w.go for w in workers(world)] == [False] * 3
    waits(world, 2)
    assert [w.go for w in workers(world)] == [True] * 3


def test_it_shows_its_least_advanced_member_and_is_ready_when_the_leader_is_and_every_member_runs() -> None:
    world = placed()
    assert status(world) is ReplicaStatus.PENDING
    meets(world)
    assert status(world) is ReplicaStatus.INITING
    runs(world, 0)
    world.ready(workers(world)[0])
    world.settle()
    assert status(world) is ReplicaStatus.INITING, "two of its members do not run"
    runs(world, 1)
    runs(world, 2)
    assert status(world) is ReplicaStatus.RUNNING
    assert targets(world) == [workers(world)[0].address]
    replica = world.replicas[0]
    assert (replica.address, replica.machine) == (workers(world)[0].address, workers(world)[0].machine)
    assert world.of(Run)[0].state is RunState.RUNNING


def test_members_that_run_do_not_make_it_ready_without_the_leader() -> None:
    world = placed()
    meets(world)
    for rank in (1, 2, 0):
        runs(world, rank)
    assert status(world) is ReplicaStatus.INITING
    assert targets(world) == []


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("code", [137, 0])
def test_one_member_that_ends_takes_the_replica_along_and_it_is_replaced_as_a_whole(rank: int, code: int) -> None:
    world = serving()
    old = world.replicas[0]
    world.exits(workers(world)[rank], code)
    world.settle()
    row = world.rows[old.uid]
    assert isinstance(row, Replica)
    assert (row.status, row.fail_reason, row.routed) == (ReplicaStatus.FAILED, "container_crashed", False)
    assert targets(world) == []
    others = [w for w in workers(world, old) if w.rank != rank]
    assert [w.state for w in others] == [WorkerState.STOPPING] * 2
    assert {dict(w.stop or {})["cause"] for w in others} == {StopCause.GANG_RESTART}
    assert {w.reason.code for w in others if w.reason} == {"gang.ended"}
    assert world.rows[old.run].state_word == RunState.FAILED
    (new,) = world.replicas
    assert (new.ordinal, new.attempt, len(workers(world, new))) == (0, 2, 3)
    world.place()
    assert not any(w.machine for w in workers(world, new)), "its room is not free before every member is gone"
    for worker in others:
        world.stops(worker)
    world.place()
    assert all(w.machine for w in workers(world, new))


def test_a_member_that_fails_while_it_loads_fails_the_replica_as_one_that_never_was_ready() -> None:
    world = placed()
    meets(world)
    runs(world, 1)
    world.exits(workers(world)[1], 3)
    world.settle()
    failed = next(r for r in world.of(Replica) if r.ordinal == 0)
    assert (failed.fail_reason, failed.fatal) == ("container_init_failed", True)
    assert all(w.state in (*ENDED_WORKER, WorkerState.STOPPING) for w in workers(world, failed))


@pytest.mark.parametrize("rank", [0, 2])
def test_a_member_that_is_lost_withdraws_it_at_once_and_a_return_in_time_keeps_it(rank: int) -> None:
    world = serving()
    member = workers(world)[rank]
    lose(world, member)
    assert not world.replicas[0].routed
    assert len(world.replicas) == 2, "its replacement is queued"
    assert [w.state for w in workers(world, world.replicas[0]) if w.rank != rank] == [WorkerState.RUNNING] * 2
    moves(world, member, Step(WorkerState.RUNNING, "returned", reason("heartbeat.back")), ready=True, ended_at=None)
    assert [r.attempt for r in world.replicas if r.routed] == [1]


def lose(world: World, member: Worker) -> None:
    moves(
        world, member, Step(WorkerState.DOWN, "machine_lost", reason("machine.lost", machine="m")), ended_at=world.now
    )


def moves(world: World, member: Worker, step: Step, **fields: Any) -> None:
    """A step of a member that something else decided."""
    row = world.rows[member.uid]
    world.commit_writes((Update("Worker", row.uid, row.version, (step,), fields),), "test")
    world.settle()


def test_a_member_that_stays_lost_ends_it_after_the_window_and_the_others_are_stopped() -> None:
    world = serving()
    old = world.replicas[0]
    lose(world, workers(world)[1])
    world.advance(60.0)
    world.settle()
    assert world.rows[old.uid].state_word == ReplicaStatus.FAILED
    assert [w.state for w in workers(world, old)] == [WorkerState.STOPPING, WorkerState.DOWN, WorkerState.STOPPING]


def test_a_gang_that_does_not_meet_in_time_is_stopped_and_replaced_as_a_whole() -> None:
    world = placed()
    waits(world, 0)
    waits(world, 1)
    assert world.settle().wake_at == world.now + BARRIER_S
    world.advance(BARRIER_S)
    world.settle()
    for worker in workers(world):
        if worker.state is WorkerState.STOPPING:
            world.stops(worker)
    world.settle()
    first = world.of(Replica)[0]
    assert (first.status, first.reason and first.reason.code) == (ReplicaStatus.STOPPED, "replica.barrier_timeout")
    assert [(r.ordinal, r.attempt) for r in world.replicas] == [(0, 2)]
    assert world.deployment.failures_in_row == 0


@pytest.mark.parametrize("command", ["stop", "delete", "scale", "pause"])
def test_every_command_that_ends_it_ends_all_of_its_members(command: str) -> None:
    world = serving(replicas={"min": 0 if command == "pause" else 1, "max": 3, "initial": 1, "workers": 3})
    if command == "scale":
        second = grown(world)
        world.command("scale", low=1, high=1)
        world.settle()
        members = workers(world, second)
    else:
        members = workers(world)
        world.command(command)
        world.settle()
    assert [world.rows[w.uid].state_word for w in members] == [WorkerState.STOPPING] * 3
    for worker in members:
        row = world.rows[worker.uid]
        assert isinstance(row, Worker)
        world.stops(row)
        world.settle()
    assert not [r for r in world.replicas if r.stopping is not None]
    if command == "delete":
        assert not world.of(Worker)


def grown(world: World) -> Replica:
    """A second replica of three serves as well."""
    for n in range(3, 6):
        world.add_machine(f"m{n}", capacity={"cpu_milli": 4000})
    world.advance(1.0)
    world.command("scale", low=2)
    world.settle()
    world.place()
    meets(world)
    for rank in range(3):
        runs(world, rank)
    world.ready(workers(world)[0])
    world.settle()
    newest = world.replicas[-1]
    assert newest.routed
    return newest


def test_a_stop_is_over_only_when_every_member_is_however_the_first_of_them_ended() -> None:
    world = serving()
    world.command("stop")
    world.settle()
    first, *rest = workers(world)
    world.exits(first, 1)
    world.settle()
    assert [r.status for r in world.of(Replica)] == [ReplicaStatus.RUNNING]
    for worker in rest:
        world.stops(worker)
    world.settle()
    assert [r.status for r in world.of(Replica)] == [ReplicaStatus.STOPPED]
    assert world.deployment.status is DeploymentStatus.STOPPED


def test_a_member_that_is_stopped_for_other_work_takes_the_others_along_and_the_whole_is_queued_anew() -> None:
    world = serving()
    old = world.replicas[0]
    stop_member(world, workers(world)[2], StopCause.PREEMPTION)
    assert [w.state for w in workers(world, old)] == [WorkerState.STOPPING] * 3
    assert not world.rows[old.uid].routed  # type: ignore[attr-defined]  # a replica
    for worker in workers(world, old):
        world.stops(worker)
    world.settle()
    row = world.rows[old.uid]
    assert row.reason is not None
    assert (row.state_word, row.reason.code) == (ReplicaStatus.STOPPED, "replica.preempted")
    assert [(r.ordinal, r.attempt) for r in world.replicas] == [(0, 2)]


def stop_member(world: World, member: Worker, cause: StopCause) -> None:
    step = Step(WorkerState.STOPPING, "stop_requested", reason("stop.preempted", run="other"))
    moves(world, member, step, stop={"cause": str(cause), "text": None, "since": world.now}, ready=False)


def test_the_drain_of_one_member_s_machine_moves_the_whole_replica() -> None:
    world = serving()
    for n in range(3, 6):
        world.add_machine(f"m{n}", capacity={"cpu_milli": 4000})
    machine = next(m for m in world.rows.values() if m.uid == workers(world)[1].machine)
    world.rows[machine.uid] = _draining(machine, world.now + 600.0)
    world.settle()
    assert len(world.replicas) == 2
    new = world.replicas[-1]
    assert (new.ordinal, new.attempt) == (0, 2)


def _draining(machine: Any, until: float) -> Any:
    assert machine.state is MachineState.READY
    return replace(machine, draining={"until": until}, cordoned="repair", version=machine.version + 1)
