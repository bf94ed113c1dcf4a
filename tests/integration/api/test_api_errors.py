"""Every error is the one public error object, with a request id and, where it helps, a time to retry."""

import json
from typing import Any

import pytest
from api_world import World, until

from moorage.domain import errors

PATH = "/api/v1/namespaces/default/deployments/gemma"


def check_shape(answer: Any, status: int, code: str, category: str) -> dict[str, Any]:
    told = answer.json
    assert (answer.status, told["code"], told["category"]) == (status, code, category)
    assert {"code", "category", "message", "retryable", "remedy"} <= told.keys()
    assert told["message"]
    assert answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"
    return told


async def test_an_unknown_object_is_404_with_a_remedy(world: World) -> None:
    told = check_shape(await world.admin.get(PATH), 404, "not_found", "missing")
    assert told["target"] == "Deployment default/gemma"
    for path in (
        "machines/x",
        "operations/x",
        "namespaces/n/runs/x",
        "namespaces/n/workers/x",
        "namespaces/n/replicas/x",
    ):
        check_shape(await world.admin.get(f"/api/v1/{path}"), 404, "not_found", "missing")


async def test_an_unknown_path_and_method_answer_in_the_same_shape(world: World) -> None:
    check_shape(await world.admin.get("/api/v1/nothing"), 404, "not_found", "missing")
    answer = await world.admin.ask("PATCH", PATH)
    check_shape(answer, 405, "method_not_allowed", "invalid")
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (errors.Conflict("operation op-1 deletes it", target="Deployment default/gemma"), 409, None),
        (errors.KeyReused("the key was used for another intent"), 409, None),
        (errors.StaleVersion("somebody was first"), 409, None),
        (errors.Gone("the cursor was pruned"), 410, None),
        (errors.QuotaExceeded("16 of 16 GPUs are used"), 429, "1"),
        (errors.Unavailable("the store cannot be reached", retry_after_s=2.2), 503, "3"),
        (errors.Unavailable("not now"), 503, "1"),
    ],
)
async def test_what_a_command_raises_is_told_as_it_is(
    world: World, error: errors.MoorageError, status: int, retry_after: str | None
) -> None:
    world.commands.fails = error
    answer = await world.admin.ask("PUT", PATH, body={"kind": "Deployment"})
    told = check_shape(answer, status, error.code, error.category)
    assert told["message"] == error.message
    assert told["retryable"] is error.retryable
    assert answer.headers.get("retry-after") == retry_after


async def test_a_bad_spec_comes_back_with_its_places(world: World) -> None:
    places = [{"path": "replicas.mn", "message": "unknown key mn; did you mean min?", "nearest": "replicas.min"}]
    world.commands.fails = errors.InvalidSpec("the spec is not valid", errors=places, remedy="correct it")
    answer = await world.admin.ask("PUT", PATH, body={"kind": "Deployment"})
    assert check_shape(answer, 422, "invalid_spec", "invalid")["errors"] == places


@pytest.mark.parametrize(
    ("method", "path", "body", "place"),
    [
        ("GET", "/api/v1/machines?limit=0", None, "query.limit"),
        ("GET", "/api/v1/machines?limit=many", None, "query.limit"),
        ("GET", "/api/v1/machines?labels==x", None, "labels"),
        ("GET", "/api/v1/operations?state=lost", None, "query.state"),
        ("POST", f"{PATH}/scale", {"min": -1}, "min"),
        ("POST", f"{PATH}/scale", {}, "min"),
        ("POST", f"{PATH}/scale", {"minimum": 1}, "minimum"),
        ("POST", "/api/v1/machines/m/cordon", {"why": "  "}, "why"),
        ("PUT", PATH, [1], ""),
        ("PUT", PATH, {"name": "llama"}, "name"),
        ("PUT", PATH, {"namespace": "other"}, "namespace"),
        ("POST", f"{PATH}/plan", {"name": "llama"}, "name"),
        ("POST", "/api/v1/tokens/join", {"ttl_s": -1}, "ttl_s"),
        ("POST", "/api/v1/tokens/join", {"ttl_s": 1e9}, "ttl_s"),
    ],
)
async def test_a_bad_request_names_the_place(world: World, method: str, path: str, body: Any, place: str) -> None:
    told = check_shape(await world.admin.ask(method, path, body=body), 422, "invalid_spec", "invalid")
    assert place in [e["path"] for e in told["errors"]]
    assert world.commands.calls == []


