"""What gateways report becomes evidence: of the comparison under way, the last word of a source, seldom written."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.control.evidence import EVERY_S, SOURCES_MAX, EvidenceBook, EvidenceStep
from moorage.decide.serving.evidence import Seen, compared
from moorage.domain.errors import StaleVersion
from moorage.domain.nouns import Deployment, Revision
from moorage.wire.routing import Evidence, GatewayReport
from tests.integration.control.compared_world import ACTIVE, CANDIDATE, DEPLOYMENT, EVIDENCE, Compared


class MovedClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.at = 1_800_000_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps here")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Compared]:
    opened = await Compared.open(tmp_path)
    await opened.compare("127.0.0.1:1", "127.0.0.1:2", strategy="canary")
    yield opened
    await opened.close()


def said(
    requests: int, revision: str = CANDIDATE, *, evidence: str = EVIDENCE, incarnation: str = "i"
) -> GatewayReport:
    one = Evidence(evidence_id=evidence, deployment=DEPLOYMENT, revision=revision, requests=requests, errors=1)
    return GatewayReport(gateway="gw", incarnation=incarnation, evidence=(one,))


async def met(world: Compared, revision: str = CANDIDATE) -> int:
    return compared((await world.revision(revision)).evidence, "canary").requests


async def test_sums_of_one_source_replace_each_other_and_those_of_two_are_added(world: Compared) -> None:
    step = EvidenceStep(world.store, MovedClock())
    step.heard(said(3))
    step.heard(said(5))
    step.heard(said(4, incarnation="after a restart"))
    step.heard(said(9, ACTIVE))
    await step(DEPLOYMENT)
    assert (await met(world), await met(world, ACTIVE)) == (9, 9)


async def test_one_deployment_is_written_once_a_second_and_nothing_is_lost_meanwhile(world: Compared) -> None:
    clock, told = MovedClock(), list[str]()
    step = EvidenceStep(world.store, clock, told.append)
    step.heard(said(1))
    await step(DEPLOYMENT)
    step.heard(said(2))
    again = await step(DEPLOYMENT)
    assert again == pytest.approx(clock.now() + EVERY_S)
    assert (await met(world), told) == (1, [DEPLOYMENT])
    clock.at += EVERY_S
    assert await step(DEPLOYMENT) is None
    assert (await met(world), told) == (2, [DEPLOYMENT] * 2)


async def test_what_belongs_to_another_comparison_is_not_counted(world: Compared) -> None:
    step = EvidenceStep(world.store, MovedClock())
    step.heard(said(7, evidence="an older one"))
    step.heard(said(7, "rev-of-somebody-else"))
    await step(DEPLOYMENT)
    await world.end()
    step.heard(said(8))
    await step(DEPLOYMENT)
    assert await met(world) == 0
    assert not list(await step.everything())


async def test_a_report_that_could_not_be_written_is_kept(world: Compared) -> None:
    step = EvidenceStep(world.store, MovedClock())
    step.heard(said(6))
    book = EvidenceBook(world.store)
    found = await book.comparison(DEPLOYMENT)
    assert found is not None
    stale = found[2][CANDIDATE]
    await step(DEPLOYMENT)
    with pytest.raises(StaleVersion):
        await book.write([(stale, {"synthetic": Seen(requests=1).to_wire()})], None)
    assert await met(world) == 6


async def test_the_same_again_writes_nothing(world: Compared) -> None:
    clock, told = MovedClock(), list[str]()
    step = EvidenceStep(world.store, clock, told.append)
    for _ in range(3):
        step.heard(said(6))
        await step(DEPLOYMENT)
        clock.at += 2 * EVERY_S
    assert told == [DEPLOYMENT]


async def test_sources_of_one_revision_are_bounded(world: Compared) -> None:
    step = EvidenceStep(world.store, MovedClock())
    for number in range(SOURCES_MAX + 20):
        step.heard(said(1, incarnation=str(number)))
    await step(DEPLOYMENT)
    assert len((await world.revision(CANDIDATE)).evidence) == SOURCES_MAX


async def test_a_deployment_that_is_gone_leaves_nothing_behind(world: Compared) -> None:
    step = EvidenceStep(world.store, MovedClock())
    lost = Evidence(evidence_id="e", deployment="dep-gone", revision="r", requests=1)
    step.heard(GatewayReport(gateway="gw", incarnation="i", evidence=(lost,)))
    assert await world.store.get(Deployment, "dep-gone") is None
    assert await step("dep-gone") is None
    assert not list(await step.everything())
    assert await world.store.find(Revision, deployment="dep-gone") == []
