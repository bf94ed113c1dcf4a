"""Two revisions behind a real gateway: bad candidates harm nobody who was not given to them, switches cut nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import nullcontext

import pytest
from gateway_rig import ModelServer, Rig, Seen, get, post, reply, until
from two_revisions import (
    ACTIVE,
    ENOUGH,
    EVENTS,
    STRATEGIES,
    WORKERS,
    Load,
    bad_candidate,
    chunk,
    evidence,
    report,
    time_runs_out,
    two,
    under_load,
)

from moorage.decide.serving.among import COPIES_MAX
from moorage.decide.serving.routes import Limits, RevisionSpec, RouteSpec
from moorage.gateway.reports import Reporter


@pytest.mark.parametrize("kind", ["refuses", "hangs", "errs", "cuts"])
@pytest.mark.parametrize(
    "strategy", ["none", "mirror", *(pytest.param(s, marks=pytest.mark.slow) for s in ("header", "canary"))]
)
async def test_a_bad_candidate_fails_no_request_but_those_that_it_answered_as_a_canary(
    rig: Rig, server: ModelServer, kind: str, strategy: str
) -> None:
    async with bad_candidate(kind) as bad:
        rig.apply(two(server, bad.target("r-b", "rev-b"), STRATEGIES[strategy]))
        patience = time_runs_out(rig, "rev-b") if kind == "hangs" else nullcontext()
        async with patience, under_load(rig) as load:
            await until(lambda: len(load.of("rev-a")) >= ENOUGH)
    if strategy != "canary" or kind == "refuses":
        assert load.failed == []
        assert load.of("rev-b") == []
    else:
        # An answer that a client got from the canary is its own; not one other request failed.
        assert load.failed
        assert evidence(rig)["rev-b"].errors == len(load.failed)
        assert all(isinstance(a, str) or a.status == 504 or a in load.of("rev-b") for a in load.failed)
    if strategy in ("none", "header"):
        assert bad.seen == []
    told = evidence(rig)
    assert told["rev-a"].errors == 0
    assert told["rev-a"].requests == len(load.of("rev-a"))
    assert sum(told["rev-a"].latency_us.values()) == told["rev-a"].requests


@pytest.mark.parametrize("kind", ["refuses", "errs", "cuts"])
async def test_what_a_bad_mirror_did_is_its_evidence(rig: Rig, server: ModelServer, kind: str) -> None:
    async with bad_candidate(kind) as bad:
        rig.apply(two(server, bad.target("r-b", "rev-b"), STRATEGIES["mirror"]))
        async with under_load(rig) as load:
            await until(lambda: "rev-b" in evidence(rig) and evidence(rig)["rev-b"].errors)
        assert load.failed == []
        assert evidence(rig)["rev-a"].errors == 0


async def test_a_candidate_that_hangs_has_its_copies_counted_as_errors_and_gets_no_more_than_its_bound(
    rig: Rig, server: ModelServer
) -> None:
    async with bad_candidate("hangs") as bad:
        rig.apply(two(server, bad.target("r-b", "rev-b"), STRATEGIES["mirror"]))
        endpoint = rig.router.find("m")
        traffic = endpoint.revisions["rev-b"].traffic
        async with under_load(rig) as load:
            await until(lambda: traffic.copies_dropped >= ENOUGH)
            assert endpoint.copies == traffic.copies == COPIES_MAX
            async with time_runs_out(rig, "rev-b"):
                await until(lambda: "rev-b" in evidence(rig) and evidence(rig)["rev-b"].errors >= 3 * COPIES_MAX)
        assert load.failed == []
        async with time_runs_out(rig, "rev-b"):
            await until(lambda: endpoint.copies == 0, "no copy is left")


async def test_no_drain_waits_for_copies(rig: Rig, server: ModelServer) -> None:
    async with bad_candidate("hangs") as bad:
        rig.apply(two(server, bad.target("r-b", "rev-b"), STRATEGIES["mirror"]))
        assert (await rig.ask(post())).status == 200
        await until(lambda: bad.seen)
        rig.apply(RouteSpec("m", "serve", targets=(server.target("r-a", "rev-a"),), revisions=(ACTIVE,)))
        assert rig.router.find("m").copies == 0
        assert report(rig).endpoints[0].replicas == {}
        await until(lambda: bad.closed == bad.connections, "its connection is gone")


@pytest.fixture
async def other() -> AsyncIterator[ModelServer]:
    server = await ModelServer().start()
    yield server
    await server.stop()


async def test_a_mirror_gets_the_very_bytes_and_its_answer_reaches_nobody(
    rig: Rig, server: ModelServer, other: ModelServer
) -> None:
    async def answer(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(b"from the copy", status=500))

    other.handler = answer
    rig.apply(two(server, other.target("r-b", "rev-b"), STRATEGIES["mirror"]))
    answer_ = await rig.ask(post(extra="X-Request-Id: mine\r\nX-Trace: t\r\n", prompt="hello"))
    assert (answer_.status, answer_.body) == (200, b"ok")
    await until(lambda: other.seen)
    (own,), (copy,) = server.seen, other.seen
    assert copy.body == own.body
    assert (copy.method, copy.path, copy.headers["x-trace"]) == (own.method, own.path, "t")
    assert copy.headers["x-request-id"] == "mine-copy"
    await until(lambda: "rev-b" in evidence(rig))
    told = evidence(rig)
    assert (told["rev-b"].requests, told["rev-b"].errors) == (1, 1)
    assert (told["rev-a"].requests, told["rev-a"].errors) == (1, 0)


async def test_a_body_that_comes_in_parts_is_copied_whole_and_a_long_one_is_not_copied(
    rig: Rig, server: ModelServer, other: ModelServer
) -> None:
    rig.apply(two(server, other.target("r-b", "rev-b"), STRATEGIES["mirror"]))
    client = await rig.connect()
    client.send(b"POST /endpoints/m/echo HTTP/1.1\r\nHost: g\r\nContent-Length: 10\r\n\r\nhalf-")
    await until(lambda: server.connections, "it is on its way before it is whole")
    assert not other.seen
    client.send(b"other")
    assert (await client.answer()).status == 200
    await until(lambda: other.seen)
    assert other.seen[0].body == b"half-other" == server.seen[0].body
    long = b"x" * (300 * 1024)
    client.send(b"POST /endpoints/m/echo HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n" % len(long) + long)
    assert (await client.answer()).status == 200
    traffic = rig.router.find("m").revisions["rev-b"].traffic
    assert (traffic.copies, traffic.copies_dropped) == (1, 1)
    assert rig.router.find("m").copies == 0
    client.close()


async def test_a_copy_of_a_request_whose_client_left_before_it_was_whole_is_not_sent(
    rig: Rig, server: ModelServer, other: ModelServer
) -> None:
    rig.apply(two(server, other.target("r-b", "rev-b"), STRATEGIES["mirror"]))
    client = await rig.connect()
    client.send(b"POST /endpoints/m/echo HTTP/1.1\r\nHost: g\r\nContent-Length: 10\r\n\r\nhalf-")
    await until(lambda: rig.router.find("m").copies == 1)
    client.close()
    await until(lambda: rig.router.find("m").copies == 0)
    assert not other.seen


async def test_a_request_that_names_a_revision_gets_it_and_the_name_goes_no_further(
    rig: Rig, server: ModelServer, other: ModelServer
) -> None:
    rig.apply(two(server, other.target("r-b", "rev-b"), STRATEGIES["header"]))
    for word, revision in (("2", "rev-b"), ("1", "rev-a"), ("rev-b", "rev-b"), ("", "rev-a")):
        answer = await rig.ask(post(extra=f"X-Moorage-Revision: {word}\r\n"))
        assert (answer.status, answer.headers["x-moorage-revision"]) == (200, revision)
    assert all("x-moorage-revision" not in seen.headers for seen in (*server.seen, *other.seen))
    unknown = await rig.ask(post(extra="X-Moorage-Revision: 9\r\n"))
    assert (unknown.status, unknown.error["code"]) == (404, "revision_not_found")
    assert "1, 2" in unknown.error["message"]
    await other.stop()
    await until(lambda: other.closed == other.connections)
    dead = await rig.ask(post(extra="X-Moorage-Revision: 2\r\n"))
    assert (dead.status, dead.error["code"]) == (503, "revision_not_ready")
    assert dead.headers["retry-after"]
    assert (await rig.ask(post())).status == 200


async def test_a_promotion_under_load_fails_no_request_and_cuts_no_stream(
    rig: Rig, server: ModelServer, other: ModelServer
) -> None:
    going_on = asyncio.Event()

    async def stream(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"stream" not in seen.body:
            writer.write(reply())
            return
        writer.write(EVENTS)
        await chunk(writer, "one")
        await going_on.wait()
        await chunk(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")

    server.handler = stream
    rig.apply(two(server, other.target("r-b", "rev-b"), STRATEGIES["none"]))
    streams = [await rig.connect() for _ in range(5)]
    for client in streams:
        client.send(post(stream=True))
        assert (await client.head()).status == 200
    async with under_load(rig) as load:
        await until(lambda: len(load.of("rev-a")) >= ENOUGH)
        promoted = RouteSpec(
            "m", "serve", targets=(other.target("r-b", "rev-b"),), revisions=(RevisionSpec("rev-b", 2),)
        )
        rig.apply(promoted)
        await until(lambda: len(load.of("rev-b")) >= ENOUGH)
        told = report(rig).endpoints[0]
        assert told.replicas["r-a"] == 5
        assert told.oldest_s["r-a"] > 0
        assert "r-b" not in told.oldest_s
        assert 'endpoint="m",revision="1",code="2xx"' in (await rig.ask(get("/metrics"))).body.decode()
    assert load.failed == []
    demands: list[int] = []
    rig.gateway.hub.on_demand = lambda: demands.append(report(rig).endpoints[0].replicas.get("r-a", 0))
    going_on.set()
    for client in streams:
        assert b"[DONE]" in await asyncio.wait_for(client.reader.readuntil(b"0\r\n\r\n"), 60)
    await until(lambda: demands == [0])  # told the moment the last one ended
    assert report(rig).endpoints[0].oldest_s == {}


async def test_the_evidence_of_streams_has_their_first_byte_and_their_tokens(
    rig: Rig, server: ModelServer, other: ModelServer
) -> None:
    async def told(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS)
        for n in range(4):
            await chunk(writer, json.dumps({"n": n}))
        await chunk(writer, '{"usage": {"prompt_tokens": 3, "completion_tokens": 4000}}')
        writer.write(b"0\r\n\r\n")

    async def untold(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS)
        for n in range(4):
            await chunk(writer, json.dumps({"n": n}))
        writer.write(b"0\r\n\r\n")

    server.handler, other.handler = told, untold
    rig.apply(two(server, other.target("r-b", "rev-b"), STRATEGIES["header"]))
    hub = rig.gateway.hub
    clock = iter(range(1_000_000))
    start = hub.time()
    hub.time = lambda: start + next(clock) * 0.001
    for word in ("1", "2"):
        assert (await rig.ask(post(extra=f"X-Moorage-Revision: {word}\r\n", stream=True))).status == 200
    seen = evidence(rig)
    rates = {uid: next(iter(e.throughput_milli)) for uid, e in seen.items()}
    assert rates["rev-a"] > rates["rev-b"] + 100, "usage counts where it is told: a thousand times the events"
    for each in seen.values():
        assert sum(each.ttft_us.values()) == sum(each.latency_us.values()) == sum(each.throughput_milli.values()) == 1
        assert next(iter(each.ttft_us)) <= next(iter(each.latency_us))


async def test_evidence_is_told_once_and_again_only_when_it_changed(
    rig: Rig, server: ModelServer, other: ModelServer
) -> None:
    rig.apply(two(server, other.target("r-b", "rev-b"), STRATEGIES["header"]))
    reporter = Reporter(rig.gateway.hub, rig.gateway.config, incarnation="i", address="h:1")
    assert reporter.report(None).evidence == ()
    await rig.ask(post())
    assert reporter.due()
    assert [e.revision for e in reporter.report(None).evidence] == ["rev-a"]
    assert [e.revision for e in reporter.report(None).evidence] == ["rev-a"], "nobody answered yet"
    reporter.answered()
    assert not reporter.due()
    assert reporter.report(None).evidence == ()
    await rig.ask(post(extra="X-Moorage-Revision: 2\r\n"))
    (told,) = reporter.report(None).evidence
    assert (told.evidence_id, told.deployment, told.revision, told.requests) == ("compare-1", "dep-1", "rev-b", 1)


async def test_metrics_tell_revisions_by_number_and_only_those_there_are(
    rig: Rig, server: ModelServer, other: ModelServer
) -> None:
    for number in range(1, 30):
        active = RevisionSpec(f"rev-{number}", number)
        target = server.target(f"r-{number}", f"rev-{number}")
        rig.apply(RouteSpec("m", "serve", targets=(target,), revisions=(active,)))
        assert (await rig.ask(post())).status == 200
    text = (await rig.ask(get("/metrics"))).body.decode()
    lines = [line for line in text.splitlines() if line.startswith("moorage_gateway_revision_requests_total{")]
    assert lines == [
        'moorage_gateway_revision_requests_total{namespace="default",endpoint="m",revision="29",code="2xx"} 1'
    ]


async def test_any_ready_replica_of_the_active_revision_is_asked_while_those_of_the_other_fail(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    """skypilot-org/skypilot#4907: ready replicas exist, yet the balancer said that there are none."""
    async with bad_candidate("refuses") as bad:
        targets = (
            bad.target("r-b1", "rev-b"),
            server.target("r-a1", "rev-a"),
            bad.target("r-b2", "rev-b", worker="w"),
            second_server.target("r-a2", "rev-a"),
        )
        rig.apply(RouteSpec("m", "serve", targets=targets, revisions=(ACTIVE, STRATEGIES["canary"])))
        async with under_load(rig) as load:
            await until(lambda: len(load.of("rev-a")) >= ENOUGH)
    assert load.failed == []
    assert server.seen
    assert second_server.seen