async def test_json_that_is_none_is_422_and_not_a_crash(world: World) -> None:
    for raw in (b"{", b"\xff\xfe", b""):
        answer = await world.admin.ask("PUT", PATH, pieces=[raw], headers={"content-type": "application/json"})
        check_shape(answer, 422, "invalid_spec", "invalid")


async def test_a_form_of_a_browser_is_not_taken_for_json(world: World) -> None:
    raw = [json.dumps({"kind": "Deployment"}).encode()]
    answer = await world.admin.ask("PUT", PATH, pieces=raw, headers={"content-type": "text/plain"})
    assert answer.status == 422
    assert world.commands.calls == []


async def test_an_agent_message_that_is_none_names_the_field(world: World) -> None:
    agent = await world.agent("lab-1")
    answer = await agent.ask("POST", "/api/v1/agent/heartbeat", body={"machine": "mch-lab-1"})
    told = check_shape(answer, 422, "invalid_spec", "invalid")
    assert [e["path"] for e in told["errors"]] == ["incarnation"]
    check_shape(await agent.ask("POST", "/api/v1/agent/report", pieces=[b"{"]), 422, "invalid_spec", "invalid")


async def test_a_body_too_large_is_refused_by_what_it_says_and_by_what_comes(world: World) -> None:
    big = b'{"kind": "' + b"x" * (1 << 20) + b'"}'
    headers = {"content-type": "application/json", "content-length": str(len(big))}
    said = await world.admin.ask("PUT", PATH, pieces=[b"{}"], headers=headers)
    check_shape(said, 413, "too_large", "invalid")
    pieces = [big[i : i + 65536] for i in range(0, len(big), 65536)]
    came = await world.admin.ask("PUT", PATH, pieces=pieces, headers={"content-type": "application/json"})
    check_shape(came, 413, "too_large", "invalid")
    assert world.commands.calls == []


async def test_an_agents_report_may_be_larger_than_a_persons_request(world: World) -> None:
    agent = await world.agent("lab-1")
    report = {"seq": 1, "worker": "w", "epoch": 1, "log_tail": "x" * (2 << 20)}
    body = {"machine": "mch-lab-1", "incarnation": "i", "reports": [report]}
    assert (await agent.ask("POST", "/api/v1/agent/report", body=body)).json == {"seq": 1}


async def test_a_defect_of_ours_is_500_without_its_inside(world: World) -> None:
    for defect in (RuntimeError("secret inside"), errors.IllegalTransition("Worker", "a", "b", "c")):
        world.commands.fails = defect
        told = check_shape(await world.admin.ask("PUT", PATH, body={}), 500, "internal", "failed")
        assert "secret" not in str(told)
        assert "cannot go from" not in str(told)


async def test_the_request_id_is_kept_when_good_and_made_when_not(world: World) -> None:
    given = await world.admin.get("/livez", headers={"x-request-id": "abc-1.2"})
    assert given.headers["x-request-id"] == "abc-1.2"
    bad = await world.admin.get("/livez", headers={"x-request-id": "a\r\nb" * 80})
    assert bad.headers["x-request-id"].isalnum()


