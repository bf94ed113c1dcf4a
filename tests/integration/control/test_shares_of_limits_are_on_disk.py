"""Shares of limits are on disk before they are told, and only a control plane that surely leads tells them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage.control.leader import TTL_S, Leadership
from moorage.control.namespaces import Namespaces
from moorage.control.slices import PREFIX, SHRUNK_S, Slices
from moorage.store import open_store
from moorage.store.store import SqlStore
from moorage.wire.namespace import Limits
from moorage.wire.routing import GatewayReport, GatewayReportAnswer, RateLimits, SliceWant
from tests.integration.control.control_plane import HandClock, Plane, until

SUBJECT, RESOURCE = "key/k-1", "requests_per_minute"


@dataclass
class Leads:
    certain: bool = True


@dataclass
class Gateway:
    """Says what a gateway would say, and keeps to what it is told."""

    id: str
    incarnation: str = "i-1"
    share: int = 0
    used: int = 0
    sequence: int = 0
    epoch: str = ""

    async def report(self, slices: Slices, wanted: int = 0, *, leaving: bool = False) -> GatewayReportAnswer:
        self.sequence += 1
        want = SliceWant(subject=SUBJECT, resource=RESOURCE, share=self.share, used=self.used, wanted=wanted)
        answer = await slices.answer(
            GatewayReport(
                gateway=self.id,
                incarnation=self.incarnation,
                wants=(want,),
                sequence=self.sequence,
                slices_epoch=self.epoch,
                leaving=leaving,
            ),
            GatewayReportAnswer(),
        )
        if answer.slices_epoch:
            self.epoch = answer.slices_epoch
            self.share = answer.slices[0].share if answer.slices else 0
        return answer


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def store(tmp_path: Path, clock: HandClock) -> AsyncIterator[SqlStore]:
    store = await open_store(f"sqlite:///{tmp_path}/m.db", clock)
    yield store
    await store.close()


async def ledger(store: SqlStore, clock: HandClock, leads: Leads | None = None, generation: int = 1) -> Slices:
    def limits(subject: str) -> RateLimits | None:
        return RateLimits(requests_per_minute=10) if subject == SUBJECT else None

    slices = Slices(store, clock, leads or Leads(), limits)
    await slices.start(generation)
    return slices


async def test_a_restart_counts_what_was_told_before_it(store: SqlStore, clock: HandClock) -> None:
    one, two = Gateway("g-1"), Gateway("g-2")
    await one.report(await ledger(store, clock), wanted=10)
    assert one.share == 10
    again = await ledger(store, clock, generation=2)
    await two.report(again, wanted=10)
    assert two.share == 0
    clock.advance(599.0)
    await two.report(again, wanted=10)
    assert two.share == 0
    clock.advance(62.0)
    await two.report(again, wanted=10)
    assert two.share == 10


async def test_nothing_is_written_when_nothing_changed_and_what_shrank_is_written_in_time(
    store: SqlStore, clock: HandClock
) -> None:
    one, slices = Gateway("g-1"), await ledger(store, clock)
    await one.report(slices, wanted=10)
    before = await store.secrets(PREFIX)
    for _ in range(3):
        clock.advance(1.0)
        await one.report(slices)
    assert await store.secrets(PREFIX) == before
    two = Gateway("g-2")
    await two.report(slices, wanted=3)
    await one.report(slices)  # is told less
    await one.report(slices)  # confirms it
    await two.report(slices, wanted=3)
    assert (one.share + two.share, two.share) == (10, 5)
    clock.advance(SHRUNK_S)
    await one.report(slices)
    rows = await store.secrets(PREFIX)
    assert '"requests_per_minute", 5]' in rows[f"{PREFIX}g-1"]
    assert '"requests_per_minute", 5]' in rows[f"{PREFIX}g-2"]


async def test_a_control_plane_that_does_not_surely_lead_tells_nothing_and_renews_nothing(
    store: SqlStore, clock: HandClock
) -> None:
    leads, one = Leads(), Gateway("g-1")
    slices = await ledger(store, clock, leads)
    leads.certain = False
    answer = await one.report(slices, wanted=1)
    assert (answer.slices, answer.slices_epoch) == ((), "")
    assert await store.secrets(PREFIX) == {}


async def test_one_that_lost_the_lease_unnoticed_writes_nothing_over_its_successors_rows(
    store: SqlStore, clock: HandClock
) -> None:
    one, two = Gateway("g-1"), Gateway("g-2")
    old, new = await ledger(store, clock), await ledger(store, clock, generation=2)
    await one.report(new, wanted=10)
    told = await store.secrets(PREFIX)
    answer = await Gateway("g-1", incarnation="i-0").report(old, wanted=3)
    assert answer.slices == ()
    assert await store.secrets(PREFIX) == told
    await two.report(old, wanted=10)  # having read again, it knows what the other one told
    assert two.share == 0


async def test_a_goodbye_leaves_what_was_used_and_takes_its_row_away_once_that_is_forgotten(
    store: SqlStore, clock: HandClock
) -> None:
    one, two, slices = Gateway("g-1"), Gateway("g-2"), await ledger(store, clock)
    await one.report(slices, wanted=4)
    one.used, one.share = 4, 0
    await one.report(slices, leaving=True)
    await two.report(slices, wanted=10)
    assert two.share == 6
    clock.advance(62.0)
    await two.report(slices, wanted=10)
    await two.report(slices, wanted=10)
    assert two.share == 10
    clock.advance(700.0)
    await two.report(slices)
    assert list(await store.secrets(PREFIX)) == [f"{PREFIX}g-2"]


async def test_a_leader_is_certain_only_while_its_own_clock_says_that_the_lease_holds(
    store: SqlStore, clock: HandClock
) -> None:
    leadership = Leadership(store, clock, "home:a")
    leading = asyncio.Event()

    async def lead(fence: object) -> None:
        leading.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(leadership.lead(lead))
    async with asyncio.timeout(60.0):
        await leading.wait()
    assert leadership.certain
    clock._now += TTL_S  # it was stopped for so long, and has not woken up yet
    assert not leadership.certain
    clock._now -= TTL_S
    await leadership.step_down()
    assert not leadership.certain
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_quota_of_requests_is_published_at_once_shared_out_and_shown_with_what_passed(
    tmp_path: Path, clock: HandClock
) -> None:
    plane = await Plane.open(tmp_path, clock, lead=False)
    slices = plane.publisher.slices = Slices(plane.store, clock, plane.leadership, plane.publisher.limits)
    plane.lead()
    namespaces = Namespaces(plane.store, clock, passed=slices.used)
    await namespaces.set_quota("research", Limits(requests_per_minute=6), actor="person:p", key=None)

    async def published() -> bool:
        table = await plane.publisher.table(None, -1, 0.0)
        rules = table.access.namespaces if table is not None and table.access is not None else ()
        return [(r.namespace, r.limits.requests_per_minute) for r in rules] == [("research", 6)]

    await until(published, "gateways are told of the quota")
    table = await plane.publisher.table(None, -1, 0.0)
    assert table is not None
    assert table.access is not None
    rules = table.access.number
    again = await plane.publisher.table(table.incarnation, -1, 0.0, rules)
    assert again is not None
    assert again.access is None  # that gateway has these rules
    for incarnation, number in ((table.incarnation, rules - 1), ("another", rules)):
        told_anew = await plane.publisher.table(incarnation, -1, 0.0, number)
        assert told_anew is not None
        assert told_anew.access == table.access
    report = GatewayReport(
        gateway="g-1",
        incarnation="i-1",
        sequence=1,
        wants=(SliceWant(subject="namespace/research", resource="requests_per_minute", used=0, wanted=1),),
    )
    (told,) = (await plane.publisher.report(report)).slices
    assert (told.limit, told.share) == (6, 6)
    spent = report.wants[0].model_copy(update={"share": 6, "used": 4, "wanted": 0})
    await plane.publisher.report(report.model_copy(update={"sequence": 2, "wants": (spent,)}))
    quota = await namespaces.quota("research")
    assert (quota["used"]["requests_per_minute"], quota["limits"]["requests_per_minute"]) == (4, 6)
    await namespaces.remove_quota("research", actor="person:p", key=None)

    async def lifted() -> bool:
        table = await plane.publisher.table(None, -1, 0.0)
        return table is not None and table.access is not None and not table.access.namespaces

    await until(lifted, "gateways are told that it is lifted")
    await plane.die()
