"""The sender of synthetic requests against real servers: what it sends, what it counts, and when it stops."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.control.evidence import EvidenceStep
from moorage.control.synthetic import SyntheticStep
from moorage.decide.serving.synthetic import kept
from moorage.domain.histogram import total
from moorage.wire.routing import Evidence, GatewayReport
from tests.integration.control.compared_world import ACTIVE, CANDIDATE, DEPLOYMENT, Compared, Model, Server
from tests.integration.control.control_plane import until

PATIENCE_S = 90.0
ANY_TIMES = {"ttft_percent": 1000, "latency_percent": 1000, "throughput_percent": 100}
"""For tests that are about something else: a busy machine may slow either server down."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Compared]:
    opened = await Compared.open(tmp_path)
    yield opened
    await opened.close()


def sender(world: Compared) -> SyntheticStep:
    return SyntheticStep(world.store, world.clock, world.http)


async def sent(world: Compared, step: SyntheticStep | None = None) -> float | None:
    async with asyncio.timeout(PATIENCE_S):
        return await (step or sender(world))(DEPLOYMENT)


async def counted(world: Compared, revision: str, least: int = 1) -> bool:
    return int(kept(await world.revision(revision)).get("requests", 0)) >= least


async def under_way(server: Server) -> bool:
    return server.model.now > 0


async def test_two_equal_revisions_get_the_same_requests_and_pass(world: Compared) -> None:
    old, new = Model(), Model()
    async with Server(old) as one, Server(new) as other:
        await world.compare(one.address, other.address, guard=ANY_TIMES)
        await sent(world)
    decision = await world.judged()
    assert decision.codes == ("within_policy",)
    assert old.bodies[1:] == new.bodies  # the first shows that the request works at all
    assert len(new.bodies) >= 20
    assert (old.most_at_once, new.most_at_once) == (1, 1)
    assert all(body["model"] == "gemma" and body["stream"] for body in new.bodies)
    record = kept(await world.revision(CANDIDATE))
    assert record["requests"] == len(new.bodies)
    assert total({int(k): v for k, v in record["throughput_milli"].items()}) == record["requests"]


async def test_a_slow_candidate_is_rejected(world: Compared) -> None:
    async with Server(Model()) as one, Server(Model(delay_s=0.5)) as other:
        await world.compare(one.address, other.address, guard={"minimum_requests": 8})
        await sent(world)
    codes = (await world.judged()).codes
    assert {"ttft_regression", "latency_regression"} <= set(codes)


async def test_a_candidate_that_fails_three_of_ten_requests_is_rejected(world: Compared) -> None:
    async with Server(Model()) as one, Server(Model(fails=(2, 5, 8))) as other:
        await world.compare(one.address, other.address)
        await sent(world)
    decision = await world.judged()
    assert "error_rate_regression" in decision.codes
    assert decision.candidate.requests < 200


async def test_a_candidate_that_lists_another_model_is_rejected(world: Compared) -> None:
    async with Server(Model()) as one, Server(Model(lists=("llama",))) as other:
        await world.compare(one.address, other.address)
        await sent(world)
    assert "compatibility_mismatch" in (await world.judged()).codes


async def test_a_request_that_fails_on_the_active_too_is_not_counted_and_tried_again(world: Compared) -> None:
    async with Server(Model(knows="another")) as one, Server(Model(knows="another")) as other:
        await world.compare(one.address, other.address, guard=ANY_TIMES)
        assert await sent(world) is not None
        decision = await world.judged()
        assert "synthetic_unproven" in decision.codes
        assert "HTTP 404" in decision.reasons[0].message
        assert (decision.active.requests if decision.active else 0, decision.candidate.requests) == (0, 0)
        one.model.knows = other.model.knows = None
        await sent(world)
    assert (await world.judged()).codes == ("within_policy",)


