"""Drives over HTTP: where each lies is decided once, and one that is used is not forgotten."""

from typing import Any

import pytest
from api_world import World

from moorage.domain.nouns import Machine, Run
from moorage.domain.reasons import reason

DRIVES = "/api/v1/namespaces/default/drives"
GIB = 1 << 30


async def machine(world: World, name: str, free: int, site: str | None = None) -> None:
    labels = {"moorage/site": site} if site else {}
    data = {"path": f"/data/{name}", "total_bytes": 100 * GIB, "free_bytes": free}
    row = Machine(uid=f"mch-{name}", name=name, labels=labels, data=data)
    await world.rows.create(row, reason("machine.joined"))


async def make(world: World, name: str = "data", **fields: Any) -> Any:
    body = {"kind": "Drive", "name": name, "size": "10GiB", **fields}
    return await world.admin.ask("PUT", f"{DRIVES}/{name}", body=body)


async def test_a_drive_is_put_where_the_most_room_is_and_stays_there(world: World) -> None:
    await machine(world, "small", 20 * GIB)
    await machine(world, "big", 50 * GIB)
    made = (await make(world)).json
    assert (made["machine"], made["path"], made["size"]) == ("big", "/data/big/drives/default/data", 10 * GIB)
    assert (await make(world)).json["version"] == 1, "the same again changes nothing"
    assert (await make(world, size="20GiB")).json["version"] == 2
    moved = await make(world, machine="small")
    assert (moved.status, moved.json["code"]) == (409, "drive_lies_elsewhere")
    assert [d["name"] for d in (await world.admin.get(DRIVES)).json["items"]] == ["data"]


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"size": "60GiB"}, 409, "bytes are free"),
        ({"site": "bergen"}, 409, "it is not in the site bergen"),
        ({"machine": "nowhere"}, 422, "there is no machine nowhere"),
        ({"name": "other"}, 422, "not the drive default/data"),
        ({"colour": "red"}, 422, "colour"),
    ],
)
async def test_what_cannot_be_kept_is_refused_with_the_cause(
    world: World, fields: dict[str, Any], status: int, said: str
) -> None:
    await machine(world, "big", 50 * GIB, "oslo")
    answer = await world.admin.ask("PUT", f"{DRIVES}/data", body={"name": "data", "size": "10GiB", **fields})
    assert answer.status == status
    assert said in answer.json["message"]


async def test_a_drive_that_is_used_is_not_forgotten(world: World) -> None:
    await machine(world, "big", 50 * GIB)
    await make(world)
    spec = {"groups": [{"name": "worker"}], "drives": [{"name": "data", "target": "/data", "place": True}]}
    run = Run(uid="run-1", name="train", spec=spec)
    await world.rows.create(run, reason("run.created"))
    refused = await world.admin.ask("DELETE", f"{DRIVES}/data")
    assert (refused.status, refused.json["code"]) == (409, "drive_in_use")
    assert "Run train" in refused.json["message"]
    await world.rows.step(run, ("Cancelled", "cancelled"), why=reason("run.cancelled"))
    gone = await world.admin.ask("DELETE", f"{DRIVES}/data")
    assert (gone.status, gone.json["path"]) == (200, "/data/big/drives/default/data")
    assert (await world.admin.get(f"{DRIVES}/data")).status == 404


async def test_a_copy_is_passed_on_as_it_comes_and_a_broken_one_breaks(world: World) -> None:
    relay = world.deps.copies

    async def sent(*parts: bytes | Exception) -> Any:
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield part

    async def passed(*parts: bytes | Exception) -> bytes:
        import asyncio

        pieces = relay.fetch("mch-big", "default", "data")
        receiving = asyncio.ensure_future(_joined(pieces))
        while not relay.pending("mch-big"):
            await asyncio.sleep(0)
        wish = relay.pending("mch-big")[0]
        sending = asyncio.gather(relay.pass_on("mch-big", wish.id, sent(*parts)), return_exceptions=True)
        try:
            return await receiving
        finally:
            await sending
            assert relay.pending("mch-big") == ()

    assert await passed(b"one", b"", b"two") == b"onetwo"
    with pytest.raises(Exception, match="broke off"):
        await passed(b"one", ConnectionError("gone"))
    with pytest.raises(Exception, match="nobody waits"):
        await relay.pass_on("mch-big", "unknown", sent(b"x"))


async def _joined(pieces: Any) -> bytes:
    return b"".join([piece async for piece in pieces])
