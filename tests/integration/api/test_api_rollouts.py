"""Rollouts and operations over the API: what is shown, and which orders reach the control room."""

from typing import Any

import pytest
from api_world import World

from moorage.control.views import iso
from moorage.decide.serving.evidence import Seen
from moorage.decide.serving.guard import Facts, Policy, judge
from moorage.domain.nouns import Deployment, Operation, Revision
from moorage.domain.reasons import reason

PATH = "/api/v1/namespaces/default/deployments/gemma"
WHO = {"actor": "person:admin", "key": "k"}
KEY = {"idempotency-key": "k"}
SPEC: dict[str, Any] = {"rollout": {}, "replicas": {"min": 1, "max": 1}}


async def served(world: World) -> None:
    """A deployment with one revision, which was judged once."""
    said = judge(Policy(), None, Seen(), Facts())
    kept = {**said.to_wire(), "id": "gemma-1/1", "at": 1_800_000_000.0, "baseline": None}
    row = Deployment(uid="dep-1", name="gemma", spec=SPEC, active_revision="rev-1", revision_count=1)
    await world.rows.create(row, reason("deploy.created"))
    revision = Revision(uid="rev-1", name="gemma-1", deployment="dep-1", digest="sha256:1", decisions=(kept,))
    await world.rows.create(revision, reason("revision.created"))


async def test_with_nothing_rolled_out_that_is_the_answer(world: World) -> None:
    await served(world)
    found = (await world.admin.get(f"{PATH}/rollout")).json
    assert (found["kind"], found["kind_of"], found["revision"], found["draining"]) == ("Rollout", None, "rev-1", None)
    assert (await world.admin.get(PATH)).json["rollout"] is None


async def test_a_decision_is_shown_and_replays_to_the_byte_after_a_round_through_the_store(world: World) -> None:
    await served(world)
    (shown,) = (await world.admin.get(f"{PATH}/decisions")).json["items"]
    assert (shown["kind"], shown["id"], shown["verdict"]) == ("GuardDecision", "gemma-1/1", "ACCEPT")
    assert shown["at"] == "2027-01-15T08:00:00.000Z"
    found = (await world.admin.get(f"{PATH}/rollout/explain")).json
    assert (found["identical"], found["decision"]["id"]) == (True, "gemma-1/1")
    assert (await world.admin.get(f"{PATH}/rollout/explain?decision=9")).status == 404


@pytest.mark.parametrize(
    ("verb", "body", "order"),
    [
        ("promote", {"reason": "good", "revision": "2"}, {"text": "good", "revision": "2"}),
        ("promote", None, {"text": None, "revision": None}),
        ("reject", {"reason": "bad"}, {"text": "bad", "revision": None}),
        ("rollback", {"to": "1"}, {"text": None, "to": "1"}),
    ],
)
async def test_a_persons_word_reaches_the_control_room(
    verb: str, body: dict[str, str] | None, order: dict[str, Any], world: World
) -> None:
    answer = await world.admin.ask("POST", f"{PATH}/{verb}", body=body, headers=KEY)
    assert answer.status == 202
    assert world.commands.calls == [(f"{verb}_deployment", ("default", "gemma"), {**WHO, **order})]


@pytest.mark.parametrize("verb", ["promote", "reject", "rollback"])
async def test_a_word_that_is_not_understood_is_not_half_obeyed(verb: str, world: World) -> None:
    assert (await world.admin.ask("POST", f"{PATH}/{verb}", body={"weight": 100})).status == 422
    assert world.commands.calls == []


async def test_what_is_there_is_said_to_an_operation(world: World) -> None:
    path = "/api/v1/operations/op-1/resolve"
    assert (await world.admin.ask("POST", path, body={"absent": True}, headers=KEY)).status == 202
    assert world.commands.calls == [("resolve_operation", ("op-1",), {"adopt": None, "absent": True, **WHO})]


async def test_an_adopted_server_is_kept_only_under_its_typed_name(world: World) -> None:
    assert (await world.admin.ask("DELETE", f"{PATH}?keep_resources=gemmma", headers=KEY)).status == 422
    assert world.commands.calls == []
    assert (await world.admin.ask("DELETE", f"{PATH}?keep_resources=gemma", headers=KEY)).status == 202
    assert world.commands.calls == [("delete_deployment", ("default", "gemma"), {**WHO, "keep": True})]


async def test_the_lease_of_an_operation_is_the_control_planes_own_as_it_stands(world: World) -> None:
    lease = await world.store.acquire("control", "home:a", 30.0)
    assert lease is not None
    row = await world.rows.create(Operation(uid="op-1", target="dep-1"), reason("op.created"))
    shown = "/api/v1/operations/op-1"
    assert (await world.admin.get(shown)).json["lease"] is None, "it waits to be taken up"
    held = {"lease_owner": "home:a", "lease_generation": lease.generation, "lease_expires_at": 5.0}
    await world.rows.step(row, ("leased", "leased"), why=reason("op.leased"), **held)
    found = (await world.admin.get(shown)).json["lease"]
    assert (found["owner"], found["generation"]) == ("home:a", lease.generation)
    assert found["expires_at"] == iso(lease.expires_at)
