"""Clients' keys over HTTP: the text is told once and kept nowhere; what is set is kept with its history."""

import hashlib
from typing import Any

from api_world import World

from moorage.control.bindings import Spread
from moorage.control.gateways import GatewayLease, SilentGateway
from moorage.domain.nouns import Deployment, Endpoint, Key
from moorage.domain.reasons import reason
from moorage.domain.usage import UsageRow, UsageSums

KEYS = "/api/v1/namespaces/research/keys"


async def create(world: World, **body: Any) -> Any:
    return await world.admin.ask("POST", KEYS, body={"name": "app", **body})


async def there(world: World, *names: str) -> None:
    for name in names:
        row = Deployment(
            uid=f"dep-{name}", name=name, namespace="research", spec={"model": {"aliases": [f"{name}-xl"]}}
        )
        await world.rows.create(row)


async def test_the_text_of_a_key_is_told_once_and_only_its_digest_is_kept(world: World) -> None:
    await there(world, "chat")
    made = await create(world, endpoints=["chat"], limits={"requests_per_minute": 60})
    assert made.status == 201
    text = made.json["key"]
    assert text.startswith(made.json["hint"] + ".")
    assert len(text.rpartition(".")[2]) >= 43  # 32 bytes
    row = await world.store.get(Key, made.json["id"])
    assert row is not None
    assert row.digest == hashlib.sha256(text.encode()).hexdigest()
    secret = text.rpartition(".")[2]
    assert secret not in repr(row)
    assert secret not in repr([line async for line in _told(world, row.uid)])
    shown = (await world.admin.get(f"{KEYS}/app")).json
    assert "key" not in shown
    assert (shown["state"], shown["endpoints"], shown["limits"]) == ("active", ["chat"], {"requests_per_minute": 60})
    assert [k["name"] for k in (await world.admin.get(KEYS)).json["items"]] == ["app"]


async def _told(world: World, uid: str) -> Any:
    for line in await world.store.history(uid=uid):
        yield line


async def test_a_name_is_one_key_s_until_it_is_deleted(world: World) -> None:
    first = (await create(world)).json
    assert (await create(world)).status == 409
    assert (await world.admin.ask("DELETE", f"{KEYS}/app")).json["deleted"] is True
    assert (await world.admin.get(f"{KEYS}/app")).status == 404
    second = (await create(world)).json
    assert second["id"] != first["id"]
    assert second["key"] != first["key"]


async def test_a_revoked_key_stays_revoked_and_takes_no_limits(world: World) -> None:
    await create(world)
    limited = await world.admin.ask("PATCH", f"{KEYS}/app", body={"limits": {"in_flight": 2}})
    assert limited.json["limits"] == {"in_flight": 2}
    revoked = (await world.admin.ask("POST", f"{KEYS}/app/revoke", body={"text": "leaked"})).json
    assert (revoked["state"], revoked["reason"]["code"]) == ("revoked", "key.revoked")
    assert (await world.admin.ask("POST", f"{KEYS}/app/revoke")).json == revoked
    again = await world.admin.ask("PATCH", f"{KEYS}/app", body={"limits": {}})
    assert (again.status, again.json["code"]) == (409, "key_revoked")
    codes = [row.reason.code for row in await world.store.history(uid=revoked["id"])]
    assert codes == ["key.issued", "key.limited", "key.revoked"]


async def test_a_key_s_history_says_why_also_once_it_is_deleted(world: World) -> None:
    await world.admin.ask("POST", KEYS, body={"name": "app"})
    await world.admin.ask("POST", f"{KEYS}/app/revoke", body={"text": "leaked"})
    told = (await world.admin.ask("GET", f"{KEYS}/app/history")).json["items"]
    assert [(item["reason"]["code"], item["to"]) for item in told] == [
        ("key.issued", "active"),
        ("key.revoked", "revoked"),
    ]
    assert told[-1]["reason"]["message"] == "Revoked: leaked"
    await world.admin.ask("DELETE", f"{KEYS}/app")
    gone = (await world.admin.ask("GET", f"{KEYS}/app/history")).json["items"]
    assert [item["reason"]["code"] for item in gone] == ["key.issued", "key.revoked", "key.deleted"]
    assert (await world.admin.ask("GET", f"{KEYS}/nobody/history")).status == 404


async def test_what_no_key_can_have_is_refused(world: World) -> None:
    for body in ({"limits": {"in_flight": 0}}, {"expires_in_s": -1}, {"endpoint": ["x"]}, {"name": "No Name"}):
        assert (await create(world, **body)).status == 422


async def test_history_tells_all_that_a_change_of_a_key_changed(world: World) -> None:
    await there(world, "chat", "embed")
    made = await create(world, endpoints=["chat"])
    for body in ({"limits": {"in_flight": 2}}, {"limits": {"in_flight": 3}, "endpoints": ["embed"]}):
        assert (await world.admin.ask("PATCH", f"{KEYS}/app", body=body)).status == 200
    told = [(line.reason.code, line.reason.message) async for line in _told(world, made.json["id"]) if line.reason]
    assert [code for code, _ in told] == ["key.issued", "key.limited", "key.set"]
    assert "embed" in told[-1][1]
    assert "in_flight 3" in told[-1][1]


async def test_a_key_that_is_not_there_is_said_with_what_lists_those_there_are(world: World) -> None:
    answer = await world.admin.get(f"{KEYS}/nothing")
    assert answer.status == 404
    assert "moor keys ls" in answer.json["remedy"]


