"""Secrets over HTTP: no path gives a value back but the agent's own, and only for a worker that is placed there."""

from typing import Any

import pytest
from api_world import World

from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import reason

VALUE = "hunter2-hunter2"
SECRETS = "/api/v1/namespaces/default/secrets"
SPEC = {
    "groups": [
        {
            "name": "worker",
            "runtime": {"secrets": {"TOKEN": "hf-token", "USER": "login/username"}, "registry_secret": "ghcr"},
        }
    ]
}


async def placed(world: World) -> Worker:
    machine = Machine(uid="mch-box", name="box", incarnation="now")
    await world.rows.create(machine, reason("machine.joined"))
    await world.rows.create(Run(uid="run-1", name="train", spec=SPEC), reason("run.created"))
    worker = Worker(uid="wrk-1", name="w", run="run-1", machine="mch-box", epoch=3)
    await world.rows.create(worker, reason("worker.created"))
    return worker


def question(**other: Any) -> dict[str, Any]:
    return {"machine": "mch-box", "incarnation": "now", "worker": "wrk-1", "epoch": 3} | other


async def test_a_secret_is_set_listed_and_removed_and_never_shown(world: World) -> None:
    put = await world.admin.ask("PUT", f"{SECRETS}/hf-token", body={"values": {"value": VALUE}})
    answers = [put, await world.admin.get(SECRETS), await world.admin.get(f"{SECRETS}/hf-token")]
    assert [a.status for a in answers] == [200, 200, 200]
    assert answers[1].json["items"][0]["keys"] == ["value"]
    assert not [a for a in answers if VALUE.encode() in a.body]
    assert (await world.admin.ask("DELETE", f"{SECRETS}/hf-token")).status == 200
    assert (await world.admin.get(f"{SECRETS}/hf-token")).status == 404


@pytest.mark.parametrize(
    "body", [{"values": {"value": VALUE, "n": 7}}, {"values": [VALUE]}, {"value": VALUE}, {"values": {"a b": VALUE}}]
)
async def test_a_refused_body_is_not_repeated_in_the_refusal(world: World, body: Any) -> None:
    answer = await world.admin.ask("PUT", f"{SECRETS}/a", body=body)
    assert answer.status == 422
    assert VALUE.encode() not in answer.body


async def test_a_machine_is_given_the_values_of_the_worker_placed_on_it(world: World) -> None:
    await placed(world)
    await world.deps.vault.put("default", "hf-token", {"value": VALUE})
    agent = await world.agent("box")
    first = (await agent.ask("POST", "/api/v1/agent/secrets", body=question())).json
    assert first["values"] == {"TOKEN": VALUE}
    assert first["missing"] == [["login", "username"], ["ghcr", "username"], ["ghcr", "password"]]
    assert first["registry"] == {}
    await world.deps.vault.put("default", "login", {"username": "me", "other": "x"})
    await world.deps.vault.put("default", "ghcr", {"username": "me", "password": "pw"})
    answer = await agent.ask("POST", "/api/v1/agent/secrets", body=question())
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json["values"] == {"TOKEN": VALUE, "USER": "me"}
    assert answer.json["registry"] == {"username": "me", "password": "pw"}
    assert answer.json["missing"] == []


@pytest.mark.parametrize(
    ("other", "status"),
    [
        ({"epoch": 2}, 409),
        ({"incarnation": "before"}, 409),
        ({"worker": "wrk-2"}, 409),
        ({"machine": "mch-other"}, 403),
    ],
)
async def test_nobody_else_is_given_them(world: World, other: dict[str, Any], status: int) -> None:
    await placed(world)
    await world.deps.vault.put("default", "hf-token", {"value": VALUE})
    agent = await world.agent("box")
    answer = await agent.ask("POST", "/api/v1/agent/secrets", body=question(**other))
    assert answer.status == status
    assert VALUE.encode() not in answer.body


async def test_another_machine_is_not_given_them(world: World) -> None:
    await placed(world)
    await world.rows.create(Machine(uid="mch-other", name="other", incarnation="now"), reason("machine.joined"))
    agent = await world.agent("other")
    assert (await agent.ask("POST", "/api/v1/agent/secrets", body=question(machine="mch-other"))).status == 409


async def test_a_stopping_worker_is_given_nothing_more(world: World) -> None:
    worker = await placed(world)
    await world.rows.step(worker, ("Stopping", "stop_requested"), why=reason("stop.user", text="enough"))
    agent = await world.agent("box")
    assert (await agent.ask("POST", "/api/v1/agent/secrets", body=question())).status == 409


async def test_a_certificate_is_given_to_the_machine_of_a_worker_whose_run_asks_for_one(world: World) -> None:
    await placed(world)
    agent = await world.agent("box")
    assert (await agent.ask("POST", "/api/v1/agent/identity", body=question())).status == 409, "it asks for none"
    await world.rows.create(Run(uid="run-2", name="sure", spec={**SPEC, "identity": True}), reason("run.created"))
    worker = Worker(uid="wrk-9", name="w", run="run-2", machine="mch-box", epoch=3)
    await world.rows.create(worker, reason("worker.created"))
    answer = (await agent.ask("POST", "/api/v1/agent/identity", body=question(worker="wrk-9"))).json
    assert "BEGIN CERTIFICATE" in answer["certificate"]
    assert "PRIVATE KEY" in answer["key"]
    assert answer["why"] is None
    assert (await world.as_(None).get("/api/v1/identity/ca")).body.decode() == answer["authority"]
    assert (await agent.ask("POST", "/api/v1/agent/identity", body=question(worker="wrk-9", epoch=2))).status == 409
