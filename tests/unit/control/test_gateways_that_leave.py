"""A gateway that says goodbye is waited for no longer; one that retires counts beside its successor until then."""

import json
from typing import cast

from moorage.control.gateways import FORGOTTEN_S, KEPT_S, KNOWN, LEASE_S, Aside, Gateways
from moorage.ports import Clock, Store
from moorage.wire.routing import EndpointActivity, GatewayReport, PutAside


class Secrets:
    """The part of a store that is used."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    async def secret(self, name: str) -> str | None:
        return self.kept.get(name)

    async def put_secret(self, name: str, text: str) -> None:
        self.kept[name] = text


class Monotonic:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> float:
        return 1_800_000_000.0 + self.seconds


def report(gateway: str, life: str, number: int, in_flight: int = 0, *, leaving: bool = False) -> GatewayReport:
    activity = EndpointActivity(name="m", in_flight=in_flight, replicas={"r": in_flight} if in_flight else {})
    return GatewayReport(
        gateway=gateway,
        incarnation=life,
        table_incarnation="s",
        table_number=number,
        endpoints=(activity,),
        leaving=leaving,
    )


async def registry(secrets: Secrets, clock: Monotonic) -> Gateways:
    found = Gateways(cast(Store, secrets), cast(Clock, clock), "s")
    await found.load()
    return found


async def test_a_process_that_retires_counts_beside_its_successor_until_its_goodbye() -> None:
    gateways = await registry(Secrets(), Monotonic())
    await gateways.heard(report("g", "old", 3, in_flight=2))
    await gateways.heard(report("g~2", "new", 4, in_flight=1))
    assert gateways.demand("default", "m").by_replica == {"r": 3}
    assert not gateways.confirmed(4), "the one that retires may still send requests by its table"
    news = await gateways.heard(report("g", "old", 3, leaving=True))
    assert news.endpoints == {("default", "m")}
    assert news.previous == 3
    assert gateways.demand("default", "m").by_replica == {"r": 1}
    assert gateways.confirmed(4)


async def test_a_restarted_control_plane_does_not_wait_for_one_that_said_goodbye() -> None:
    secrets, clock = Secrets(), Monotonic()
    gateways = await registry(secrets, clock)
    await gateways.heard(report("g", "old", 3))
    await gateways.heard(report("g~2", "new", 3))
    await gateways.heard(report("g", "old", 3, leaving=True))
    assert list(json.loads(secrets.kept[KNOWN])) == ["g~2"]
    again = await registry(secrets, clock)
    assert not again.known()
    await again.heard(report("g~2", "new", 3))
    assert again.known()


async def test_a_report_that_comes_after_its_goodbye_is_not_taken_for_life() -> None:
    clock = Monotonic()
    gateways = await registry(Secrets(), clock)
    await gateways.heard(report("g", "old", 3, leaving=True))
    await gateways.heard(report("g", "old", 3, in_flight=5))
    assert gateways.live() == []
    await gateways.heard(report("g", "next", 4))
    await gateways.heard(report("g", "old", 3, leaving=True))
    assert [(g.id, g.incarnation) for g in gateways.live()] == [("g", "next")]


def tells(gateway: str, *processes: str) -> GatewayReport:
    return report(gateway, f"life of {gateway}", 3).model_copy(update={"processes": processes})


async def test_processes_that_ended_while_the_control_plane_was_away_are_forgotten_once_one_of_theirs_tells() -> None:
    secrets, clock = Secrets(), Monotonic()
    before = await registry(secrets, clock)
    for gateway in ("vm/1", "vm/2", "vm/1~2", "vm/2~2", "vmx/1", "other"):
        await before.heard(report(gateway, f"life of {gateway}", 3))
    again = await registry(secrets, clock)
    await again.heard(tells("vm/1~3", "vm/1~3", "vm/2~2"))
    assert list(json.loads(secrets.kept[KNOWN])) == ["other", "vm/1~3", "vm/2~2", "vmx/1"]
    for gateway in ("vm/2~2", "vmx/1", "other"):
        assert not again.known()
        await again.heard(report(gateway, f"life of {gateway}", 3))
    assert again.confirmed(3), "nobody waits for those that ended"
    clock.seconds += LEASE_S + 1.0
    assert [gateway.id for gateway in again.silent()] == ["other", "vm/1~3", "vm/2~2", "vmx/1"]


async def test_a_list_of_processes_ends_none_whose_lease_is_good_and_none_where_it_is_not_of_this_one() -> None:
    secrets, clock = Secrets(), Monotonic()
    gateways = await registry(secrets, clock)
    await gateways.heard(report("vm/1", "a", 3))
    await gateways.heard(tells("vm/2", "vm/2"))
    assert [g.id for g in gateways.live()] == ["vm/1", "vm/2"], "it may be newer than the list"
    clock.seconds += LEASE_S + 1.0
    await gateways.heard(tells("vm/2", "vm/3"))
    await gateways.heard(tells("vm/2"))
    assert [gateway.id for gateway in gateways.silent()] == ["vm/1"]
    await gateways.heard(tells("vm/2", "vm/2"))
    assert gateways.silent() == ()


async def test_one_that_is_killed_blocks_until_its_lease_is_over() -> None:
    clock = Monotonic()
    gateways = await registry(Secrets(), clock)
    await gateways.heard(report("g", "old", 3))
    await gateways.heard(report("g~2", "new", 4))
    clock.seconds += LEASE_S + 0.1
    await gateways.heard(report("g~2", "new", 4))
    assert gateways.confirmed(4)


async def test_what_a_gateway_put_aside_is_told_with_the_time_that_is_left_and_ends_with_it() -> None:
    clock = Monotonic()
    gateways = await registry(Secrets(), clock)
    aside = (
        PutAside(replica="r", why="bad_answers", tried_in_s=4.0, bad=6, answered="503", of=3),
        PutAside(replica="q", why="another_model"),
    )
    told = report("g", "life", 3).model_copy(update={"endpoints": (EndpointActivity(name="m", aside=aside),)})
    await gateways.heard(told)
    clock.seconds += 1.5
    assert gateways.aside("default", "m") == [
        Aside("g", "q", "another_model", None),
        Aside("g", "r", "bad_answers", 2.5, 6, "503", 3),
    ]
    clock.seconds += 10.0
    assert gateways.aside("default", "m")[1].tried_in_s == 0.0
    clock.seconds += LEASE_S
    assert gateways.aside("default", "m") == []


async def test_when_a_gateway_was_heard_last_is_known_over_a_restart_of_the_control_plane() -> None:
    secrets, clock = Secrets(), Monotonic()
    gateways = await registry(secrets, clock)
    await gateways.heard(report("g", "life", 3))
    await gateways.heard(report("h", "life", 3))
    clock.seconds += KEPT_S
    await gateways.heard(report("h", "life", 3))
    clock.seconds += 3600.0
    again = await registry(secrets, clock)
    clock.seconds += LEASE_S + 1.0
    await again.heard(report("h", "life", 3))
    (silent,) = again.silent()
    assert (silent.id, silent.silent_s) == ("g", KEPT_S + 3600.0 + LEASE_S + 1.0)
    clock.seconds += FORGOTTEN_S
    assert [gateway.id for gateway in (await registry(secrets, clock)).silent()] == [], "not before its lease is over"
    later = await registry(secrets, clock)
    clock.seconds += LEASE_S + 1.0
    assert later.silent() == (), "it counts from its last word, and not from each start of the control plane"


async def test_of_a_gateway_known_by_its_id_alone_is_told_that_it_was_not_heard_since_the_start() -> None:
    secrets, clock = Secrets(), Monotonic()
    secrets.kept[KNOWN] = json.dumps(["g"])  # as it was written before
    gateways = await registry(secrets, clock)
    clock.seconds += LEASE_S + 1.0
    assert [(one.id, one.silent_s, one.started_s) for one in gateways.silent()] == [("g", None, LEASE_S + 1.0)]


async def test_clients_are_told_the_url_of_the_youngest_process_of_the_gateway() -> None:
    clock = Monotonic()
    gateways = await registry(Secrets(), clock)
    assert gateways.url("vm") is None

    async def heard(gateway: str, life: str, url: str | None) -> None:
        await gateways.heard(report(gateway, life, 3).model_copy(update={"url": url}))

    await heard("vm", "old", "http://box:7421")
    clock.seconds += 1.0
    await heard("vm~2", "new", "https://box:7421")
    await heard("vmx", "other", "http://elsewhere")
    clock.seconds += 1.0
    await heard("vm", "old", "http://box:7421")
    assert gateways.url("vm") == "https://box:7421"
    clock.seconds += LEASE_S + 1.0
    await heard("vm~2", "new", None)
    assert gateways.url("vm") is None
