"""Who may do what, and what a wrong caller is told."""

import re

import pytest
from api_world import TOKENS, World

from moorage.api.auth import OPEN, roles_for
from moorage.control.credentials import CACHE_S, Role

EXPECTED_PATHS = {
    "/api/v1/namespaces/{ns}/deployments": {"get"},
    "/api/v1/namespaces/{ns}/deployments/{name}": {"get", "put", "delete"},
    **{
        f"/api/v1/namespaces/{{ns}}/deployments/{{name}}/{what}": {"get"}
        for what in ("replicas", "revisions", "history", "why", "logs", "decisions", "scaling")
    },
    **{
        f"/api/v1/namespaces/{{ns}}/deployments/{{name}}/{what}": {"post"}
        for what in ("plan", "stop", "pause", "wake", "scale")
    },
    "/api/v1/namespaces/{ns}/endpoints": {"get"},
    "/api/v1/namespaces/{ns}/endpoints/{name}": {"get", "put", "delete"},
    **{f"/api/v1/namespaces/{{ns}}/endpoints/{{name}}/{what}": {"get"} for what in ("history", "why")},
    **{f"/api/v1/namespaces/{{ns}}/endpoints/{{name}}/{what}": {"post"} for what in ("plan", "bind")},
    "/api/v1/namespaces/{ns}/runs": {"get"},
    "/api/v1/namespaces/{ns}/runs/{name}": {"get", "put", "delete"},
    **{f"/api/v1/namespaces/{{ns}}/runs/{{name}}/{what}": {"get"} for what in ("workers", "history", "why", "logs")},
    **{f"/api/v1/namespaces/{{ns}}/runs/{{name}}/{what}": {"post"} for what in ("plan", "cancel", "restart")},
    "/api/v1/namespaces/{ns}/workers/{name}/stop": {"post"},
    **{f"/api/v1/namespaces/{{ns}}/workers/{{name}}{what}": {"get"} for what in ("", "/history", "/logs")},
    **{f"/api/v1/namespaces/{{ns}}/replicas/{{name}}{what}": {"get"} for what in ("", "/history")},
    "/api/v1/machines": {"get"},
    "/api/v1/machines/{name}": {"get", "delete"},
    "/api/v1/machines/{name}/history": {"get"},
    "/api/v1/machines/{name}/cache": {"get", "post"},
    "/api/v1/inventory": {"get"},
    "/api/v1/orphans": {"get"},
    "/api/v1/namespaces/{ns}/deployments/{name}/adopt": {"post"},
    "/api/v1/machines/{name}/cordon": {"post"},
    "/api/v1/machines/{name}/uncordon": {"post"},
    "/api/v1/machines/{name}/drain": {"post"},
    **{
        f"/api/v1/namespaces/{{ns}}/deployments/{{name}}/{what}": {method}
        for what, method in (
            ("rollout", "get"),
            ("rollout/explain", "get"),
            ("promote", "post"),
            ("reject", "post"),
            ("rollback", "post"),
            ("evidence", "post"),
        )
    },
    "/api/v1/operations": {"get"},
    "/api/v1/operations/{uid}": {"get"},
    "/api/v1/operations/{uid}/cancel": {"post"},
    "/api/v1/operations/{uid}/resolve": {"post"},
    "/api/v1/events": {"get"},
    "/api/v1/requests/{id}": {"get"},
    "/api/v1/namespaces": {"get"},
    "/api/v1/namespaces/{ns}": {"get", "put", "delete"},
    "/api/v1/quotas": {"get"},
    "/api/v1/quotas/{ns}": {"get", "put", "delete"},
    "/api/v1/identity/ca": {"get"},
    "/api/v1/namespaces/{ns}/drives": {"get"},
    "/api/v1/namespaces/{ns}/drives/{name}": {"get", "put", "delete"},
    "/api/v1/agent/drives/{name}": {"get"},
    "/api/v1/agent/drives/{id}": {"post"},
    "/api/v1/namespaces/{ns}/keys": {"get", "post"},
    "/api/v1/namespaces/{ns}/keys/{name}": {"get", "patch", "delete"},
    "/api/v1/namespaces/{ns}/keys/{name}/revoke": {"post"},
    "/api/v1/namespaces/{ns}/keys/{name}/history": {"get"},
    "/api/v1/namespaces/{ns}/keys/{name}/usage": {"get"},
    "/api/v1/namespaces/{ns}/secrets": {"get"},
    "/api/v1/namespaces/{ns}/secrets/{name}": {"get", "put", "delete"},
    "/api/v1/tokens/join": {"post"},
    **{
        f"/api/v1/agent/{what}": {"post"}
        for what in (
            *("join", "reconcile", "heartbeat", "report", "logs/{id}", "secrets", "identity"),
            *("inventory/{id}", "claims/{id}", "caches/{id}"),
        )
    },
    "/api/v1/agent/work": {"get"},
    "/api/v1/routing/table": {"get"},
    "/api/v1/routing/report": {"post"},
    "/metrics": {"get"},
    "/livez": {"get"},
    "/readyz": {"get"},
}