async def test_a_replica_that_accepts_and_never_answers_keeps_nobody_from_the_others(
    rig: Rig, server: ModelServer
) -> None:
    """vllm-project/production-stack#749: one unresponsive backend blocked requests to the others."""
    async with bad_candidate("hangs") as stuck:
        rig.apply(
            RouteSpec(
                "m",
                "serve",
                targets=(stuck.target("r-1"), server.target("r-2")),
                limits=Limits(max_in_flight=2, queue_timeout_s=600.0),
            )
        )
        load = Load(rig)
        asking = [asyncio.create_task(load.ask_on()) for _ in range(WORKERS)]
        await until(lambda: len(load.answers) >= ENOUGH)
        assert load.failed == []
        assert len(stuck.seen) == 2, "what it may have in flight, and no more"
        load.ending = True
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_a_replica_that_is_scaled_away_is_told_with_its_stream_until_that_ends(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    """ai-dynamo/dynamo#13559: a downscale aborted all streams five seconds after SIGTERM."""
    going_on = asyncio.Event()

    async def stream(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS)
        await chunk(writer, "one")
        await going_on.wait()
        await chunk(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")

    server.handler = second_server.handler = stream
    rig.serve(server, second_server)
    clients = [await rig.connect() for _ in range(2)]
    for client in clients:
        client.send(post(stream=True))
        assert (await client.head()).status == 200
    assert report(rig).endpoints[0].replicas == {"r-0": 1, "r-1": 1}
    rig.serve(server)
    for _ in range(3):  # other tables come while it drains
        rig.serve(server)
    told = report(rig).endpoints[0]
    assert told.replicas == {"r-0": 1, "r-1": 1}
    assert set(told.oldest_s) == {"r-1"}
    going_on.set()
    for client in clients:
        assert b"[DONE]" in await asyncio.wait_for(client.reader.readuntil(b"0\r\n\r\n"), 60)
    await until(lambda: report(rig).endpoints[0].replicas == {})
