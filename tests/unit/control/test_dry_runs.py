"""What a delete says that it would do is what it then does."""

from dataclasses import replace
from typing import Any

from moorage.control.dry_runs import Belongings, delete_deployment
from moorage.decide.serving.snapshot import Demand
from moorage.domain.nouns import Deployment, Machine, Operation, Replica, Run, Worker
from moorage.domain.states import MachineState, OperationState
from tests.serving_world import World, spec


def told(world: World, **demand: Any) -> dict[str, Any]:
    own = Belongings(
        world.of(Replica), world.of(Run), world.of(Worker), world.of(Machine), Demand(**demand) if demand else None
    )
    return delete_deployment(world.known_rows(), own)


def served() -> World:
    world = World()
    world.up(spec(gateway={"drain": 7.0}))
    return world


def kinds(plan: dict[str, Any], part: str) -> list[str]:
    return [thing["kind"] for thing in plan[part]]


def happens(plan: dict[str, Any], kind: str) -> str:
    return "; ".join(r["what_happens"] for r in plan["refers"] if r["kind"] == kind)


def test_every_row_that_the_delete_removes_is_named_before() -> None:
    world = served()
    named = {thing["id"] for thing in told(world)["touches"]}
    world.command("delete")
    world.settle()
    world.stops(world.worker)
    world.settle()
    assert not world.of(Deployment)
    assert set(world.removed) <= named


def test_machines_and_provider_identities_are_named() -> None:
    world = served()
    plan = told(world)
    assert {"Machine", "Identity", "Worker", "Run"} <= set(kinds(plan, "touches"))
    (replica,) = world.replicas
    (identity,) = [t["id"] for t in plan["touches"] if t["kind"] == "Identity"]
    assert identity == f"{replica.deployment}/{replica.revision}/0/1"


def test_what_ended_and_is_gone_is_not_said_to_be_stopped() -> None:
    world = served()
    world.exits(world.worker)
    plan = told(world)
    assert "Machine" not in kinds(plan, "touches")
    assert "on 0 machines" in " ".join(a["summary"] for a in plan["actions"])


def test_streams_in_flight_are_told_and_never_guessed() -> None:
    world = served()
    assert "not known yet" in happens(told(world), "Stream")
    assert "not known yet" in happens(told(world, known=False, in_flight=0), "Stream")
    assert "3 requests in flight" in happens(told(world, in_flight=3, held=2), "Stream")
    assert "no request is in flight" in happens(told(world, in_flight=0), "Stream")
    assert "at most 7 s" in " ".join(a["summary"] for a in told(world)["actions"])


def test_evidence_and_operations_under_way_are_named() -> None:
    world = served()
    revision = world.known_rows().revisions[0]
    world.rows[revision.uid] = replace(revision, decisions=({"id": "d1"}, {"id": "d2"}))
    going = Operation(uid="op-9", operation="apply", target=world.deployment.uid, state=OperationState.RUNNING)
    world.rows["op-9"] = going
    plan = told(world)
    assert "2 release decisions" in happens(plan, "Evidence")
    assert "asked to cancel" in happens(plan, "Operation")
    assert "op-9" in [t["id"] for t in plan["touches"]]


def test_a_lost_machine_and_an_operation_that_needs_a_person_are_warned_of() -> None:
    world = served()
    machine = world.of(Machine)[0]
    world.rows[machine.uid] = replace(machine, state=MachineState.DOWN)
    state = OperationState.NEEDS_ATTENTION
    world.rows["op-9"] = Operation(uid="op-9", operation="apply", target=world.deployment.uid, state=state)
    warned = " ".join(told(world)["warnings"])
    assert "machine m0 is lost" in warned
    assert "op-9" in warned


def test_an_adopted_server_that_is_not_ours_to_stop_is_said_to_be_left_running() -> None:
    world = served()
    world.rows[world.deployment.uid] = replace(world.deployment, ownership="observe")
    assert kinds(told(world), "actions") == ["withdraw", "drain", "keep", "tombstone"]


def test_what_does_not_exist_here_is_said_not_to_exist() -> None:
    plan = told(served())
    assert "none exist in Moorage" in happens(plan, "Fallback")
    assert "none exist in Moorage" in happens(plan, "AsyncJob")


def test_the_keys_that_name_it_are_told() -> None:
    plan = delete_deployment(served().known_rows(), Belongings(keys=("app", "ci")))
    assert [r["name"] for r in plan["refers"] if r["kind"] == "Key"] == ["app", "ci"]
    assert happens(plan, "Key").startswith("opens nothing by that name")
