"""A machine that is drained or removed: what becomes of what runs there."""

from typing import Any

import pytest

from moorage.decide.running import fleet
from moorage.domain.nouns import Machine, Replica, Worker
from moorage.domain.states import ReplicaStatus, WorkerState
from tests.run_world import RunWorld
from tests.serving_world import World, spec

W = WorkerState


def drain(world: World | RunWorld, name: str, for_s: float = 600.0) -> None:
    machine = row(world, name)
    world.commit(fleet.drain(machine, world.now + for_s, world.now, "person:p").change)


def row(world: World | RunWorld, name: str) -> Machine:
    return next(m for m in world.of(Machine) if m.name == name)


def remove(world: World | RunWorld, name: str) -> None:
    machine = row(world, name)
    held = list(world.held_on(machine))
    workers = [w for w in world.of(Worker) if w.machine == machine.uid]
    world.commit(fleet.remove(machine, workers, held, world.now, "person:p").change)


def served(machines: int) -> tuple[World, Replica, str]:
    """One model served, and the machine that it is on."""
    world = World(machines=machines)
    replica = world.up(spec(replicas={"min": 1, "max": 1}))
    machine = next(m for m in world.of(Machine) if m.uid == world.worker_of(replica).machine)
    return world, replica, machine.name


def finish(world: World, replica: Replica) -> None:
    """Its streams end and its machine confirms the stop."""
    world.settle()
    world.stops(world.worker_of(replica))
    world.settle()


def test_a_drain_of_one_machine_of_two_never_interrupts_a_served_model() -> None:
    world, old, name = served(2)
    drain(world, name)
    world.settle()
    new = world.replicas[-1]
    assert (new.uid != old.uid, new.ordinal) == (True, old.ordinal), "the replacement queues on the same ordinal"
    assert world.rows[old.uid].routed, "the old one serves while it does"  # type: ignore[attr-defined]  # a replica
    world.bring_up()
    routed = [r.uid for r in world.replicas if r.routed]
    assert routed == [new.uid]
    assert world.worker_of(old).state is W.STOPPING
    assert world.worker_of(new).machine != world.worker_of(old).machine
    finish(world, old)
    gone = world.rows[old.uid]
    assert isinstance(gone, Replica)
    assert gone.reason is not None
    assert (gone.status, gone.reason.code) == (ReplicaStatus.STOPPED, "replica.machine_drained")
    assert world.deployment.failures_in_row == 0


def test_where_no_other_machine_has_room_a_model_is_served_until_the_time_of_the_drain_is_over() -> None:
    world, old, name = served(1)
    drain(world, name, for_s=600.0)
    decision = world.settle()
    assert decision.wake_at is not None
    world.advance(599.0)
    world.settle()
    assert world.rows[old.uid].routed  # type: ignore[attr-defined]  # a replica
    world.advance(1.0)
    world.settle()
    assert world.worker_of(old).state is W.STOPPING
    finish(world, old)
    (waiting,) = world.replicas
    assert (waiting.ordinal, waiting.status) == (old.ordinal, ReplicaStatus.PENDING)
    world.place()
    assert world.worker_of(waiting).machine is None, "nothing is placed on a machine that is drained"


def test_a_replica_that_serves_nothing_is_not_waited_with() -> None:
    world = World(machines=2)
    world.apply(spec(replicas={"min": 1, "max": 1}))
    world.settle()
    world.place()
    world.starts(world.worker)
    world.settle()
    old = world.replicas[0]
    name = next(m.name for m in world.of(Machine) if m.uid == world.worker_of(old).machine)
    drain(world, name)
    world.settle()
    assert world.worker_of(old).state is W.STOPPING
    assert len([r for r in world.replicas if r.stopping is None]) == 1


def test_an_uncordon_in_the_midst_of_a_drain_keeps_what_serves_and_drops_its_replacement() -> None:
    world, old, name = served(2)
    drain(world, name)
    world.settle()
    world.commit(fleet.uncordon(row(world, name), "person:p").change)
    world.settle()
    assert [r.uid for r in world.replicas if r.stopping is None] == [old.uid]
    assert (row(world, name).draining, row(world, name).cordoned) == (None, None)


def test_every_replica_of_a_drained_machine_is_replaced_and_none_beyond_what_is_wanted() -> None:
    world = World(machines=2)
    world.up(spec(replicas={"min": 3, "max": 3}))
    world.bring_up()
    drain(world, "m0")
    world.settle()
    world.bring_up()
    for replica in [r for r in world.replicas if r.stopping is not None]:
        finish(world, replica)
    drained = row(world, "m0").uid
    assert len(world.replicas) == 3
    assert all(world.worker_of(r).machine != drained and r.routed for r in world.replicas)
    world.watch(row(world, "m0"))
    assert row(world, "m0").reason.code == "machine.drained"  # type: ignore[union-attr]  # it has one