async def test_a_server_that_cannot_stream_is_asked_in_one_piece(world: Compared) -> None:
    async with Server(Model(streams=False)) as one, Server(Model(streams=False)) as other:
        await world.compare(one.address, other.address, guard=ANY_TIMES)
        await sent(world)
    decision = await world.judged()
    assert decision.codes == ("within_policy",)
    assert decision.not_applicable == ("output_throughput",)


async def test_a_server_that_knows_no_stream_options_is_asked_without_them(world: Compared) -> None:
    old, new = Model(usage=False), Model(usage=False)
    async with Server(old) as one, Server(new) as other:
        await world.compare(one.address, other.address)
        await sent(world)
    assert all(body["stream"] and "stream_options" not in body for body in new.bodies)


async def test_the_lines_of_the_file_are_sent_in_turn_to_both(world: Compared) -> None:
    lines = [{"path": "/v1/completions", "body": {"prompt": p, "max_tokens": 3}} for p in ("a", "b", "c")]
    old, new = Model(), Model()
    async with Server(old) as one, Server(new) as other:
        await world.compare(one.address, other.address, guard={"synthetic": lines})
        await sent(world)
    assert [body["prompt"] for body in new.bodies[:6]] == ["a", "b", "c", "a", "b", "c"]
    assert [body["prompt"] for body in old.bodies[1:7]] == ["a", "b", "c", "a", "b", "c"]


async def test_what_was_counted_before_the_control_plane_ended_stays_counted(world: Compared) -> None:
    old, new = Model(delay_s=0.1), Model(delay_s=0.1)
    async with Server(old) as one, Server(new) as other:
        await world.compare(one.address, other.address)
        first = asyncio.create_task(sent(world))
        await until(lambda: counted(world, CANDIDATE), "a first request is counted")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        before = kept(await world.revision(CANDIDATE))["requests"]
        await sent(world)
    decision = await world.judged()
    assert decision.candidate.requests >= max(20, before)
    assert len(new.bodies) <= decision.candidate.requests + 10, "it began again from nothing"


async def test_it_stops_when_the_comparison_is_over_also_in_the_middle_of_a_request(world: Compared) -> None:
    async with Server(Model()) as one, Server(Model(hangs=True)) as other:
        await world.compare(one.address, other.address)
        sending = asyncio.create_task(sent(world))
        await until(lambda: under_way(other), "a request hangs")
        await world.end()
        await sending
    assert not kept(await world.revision(CANDIDATE)).get("requests")


async def test_a_replica_that_cannot_be_reached_counts_as_nothing(world: Compared) -> None:
    gone = Server(Model())
    async with gone:
        nowhere = gone.address
    async with Server(Model()) as one:
        await world.compare(one.address, nowhere)
        sending = asyncio.create_task(sent(world))
        await until(lambda: counted(world, ACTIVE, 20), "the active one has its requests")
        await world.end()
        await sending
    assert not kept(await world.revision(CANDIDATE)).get("requests")


async def test_without_anything_to_send_nothing_is_sent(world: Compared) -> None:
    old = Model()
    async with Server(old) as one, Server(Model()) as other:
        await world.compare(one.address, other.address, model={"id": None})
        await sent(world)
    assert old.bodies == []
    assert (await world.judged()).codes == ("guard_not_applicable",)


async def test_requests_that_clients_sent_are_not_sent_again(world: Compared) -> None:
    met = [
        Evidence(evidence_id=f"{CANDIDATE}/0", deployment=DEPLOYMENT, revision=uid, requests=15, latency_us={300: 15})
        for uid in (ACTIVE, CANDIDATE)
    ]
    old, new = Model(), Model()
    async with Server(old) as one, Server(new) as other:
        await world.compare(one.address, other.address, strategy="mirror")
        intake = EvidenceStep(world.store, world.clock)
        intake.heard(GatewayReport(gateway="g", incarnation="i", evidence=tuple(met)))
        await intake(DEPLOYMENT)
        await sent(world)
    assert len(new.bodies) >= 5
    assert (await world.judged()).candidate.requests >= 20
    assert kept(await world.revision(ACTIVE))["requests"] == kept(await world.revision(CANDIDATE))["requests"]