async def test_orders_carry_who_asked_and_the_key(world: World) -> None:
    headers = {"idempotency-key": "k-1", "if-none-match": "*"}
    await world.admin.ask("PUT", PATH, body={"kind": "Deployment"}, headers=headers)
    await world.admin.ask("POST", f"{PATH}/stop", body={"text": "cost"}, headers={"idempotency-key": "k-2"})
    await world.admin.ask("POST", f"{PATH}/scale", body={"max": 3})
    await world.admin.ask("DELETE", PATH)
    await world.admin.ask("DELETE", f"{PATH}?dry_run=true")
    apply, stop, scale, delete, dry = world.commands.calls
    assert apply == (
        "apply_deployment",
        ("default", "gemma", {"kind": "Deployment"}),
        {"actor": "person:admin", "key": "k-1", "create_only": True},
    )
    assert stop[2] == {"actor": "person:admin", "key": "k-2", "text": "cost"}
    assert scale[2] == {"min": None, "max": 3, "actor": "person:admin", "key": None}
    assert delete[0] == "delete_deployment"
    assert dry == ("delete_dry_run", ("default", "gemma"), {})


async def test_orders_about_runs_and_workers_carry_them_too(world: World) -> None:
    runs, keyed = "/api/v1/namespaces/default/runs/train", {"idempotency-key": "k-1"}
    wanted = {"kind": "Run", "name": "train"}
    await world.admin.ask("PUT", runs, body=wanted, headers={**keyed, "if-none-match": "*"})
    await world.admin.ask("POST", f"{runs}/plan", body=wanted)
    await world.admin.ask("POST", f"{runs}/cancel", body={"text": "no"}, headers=keyed)
    await world.admin.ask("POST", f"{runs}/restart")
    await world.admin.ask("DELETE", runs)
    await world.admin.ask("DELETE", f"{runs}?dry_run=true")
    await world.admin.ask("POST", "/api/v1/namespaces/default/workers/w-1/stop", body={"reason": "hot"})
    who = {"actor": "person:admin", "key": None}
    assert world.commands.calls == [
        ("apply", ("default", "train", wanted), {**who, "key": "k-1", "create_only": True}),
        ("plan", ("default", "train", wanted), {}),
        ("cancel", ("default", "train"), {**who, "key": "k-1", "text": "no"}),
        ("restart", ("default", "train"), {**who, "text": None}),
        ("delete", ("default", "train"), who),
        ("delete_dry_run", ("default", "train"), {}),
        ("stop_worker", ("default", "w-1"), {**who, "text": "hot"}),
    ]


async def test_a_run_document_for_another_path_is_refused_before_anything_is_ordered(world: World) -> None:
    body = {"kind": "Run", "name": "other"}
    assert (await world.admin.ask("PUT", "/api/v1/namespaces/default/runs/train", body=body)).status == 422
    assert world.commands.calls == []


async def test_an_unusable_key_or_condition_is_refused(world: World) -> None:
    for headers in ({"idempotency-key": "x" * 201}, {"idempotency-key": ""}, {"if-none-match": '"abc"'}):
        assert (await world.admin.ask("PUT", PATH, body={}, headers=headers)).status == 422
    assert world.commands.calls == []


async def test_not_ready_is_503_with_why_and_alive_is_alive(world: World) -> None:
    assert (await world.as_(None).get("/readyz")).json == {"ready": True}
    world.deps.closing.set()
    told = check_shape(await world.as_(None).get("/readyz"), 503, "not_ready", "unavailable")
    assert "stopping" in told["message"]
    assert (await world.as_(None).get("/livez")).status == 200


async def test_a_long_poll_of_a_client_that_went_is_cancelled(world: World) -> None:
    agent = await world.agent("lab-1")
    poll = agent.open("GET", "/api/v1/agent/work?incarnation=i&after=3&wait_s=25")
    await until(lambda: world.machines.waits["begun"])
    await poll.hang_up()
    assert world.machines.waits["cancelled"] == 1
    assert world.machines.seen == [("mch-lab-1", "i", 3, 25.0)]


async def test_a_long_poll_ends_with_204_when_the_server_closes(world: World) -> None:
    agent = await world.agent("lab-1")
    poll = agent.open("GET", "/api/v1/agent/work?wait_s=600")
    await until(lambda: world.machines.waits["begun"])
    world.deps.closing.set()
    answer = await poll.answer()
    assert (answer.status, answer.body) == (204, b"")
    assert world.machines.waits["cancelled"] == 1
    assert world.machines.seen[0][3] == world.deps.settings.wait_s_max