def test_workers_of_runs_on_a_drained_machine_are_stopped_and_queued_again_without_a_restart() -> None:
    world = RunWorld(machines=2, slots=4, count=2)
    world.up()
    name = world.machine_of(world.w(0)).name
    here = [w.rank for w in world.workers if world.machine_of(w).name == name]
    drain(world, name)
    world.settle()
    assert {world.w(n).state for n in here} == {W.STOPPING}
    world.confirm_stops()
    assert {(world.w(n).state, world.w(n).restarts) for n in here} == {(W.PENDING, 0)}
    world.place()
    assert all(world.machine_of(world.w(n)).name != name for n in here)


def test_a_removed_machine_gives_up_all_that_runs_there_at_once() -> None:
    world, old, name = served(2)
    remove(world, name)
    worker = world.worker_of(old)
    assert worker.reason is not None
    assert (worker.state, worker.reason.code, world.holds) == (W.DOWN, "machine.removed", {})
    world.settle()
    world.bring_up()
    assert [r.routed for r in world.replicas if r.uid != old.uid] == [True]


def test_a_stopping_worker_of_a_removed_machine_is_cancelled() -> None:
    world, old, name = served(2)
    world.command("stop")
    world.settle()
    remove(world, name)
    assert world.worker_of(old).state is W.CANCELLED


def test_of_a_removed_machine_no_return_is_waited_for() -> None:
    world = RunWorld(machines=2, count=1)
    world.up()
    remove(world, world.machine_of(world.w(0)).name)
    world.settle()
    assert (world.w(0).state, world.w(0).epoch) == (W.PENDING, 2)


def test_drain_cordon_and_removal_say_again_what_is_so_already() -> None:
    machine = Machine(uid="m", name="lab")
    assert fleet.uncordon(machine, "p").change is None
    cordoned = Machine(uid="m", name="lab", cordoned="fan")
    assert fleet.cordon(cordoned, "fan", "p").change is None
    again = fleet.drain(Machine(uid="m", draining={"since": 5.0, "until": 9.0, "by": "p"}), 20.0, 10.0, "p")
    assert again.answer["draining"] == {"since": 5.0, "until": 20.0, "by": "p"}


@pytest.mark.parametrize(("removed", "fate"), [(False, "is replaced, then stopped"), (True, "is lost there")])
def test_a_dry_run_names_what_moves(removed: bool, fate: str) -> None:
    world, old, name = served(1)
    told = fleet.what_moves(row(world, name), world.of(Worker), {}, removed=removed)
    assert [(t["kind"], t["name"]) for t in told["touches"]] == [
        ("Machine", name),
        ("Worker", world.worker_of(old).name),
    ]
    assert told["refers"][0]["what_happens"].startswith(fate)
    assert fleet.what_moves(row(world, name), [], {}, removed=removed)["warnings"]


def told_of(world: RunWorld, *, removed: bool) -> str:
    worker = world.w(0)
    runs = {world.run.uid: world.run}
    return str(fleet.what_moves(world.machine_of(worker), [worker], runs, removed=removed)["refers"][0]["what_happens"])


def running(**parts: Any) -> RunWorld:
    world = RunWorld()
    world.submit(**parts)
    world.up()
    return world


@pytest.mark.parametrize(
    ("parts", "fate"),
    [
        ({}, "is lost there, and started elsewhere by its policy"),
        ({"groups": [{"restart_policy": "Never"}]}, "is lost, and its run fails"),
        ({"restart": {"budget": 0}}, "is lost, and its run fails"),
        (
            {"groups": [{"restart_policy": "Never"}], "array": {"count": 3}},
            "is lost, and its run fails once the other elements have ended",
        ),
    ],
)
def test_a_dry_run_of_a_removal_says_what_fails(parts: dict[str, Any], fate: str) -> None:
    assert told_of(running(**parts), removed=True) == fate


def test_what_a_dry_run_says_of_policy_never_is_what_happens() -> None:
    world = running(groups=[{"restart_policy": "Never"}])
    assert told_of(world, removed=True).endswith("its run fails")
    machine = world.machine_of(world.w(0))
    removal = fleet.remove(machine, [world.w(0)], world.held_on(machine), world.now, "p")
    world.commit(removal.change)
    world.settle()
    assert world.run.state == "Failed"


@pytest.mark.parametrize(("removed", "does"), [(True, "is lost there, and waits"), (False, "is stopped, and waits")])
def test_a_dry_run_says_of_work_that_may_run_nowhere_else_that_it_will_wait(removed: bool, does: str) -> None:
    world = running()
    name = world.machine_of(world.w(0)).name
    world.rows[world.run.uid].spec["placement"] = {"machines": [name]}
    assert told_of(world, removed=removed) == f"{does}: it may run on {name} only"
