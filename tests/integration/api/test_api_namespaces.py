"""Namespaces and quotas over HTTP: what is set is kept with its history, and the use shown is what is there."""

from typing import Any

import pytest
from api_world import World

from moorage.domain.changes import Change, Hold
from moorage.domain.nouns import Deployment, Machine, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import RunState, WorkerState

QUOTA = "/api/v1/quotas/research"
NAMESPACE = "/api/v1/namespaces/research"


async def put(world: World, path: str, body: Any) -> Any:
    return await world.admin.ask("PUT", path, body=body)


async def test_a_namespace_is_made_changed_and_removed_with_its_history(world: World) -> None:
    assert (await world.admin.get(NAMESPACE)).status == 404
    assert (await world.admin.get("/api/v1/namespaces/default")).json["made"] is False
    made = (await put(world, NAMESPACE, {"machines": {"pool": "r"}, "description": "trains"})).json
    assert (made["kind"], made["machines"], made["description"], made["made"]) == (
        "Namespace",
        {"pool": "r"},
        "trains",
        True,
    )
    assert (await put(world, NAMESPACE, {"machines": {"pool": "r"}, "description": "trains"})).json == made
    changed = (await put(world, NAMESPACE, {})).json
    assert (changed["version"], changed["machines"]) == (2, {})
    assert [n["name"] for n in (await world.admin.get("/api/v1/namespaces")).json["items"]] == ["default", "research"]
    assert (await world.admin.ask("DELETE", NAMESPACE)).json["deleted"] is True
    assert (await world.admin.get(NAMESPACE)).status == 404
    assert (await world.admin.ask("DELETE", NAMESPACE)).status == 404
    codes = [row.reason.code for row in await world.store.history(uid=made["id"])]
    assert codes == ["namespace.set", "namespace.set", "namespace.removed"]


async def test_a_namespace_in_which_something_lives_keeps_its_restriction(world: World) -> None:
    await put(world, NAMESPACE, {"machines": {"pool": "r"}})
    await world.rows.create(Deployment(uid="dep-1", name="d", namespace="research"), reason("deploy.created"))
    refused = await world.admin.ask("DELETE", NAMESPACE)
    assert (refused.status, refused.json["code"]) == (409, "namespace_in_use")
    assert (await world.admin.get(NAMESPACE)).json["machines"] == {"pool": "r"}


async def test_a_quota_shows_what_is_held_and_what_lives_in_the_namespace(world: World) -> None:
    limits = {"gpus": 8, "gpu_models": {"H100": 4}, "cpu": "500m", "memory": "2GiB", "runs": 5, "replicas": 9}
    answer = await put(world, QUOTA, {"limits": limits})
    assert answer.json["limits"] == {**limits, "cpu": 0.5, "memory": 2 << 30}
    await world.rows.create(Deployment(uid="dep-1", name="d", namespace="research", spec={"replicas": {"max": 3}}))
    await world.rows.create(Run(uid="run-1", name="r", namespace="research"))
    await world.rows.create(Run(uid="run-2", name="s", namespace="research", deployment="dep-1"))
    await world.store.commit(
        Change((Hold("m1", "w1", 1, (0, 1), 250, 1 << 30, namespace="research", models=("H100", "A100")),), "test")
    )
    used = (await world.admin.get(QUOTA)).json["used"]
    assert used == {
        "gpus": 2,
        "cpu": 0.25,
        "memory": 1 << 30,
        "runs": 1,
        "deployments": 1,
        "replicas": 3,
        "gpu_models": {"H100": 1, "A100": 1},
    }
    listed = (await world.admin.get("/api/v1/quotas")).json["items"]
    assert {q["name"]: q["limits"] for q in listed} == {"default": {}, "research": answer.json["limits"]}
    assert (await world.admin.ask("DELETE", QUOTA)).json["deleted"] is True
    assert (await world.admin.get(QUOTA)).json["limits"] == {}
    assert (await world.admin.ask("DELETE", QUOTA)).status == 404


async def test_room_kept_for_a_restart_counts_as_used(world: World) -> None:
    gpus = [{"index": n, "model": "H100", "memory_bytes": 1} for n in range(2)]
    capacity = {"cpu_milli": 8000, "memory_bytes": 1 << 34, "gpus": gpus}
    machine = Machine(uid="mch-1", name="m1", capacity=capacity)
    joined = await world.rows.create(machine, reason("machine.joined"))
    await world.rows.step(joined, ("Ready", "joined"))
    await world.rows.create(Run(uid="run-1", name="r", namespace="research", state=RunState.PENDING))
    await world.rows.create(
        Worker(
            uid="wrk-1",
            run="run-1",
            namespace="research",
            state=WorkerState.PENDING,
            machine_name="m1",
            restart_at=world.clock.now() + 10,
            request={"gpus": {"count": 1}, "cpu_milli": 1000},
        )
    )
    assert (await world.admin.get(QUOTA)).json["used"]["gpus"] == 1
    world.clock.advance(100)
    assert (await world.admin.get(QUOTA)).json["used"]["gpus"] == 0


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"gpus": -1}, "gpus"),
        ({"gpus": 1.5}, "gpus"),
        ({"tpus": 1}, "tpus"),
        ({"cpu": "lots"}, "cpu"),
        ({"gpu_models": {"": 1}}, "gpu_models"),
        ({"requests_per_minute": -1}, "requests_per_minute"),
        ({"tokens_per_minute": "many"}, "tokens_per_minute"),
    ],
)
async def test_a_quota_that_means_nothing_is_refused_with_its_place(
    world: World, limits: dict[str, Any], said: str
) -> None:
    answer = await put(world, QUOTA, {"limits": limits})
    assert answer.status == 422
    assert said in str(answer.json)
    assert (await world.admin.get(QUOTA)).json["limits"] == {}


async def test_a_quota_of_what_passes_in_a_minute_is_kept_and_shown_with_its_use(world: World) -> None:
    limits = {"requests_per_minute": 600, "tokens_per_minute": 200_000, "gpus": 2}
    assert (await put(world, QUOTA, {"limits": limits})).json["limits"] == limits
    used = (await world.admin.get(QUOTA)).json["used"]
    assert (used["requests_per_minute"], used["tokens_per_minute"]) == (0, 0)


async def test_a_key_of_another_quota_is_refused(world: World) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = await world.admin.ask("PUT", QUOTA, body={"limits": {"gpus": 1}}, headers=headers)
    assert first.status == 200
    assert (await world.admin.ask("PUT", QUOTA, body={"limits": {"gpus": 1}}, headers=headers)).json == first.json
    other = await world.admin.ask("PUT", QUOTA, body={"limits": {"gpus": 2}}, headers=headers)
    assert (other.status, other.json["code"]) == (409, "idempotency_key_reused")


async def test_keys_stay_required_when_something_else_of_a_namespace_is_set(world: World) -> None:
    path = "/api/v1/namespaces/guarded"
    await world.admin.ask("PUT", path, body={"keys": "required"})
    kept = await world.admin.ask("PUT", path, body={"machines": {"pool": "a"}})
    assert (kept.json["keys"], kept.json["machines"]) == ("required", {"pool": "a"})
    opened = await world.admin.ask("PUT", path, body={"keys": "optional"})
    assert opened.json["keys"] == "optional"
