"""Clients' keys over HTTP: the text is told once and kept nowhere; what is set is kept with its history."""

import hashlib
from typing import Any

from conftest import World

from moorage.domain.nouns import Key

KEYS = "/api/v1/namespaces/research/keys"


async def create(world: World, **body: Any) -> Any:
    return await world.admin.ask("POST", KEYS, body={"name": "app", **body})


async def test_the_text_of_a_key_is_told_once_and_only_its_digest_is_kept(world: World) -> None:
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


async def test_what_no_key_can_have_is_refused(world: World) -> None:
    for body in ({"limits": {"in_flight": 0}}, {"expires_in_s": -1}, {"endpoint": ["x"]}, {"name": "No Name"}):
        assert (await create(world, **body)).status == 422


async def test_history_tells_all_that_a_change_of_a_key_changed(world: World) -> None:
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