async def test_a_key_opens_only_what_is_there_and_a_refused_order_changes_nothing(world: World) -> None:
    await there(world, "chat")
    bound = Endpoint(uid="ep-1", name="search", namespace="research", spec={"routes": []})
    await world.rows.create(bound, reason("endpoint.made", routes="chat"))
    refused = await create(world, endpoints=["chat", "chta", "chat-xl"], limits={"in_flight": 2})
    assert (refused.status, refused.json["code"]) == (422, "unknown_endpoint")
    assert [error["path"] for error in refused.json["errors"]] == ["endpoints[1]", "endpoints[2]"]
    assert "did you mean chat?" in refused.json["message"]
    assert "the model of chat goes by that name" in refused.json["message"]
    assert (await world.admin.get(f"{KEYS}/app")).status == 404
    assert (await create(world, endpoints=["chat", "search"])).status == 201
    body = {"endpoints": ["gone"], "limits": {"in_flight": 2}}
    assert (await world.admin.ask("PATCH", f"{KEYS}/app", body=body)).status == 422
    shown = (await world.admin.get(f"{KEYS}/app")).json
    assert (shown["endpoints"], shown["limits"]) == (["chat", "search"], {})


async def test_a_key_stays_when_its_endpoint_goes_and_says_so(world: World) -> None:
    await there(world, "chat", "embed")
    headers = {"Idempotency-Key": "k"}
    order = {"name": "app", "endpoints": ["chat", "embed"]}
    made = await world.admin.ask("POST", KEYS, body=order, headers=headers)
    assert made.json["missing_endpoints"] == []
    await world.rows.remove(await world.store.get(Deployment, "dep-chat"))
    shown = (await world.admin.get(f"{KEYS}/app")).json
    assert (shown["state"], shown["endpoints"], shown["missing_endpoints"]) == ("active", ["chat", "embed"], ["chat"])
    assert (await world.admin.get(KEYS)).json["items"][0]["missing_endpoints"] == ["chat"]
    assert (await world.admin.ask("PATCH", f"{KEYS}/app", body={"limits": {"in_flight": 1}})).status == 200
    again = await world.admin.ask("POST", KEYS, body=order, headers=headers)
    assert (again.status, again.json["id"]) == (201, made.json["id"]), "the same order is answered as it was"


async def test_a_key_tells_which_gateways_go_by_it_and_which_are_out_of_reach(world: World) -> None:
    made = (await create(world)).json
    spread = {"version": 1}

    def told(uid: str) -> Spread:
        assert uid == made["id"]
        leases = (GatewayLease("g1", 8, 20.0), GatewayLease("g2", None, 20.0))
        return Spread(8, spread["version"], leases, (SilentGateway("g3", 60.0), SilentGateway("g4", None)))

    world.deps.client_keys._spread = told
    shown = (await world.admin.get(f"{KEYS}/app")).json
    assert shown["generation"] == 8
    assert [(g["id"], g["generation"]) for g in shown["gateways"]] == [("g1", 8), ("g2", None)]
    assert [(g["id"], g["heard_at"] is None) for g in shown["unreachable"]] == [("g3", False), ("g4", True)]
    assert [g["not_since"] is None for g in shown["unreachable"]] == [True, False]
    revoked = (await world.admin.ask("POST", f"{KEYS}/app/revoke")).json
    assert revoked["generation"] is None, "what is published is the key as it was before"
    spread["version"] = 2
    assert (await world.admin.get(f"{KEYS}/app")).json["generation"] == 8


def row(key: str, day: str, sums: UsageSums, endpoint: str = "chat") -> UsageRow:
    of = {"gateway": "g", "incarnation": "i", "namespace": "research"}
    return UsageRow(key=key, endpoint=endpoint, day=day, sums=sums, **of)


async def test_usage_is_told_by_day_and_endpoint_and_also_of_a_deleted_key(world: World) -> None:
    key = (await create(world)).json["id"]  # on 15 January 2027
    one = UsageSums(5, 1, 1, 1, 50, 20, 4)
    await world.deps.usage.keep_usage(
        [
            row(key, "2027-01-15", one),
            row(key, "2027-01-14", one),
            row(key, "2027-01-14", UsageSums(1), "embed"),
            row(key, "2026-12-01", one),
            row("key-other", "2027-01-15", one),
        ]
    )
    path = f"{KEYS}/app/usage"
    told = (await world.admin.get(path)).json
    assert (told["kind"], told["from"], told["to"], told["key_id"]) == ("Usage", "2026-12-17", "2027-01-15", key)
    assert [(i["day"], i["endpoint"], i["requests"]) for i in told["items"]] == [
        ("2027-01-14", "chat", 5),
        ("2027-01-14", "embed", 1),
        ("2027-01-15", "chat", 5),
    ]
    assert told["total"] == {
        "requests": 11,
        "answered": 5,
        "refused": 2,
        "failed": 2,
        "client_gone": 2,
        "input_tokens": 100,
        "output_tokens": 48,
        "counted_tokens": 8,
    }
    whole = (await world.admin.get(f"{path}?from=2026-12-01T00:30:00%2B00:00&bucket=total&endpoint=chat")).json
    assert [(i["endpoint"], i["requests"]) for i in whole["items"]] == [("chat", 15)]
    assert (await world.admin.get(f"{path}?from=yesterday")).status == 422
    assert (await world.admin.get(f"{path}?from=2027-02-01&to=2027-01-01")).status == 422
    assert (await world.admin.get(f"{path}?bucket=hour")).status == 422
    [listed] = (await world.admin.get(f"{KEYS}?used_from=2027-01-15")).json["items"]
    assert listed["usage"]["requests"] == 5
    await world.admin.ask("DELETE", f"{KEYS}/app")
    assert (await world.admin.get(path)).status == 404
    left = (await world.admin.get(f"{KEYS}/{key}/usage?from=2026-01-01")).json
    assert (left["key"], left["total"]["requests"]) == (None, 16)