async def test_every_path_of_the_contract_is_described(world: World) -> None:
    described = (await world.as_(None).get("/api/v1/openapi.json")).json
    assert {path: set(methods) for path, methods in described["paths"].items()} == EXPECTED_PATHS
    report = described["paths"]["/api/v1/agent/report"]["post"]["requestBody"]["content"]["application/json"]
    assert report["schema"] == {"$ref": "#/components/schemas/Report"}
    shown = described["paths"]["/api/v1/namespaces/{ns}/deployments/{name}"]["get"]["responses"]
    assert shown["200"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Deployment"}
    assert shown["default"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}
    for ref in re.findall(r"#/components/schemas/([\w.-]+)", str(described)):
        assert ref in described["components"]["schemas"]


@pytest.mark.parametrize("role", [None, "nobody", *Role])
async def test_every_route_lets_in_its_roles_and_nobody_else(world: World, role: str | None) -> None:
    agent = await world.deps.credentials.issue_agent("mch-lab-1", "lab-1")
    token = {
        None: None,
        "nobody": "moor-agent.mch-lab-1.guessed",
        Role.ADMIN: TOKENS.admin,
        Role.JOIN: TOKENS.agent_join,
        Role.GATEWAY: TOKENS.gateway,
        Role.AGENT: agent,
    }[role]
    for path, methods in EXPECTED_PATHS.items():
        for method in methods:
            status = (await world.as_(token).ask(method.upper(), re.sub(r"{\w+}", "x", path), body={})).status
            place = f"{method} {path} as {role}: {status}"
            if path in OPEN:
                assert status == 200, place
            elif role in (None, "nobody"):
                assert status == 401, place
            elif Role(str(role)) in roles_for(path):
                assert status not in (401, 403), place
            else:
                assert status == 403, place


async def test_a_path_that_nobody_registered_still_asks_for_a_token(world: World) -> None:
    assert (await world.as_(None).get("/api/v1/agent-of-chaos")).status == 401
    assert (await world.as_(TOKENS.gateway).get("/api/v1/secrets")).status == 403


async def test_401_names_the_scheme_and_the_remedy(world: World) -> None:
    answer = await world.as_(None).get("/api/v1/machines")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json["code"] == "unauthorized"
    assert "Authorization" in answer.json["remedy"]


@pytest.mark.parametrize("header", ["Basic eDp5", "Bearer", "Bearer  ", "the-admin-token", "Bearer the-admin-token2"])
async def test_a_malformed_or_near_token_is_nobody(world: World, header: str) -> None:
    answer = await world.as_(None).get("/api/v1/machines", headers={"authorization": header})
    assert answer.status == 401


async def test_an_agent_may_only_speak_for_its_own_machine(world: World) -> None:
    agent = await world.agent("lab-1")
    for path, body in (
        ("heartbeat", {"machine": "mch-lab-2", "incarnation": "i"}),
        ("report", {"machine": "mch-lab-2", "incarnation": "i", "reports": []}),
        ("reconcile", {"machine": "mch-lab-2", "incarnation": "i", "boot_id": "b"}),
    ):
        answer = await agent.ask("POST", f"/api/v1/agent/{path}", body=body)
        assert (answer.status, answer.json["code"]) == (403, "forbidden"), path
    assert (await agent.get("/api/v1/agent/work?machine=mch-lab-2")).status == 403
    assert world.machines.seen == []


async def test_a_join_token_gives_a_credential_once_and_a_new_join_replaces_it(world: World) -> None:
    body = {"name": "lab-1", "incarnation": "i1", "boot_id": "b", "capacity": {"cpu_milli": 1, "memory_bytes": 1}}
    joiner = world.as_(TOKENS.agent_join)
    first = (await joiner.ask("POST", "/api/v1/agent/join", body=body)).json
    agent = world.as_(first["credential"])
    beat = {"machine": first["machine"], "incarnation": "i1"}
    assert (await agent.ask("POST", "/api/v1/agent/heartbeat", body=beat)).status == 200
    again = (await agent.ask("POST", "/api/v1/agent/join", body=body)).json
    assert again["credential"] is None
    second = (await joiner.ask("POST", "/api/v1/agent/join", body=body)).json
    assert second["credential"] != first["credential"]
    assert (await agent.ask("POST", "/api/v1/agent/heartbeat", body=beat)).status == 401
    assert (await world.as_(second["credential"]).ask("POST", "/api/v1/agent/heartbeat", body=beat)).status == 200


async def test_a_credential_cannot_join_as_another_machine(world: World) -> None:
    agent = await world.agent("lab-1")
    body = {"name": "lab-2", "incarnation": "i", "boot_id": "b", "capacity": {"cpu_milli": 1, "memory_bytes": 1}}
    assert (await agent.ask("POST", "/api/v1/agent/join", body=body)).status == 403
    assert world.machines.seen == []


async def test_a_made_join_token_works_until_its_time_is_over(world: World) -> None:
    made = await world.admin.ask("POST", "/api/v1/tokens/join", body={"ttl_s": 60})
    assert (made.status, made.headers["cache-control"]) == (201, "no-store")
    joiner = world.as_(made.json["token"])
    body = {"name": "lab-1", "incarnation": "i", "boot_id": "b", "capacity": {"cpu_milli": 1, "memory_bytes": 1}}
    assert (await joiner.ask("POST", "/api/v1/agent/join", body=body)).status == 200
    world.clock.advance(60)
    assert (await joiner.ask("POST", "/api/v1/agent/join", body=body)).status == 401


async def test_tokens_are_kept_as_hashes_only(world: World) -> None:
    made = await world.deps.credentials.issue_join()
    kept = await world.store.secret(f"token/join/{made.id}")
    assert made.token not in kept
    assert made.token.rpartition(".")[2] not in kept


async def test_a_verified_credential_costs_no_read_for_a_while(world: World) -> None:
    agent = await world.agent("lab-1")
    beat = {"machine": "mch-lab-1", "incarnation": "i"}
    reads = 0
    ask = world.deps.store.secret

    async def counted(name: str) -> str | None:
        nonlocal reads
        reads += 1
        return await ask(name)

    world.deps.store.secret = counted  # type: ignore[method-assign]
    for _ in range(3):
        await agent.ask("POST", "/api/v1/agent/heartbeat", body=beat)
    assert reads == 1
    world.clock.advance(CACHE_S)
    await agent.ask("POST", "/api/v1/agent/heartbeat", body=beat)
    assert reads == 2


async def test_a_page_of_another_origin_changes_nothing(world: World) -> None:
    path = "/api/v1/namespaces/default/deployments/gemma/stop"
    for origin in ("https://evil.example", "null", "http://moorage.test:9999"):
        assert (await world.admin.ask("POST", path, headers={"origin": origin})).status == 403
    assert world.commands.calls == []
    own = await world.admin.ask("POST", path, headers={"origin": "http://moorage.test:7420"})
    assert own.status == 202
    assert (await world.admin.get("/api/v1/machines", headers={"origin": "https://evil.example"})).status == 200


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("127.0.0.1", {"host": "127.0.0.1:7420"}, 200),
        ("::1", {"host": "[::1]:7420"}, 200),
        ("127.0.0.1", {"host": "localhost:7420"}, 200),
        ("127.0.0.1", {"host": "rebound.example:7420"}, 401),
        ("127.0.0.1", {"host": "127.0.0.1:7420", "x-forwarded-for": "9.9.9.9"}, 401),
        ("10.1.1.1", {"host": "127.0.0.1:7420"}, 401),
    ],
)
async def test_metrics_without_a_token_are_for_this_machine_only(
    world: World, peer: str, headers: dict[str, str], status: int
) -> None:
    assert (await world.as_(None).get("/metrics", peer=peer, headers=headers)).status == status
