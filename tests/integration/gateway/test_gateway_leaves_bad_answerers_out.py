"""A replica that answers badly in a row is left out, is seen to be, and comes back."""

import asyncio
import time
from pathlib import Path

import pytest
from gateway_rig import ModelServer, Rig, Seen, get, post, running_gateway, until
from test_gateway_and_its_control_plane import ControlPlane, table

from moorage.decide.serving.ejection import BAD_ANSWERS, BARRED_MIN_S
from moorage.decide.serving.routes import Limits, RouteSpec
from moorage.gateway.reports import Reporter
from moorage.wire.routing import GatewayLimits, PutAside

ENOUGH = 16 * BAD_ANSWERS
"""Requests, of which a replica of three gets far more than it may answer badly."""
SLOWED = 20


class Fault:
    """What a model server does in place of an answer, until it is mended."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def __call__(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if self.kind == "reset":
            writer.transport.abort()
            return False
        if self.kind == "hang":
            await reader.read()  # until the gateway gives up
            return False
        status = int(self.kind)
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nno" % status)
        return True


async def ejected(rig: Rig) -> set[str]:
    """The replicas that the metrics tell as put aside."""
    text = (await rig.ask(get("/metrics"))).body.decode()
    lines = [line for line in text.splitlines() if line.startswith("moorage_gateway_replica_ejected{")]
    return {line.partition('replica="')[2].partition('"')[0] for line in lines if line.endswith(" 1")}


@pytest.mark.parametrize(
    ("kind", "status", "allowed"),
    [("503", 503, BAD_ANSWERS), ("500", 500, 2 * BAD_ANSWERS), ("reset", 502, BAD_ANSWERS), ("hang", 504, BAD_ANSWERS)],
)
async def test_bad_answers_in_a_row_end_it_and_a_good_one_brings_it_back(
    tmp_path: Path, server: ModelServer, second_server: ModelServer, kind: str, status: int, allowed: int
) -> None:
    plane = await ControlPlane().start()
    third = await ModelServer().start()
    seen = table(1, server, second_server, third)
    route = seen.endpoints[0].model_copy(update={"limits": GatewayLimits(first_byte_timeout_s=0.4 / SLOWED)})
    plane.publish(seen.model_copy(update={"endpoints": (route,)}))
    added_s = time.monotonic()
    async with running_gateway(tmp_path, server_url=plane.url) as rig:
        rig.gateway.hub.time = lambda: time.monotonic() / SLOWED + added_s  # no second passes unasked
        await until(lambda: rig.router.generation)
        server.handler = Fault(kind)
        answers = [(await rig.ask(post())).status for _ in range(ENOUGH)]
        assert sorted(set(answers)) == [200, status]
        assert answers.count(status) == len(server.seen) == allowed
        assert await ejected(rig) == {"r0"}
        await until(lambda: told(plane) == [("r0", "bad_answers")])
        seen_aside = plane.reports[-1].endpoints[0].aside[0]
        last = {"hang": "timeout"}.get(kind, kind)
        assert (seen_aside.bad, seen_aside.answered, seen_aside.of) == (allowed, last, 3)
        waits_s = plane.reports[-1].endpoints[0].aside[0].tried_in_s
        assert waits_s is not None
        assert 0.0 <= waits_s <= BARRED_MIN_S

        added_s += BARRED_MIN_S
        answers = [(await rig.ask(post())).status for _ in range(ENOUGH)]
        assert answers.count(status) == 1, "it is tried by one request, and put aside for longer"

        server.handler = ModelServer().handler
        added_s += 2 * BARRED_MIN_S
        before = len(server.seen)
        assert {(await rig.ask(post())).status for _ in range(ENOUGH)} == {200}
        assert len(server.seen) - before > 1
        assert await ejected(rig) == set()
        await until(lambda: told(plane) == [])
    await third.stop()
    await plane.server.stop()


def told(plane: ControlPlane) -> list[tuple[str, str]] | None:
    """What the last report says is put aside, and why; None before the first."""
    last = plane.reports[-1].endpoints if plane.reports else ()
    return [(each.replica, each.why) for each in last[0].aside] if last else None


async def test_bad_answers_of_most_replicas_leave_half_of_them_in_use(rig: Rig) -> None:
    servers = [await ModelServer(Fault("503") if n else ModelServer().handler).start() for n in range(4)]
    rig.serve(*servers)
    for _ in range(3 * ENOUGH):
        await rig.ask(post())
    assert len(await ejected(rig)) == 2
    before = [len(server.seen) for server in servers]
    answers = [(await rig.ask(post())).status for _ in range(ENOUGH)]
    used = [len(server.seen) > count + 1 for server, count in zip(servers, before, strict=True)]  # a try is no use
    assert used.count(True) == 2
    assert set(answers) == {200, 503}
    for server in servers:
        await server.stop()


@pytest.mark.parametrize("kind", ["503", "reset"])
async def test_the_only_one_that_answers_badly_is_kept_and_told_until_it_answers_well(rig: Rig, kind: str) -> None:
    server = await ModelServer(Fault(kind)).start()
    rig.serve(server)
    reporter = Reporter(rig.gateway.hub, rig.gateway.config, incarnation="i", address="a")
    for _ in range(BAD_ANSWERS - 1):
        await rig.ask(post())
    assert reporter.report(None).endpoints[0].aside == ()
    for _ in range(3):
        await rig.ask(post())
    (kept,) = reporter.report(None).endpoints[0].aside
    assert kept == PutAside(replica=kept.replica, why="kept_bad", bad=BAD_ANSWERS + 2, answered=kind, of=1)
    assert await ejected(rig) == set()
    server.handler = ModelServer().handler
    assert (await rig.ask(post())).status == 200
    assert reporter.report(None).endpoints[0].aside == ()
    await server.stop()


async def test_one_that_another_model_took_over_is_told_apart_from_one_that_is_away(rig: Rig) -> None:
    async def lists_another(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b'{"data": [{"id": "other"}]}'
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    other, away = await ModelServer(lists_another).start(), await ModelServer().start()
    await away.stop()
    limits = Limits(queue_timeout_s=0.2)
    targets = (other.target("r-0"), away.target("r-1"))
    rig.apply(RouteSpec(name="m", mode="serve", model="mine", targets=targets, limits=limits))
    rig.gateway.hub.leased_until = float("-inf")  # as without the control plane: each new connection is asked
    assert (await rig.ask(post())).status == 503
    reporter = Reporter(rig.gateway.hub, rig.gateway.config, incarnation="i", address="a")
    first, second = reporter.report(None).endpoints[0].aside
    assert first == PutAside(replica="r-0", why="another_model", of=2)
    assert (second.replica, second.why) == ("r-1", "unreachable")
    assert second.tried_in_s is not None
    await other.stop()
