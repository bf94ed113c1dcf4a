"""A revoke is over when the gateways in reach go by it; one that does not is waited for, one out of reach is named."""

from pathlib import Path
from typing import Any

from moorage.app.server import RandomIds
from moorage.client.key_wait import judge_key
from moorage.client.waiting import Done, KeepPolling
from moorage.control.gateways import LEASE_S
from moorage.control.keys import Keys
from moorage.wire.key import KeyBody
from moorage.wire.routing import RoutingTable
from tests.integration.control.control_plane import Gateway, HandClock, Plane, until


def keys_of(plane: Plane) -> Keys:
    return Keys(plane.store, plane.clock, RandomIds(), usage=plane.store, spread=plane.publisher.spread)


async def shown(plane: Plane) -> dict[str, Any]:
    return await keys_of(plane).get("default", "app")


async def table_with(plane: Plane, *names: str) -> RoutingTable:
    """The first table that lists just these keys."""

    async def ask() -> RoutingTable | None:
        table = await plane.publisher.table(None, -1, 1.0)
        listed = tuple(key.name for key in table.access.keys) if table and table.access else ()
        return table if listed == names else None

    return await until(ask, f"keys {names}")


async def test_a_revoke_is_over_when_every_gateway_in_reach_has_confirmed_a_table_without_the_key(
    tmp_path: Path,
) -> None:
    plane = await Plane.open(tmp_path, HandClock())
    keys, first, second = keys_of(plane), Gateway(plane, "gw-1"), Gateway(plane, "gw-2")
    await keys.create("default", KeyBody(name="app"), actor="person:p", key=None)
    before = await table_with(plane, "app")
    for gateway in (first, second):
        await gateway.report(before)
    assert isinstance(judge_key(await shown(plane)), Done)
    revoked = await keys.revoke("default", "app", text=None, actor="person:p", key=None)
    assert isinstance(judge_key(revoked), KeepPolling)
    after = await table_with(plane)
    assert isinstance(judge_key(await shown(plane)), KeepPolling), "nobody has confirmed it"
    await first.report(after)
    waits = judge_key(await shown(plane))
    assert isinstance(waits, KeepPolling)
    assert "gw-2" in waits.why
    assert "gw-1" not in waits.why
    plane.clock.advance(LEASE_S / 2)
    await first.report(after)
    plane.clock.advance(LEASE_S / 2 + 1)
    away = await shown(plane)
    assert isinstance(judge_key(away), Done), "one that is out of reach is not waited for"
    assert [gateway["id"] for gateway in away["unreachable"]] == ["gw-2"], "and it is named"
    await second.report(after)
    back = await shown(plane)
    assert back["unreachable"] == []
    assert isinstance(judge_key(back), Done)
    await plane.die()


async def test_after_a_restart_a_revoke_waits_for_the_gateways_that_were_known_before(tmp_path: Path) -> None:
    clock = HandClock()
    plane = await Plane.open(tmp_path, clock)
    gateway = Gateway(plane, "gw-1")
    keys = keys_of(plane)
    await keys.create("default", KeyBody(name="app"), actor="person:p", key=None)
    await gateway.report(await table_with(plane, "app"))
    await plane.die()
    other = await Plane.open(tmp_path, clock)
    await keys_of(other).revoke("default", "app", text=None, actor="person:p", key=None)
    after = await table_with(other)
    seen = await shown(other)
    assert isinstance(judge_key(seen), KeepPolling), "a gateway that was known may still go by what it had"
    await Gateway(other, "gw-1").report(after)
    assert isinstance(judge_key(await shown(other)), Done)
    await other.die()
