"""Limits hold over two real gateways and a ledger on disk, whatever becomes of one of them."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from gateway_rig import DEADLINE_S, Answer, ModelServer, Rig, Seen, post, reply, running_gateway, until

from moorage.control.slices import Slices
from moorage.store import open_store
from moorage.wire.routing import (
    Access,
    EndpointRoute,
    GatewayReport,
    GatewayReportAnswer,
    NamespaceRule,
    RateLimits,
    RoutingTable,
    Target,
)

NAMESPACE = "namespace/default"
REQUESTS = "requests_per_minute"


class SteppedClock:
    """Real time, and what a test adds to it."""

    def __init__(self) -> None:
        self.added_s = 0.0

    def now(self) -> float:
        return time.time() + self.added_s

    def monotonic(self) -> float:
        return time.monotonic() + self.added_s

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Certain:
    certain = True


@dataclass
class LimitPlane:
    """Publishes one endpoint with limits and keeps the ledger of them in a real store."""

    limits: RateLimits
    clock: SteppedClock = field(default_factory=SteppedClock)
    model: ModelServer = field(default_factory=ModelServer)
    server: ModelServer = field(default_factory=ModelServer)
    reports: list[GatewayReport] = field(default_factory=list)
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, home: Path) -> "LimitPlane":
        self.store = await open_store(f"sqlite:///{home}/ledger.db", self.clock)
        self.slices = Slices(
            self.store, self.clock, Certain(), lambda subject: self.limits if subject == NAMESPACE else None
        )
        await self.slices.start(1)
        await self.model.start()
        self.server = await ModelServer(self.handle).start()
        return self

    async def stop(self) -> None:
        self.ending.set()
        await self.server.stop()
        await self.model.stop()
        await self.store.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def shares(self) -> dict[str, int]:
        return self.slices.shares(NAMESPACE, REQUESTS)

    async def handle(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if seen.path == "/api/v1/routing/report":
            report = GatewayReport.model_validate_json(seen.body)
            self.reports.append(report)
            answer = await self.slices.answer(report, GatewayReportAnswer(number=1))
            writer.write(reply(answer.model_dump_json().encode()))
        elif "incarnation=s-1" in seen.path:
            if "wait_s=0" not in seen.path:
                await self.ending.wait()  # nothing new, for as long as the gateway asks
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            writer.write(reply(self.table().model_dump_json().encode()))

    def table(self) -> RoutingTable:
        target = Target(replica="r-1", revision="rev-1", host="127.0.0.1", port=self.model.port)
        rule = NamespaceRule(namespace="default", limits=self.limits)
        endpoint = EndpointRoute(name="m", deployment="dep-1", mode="serve", targets=(target,))
        return RoutingTable(
            incarnation="s-1", number=1, endpoints=(endpoint,), access=Access(number=1, namespaces=(rule,))
        )


@pytest.fixture
async def plane(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[LimitPlane]:
    plane = await LimitPlane(getattr(request, "param", RateLimits(requests_per_minute=10))).start(tmp_path)
    yield plane
    await plane.stop()


def gateway(plane: LimitPlane, home: Path, gateway_id: str):  # type: ignore[no-untyped-def]
    return running_gateway(home / gateway_id, server_url=plane.url, gateway_id=gateway_id)


async def ready(rig: Rig) -> None:
    await until(lambda: rig.gateway.hub.limits.active, "limits taken")


async def until_told(rig: Rig, request: bytes) -> Answer:
    """Its answer, once its share is known: a request waits two seconds for that, and a busy machine's disk longer."""
    async with asyncio.timeout(DEADLINE_S):
        while (answer := await rig.ask(request)).status == 503 and answer.error["code"] == "limits_unknown":
            await asyncio.sleep(0.01)
    return answer


@pytest.mark.parametrize("plane", [RateLimits(requests_per_minute=50)], indirect=True)
async def test_two_gateways_together_admit_no_more_than_the_limit(plane: LimitPlane, tmp_path: Path) -> None:
    admitted: list[float] = []

    async def note(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        admitted.append(time.monotonic())
        writer.write(reply())

    plane.model.handler = note
    async with gateway(plane, tmp_path, "g-1") as one, gateway(plane, tmp_path, "g-2") as two:
        await ready(one)
        await ready(two)
        answers = await asyncio.gather(*(until_told(one if n % 2 else two, post()) for n in range(200)))
    served = [a for a in answers if a.status == 200]
    refused = [a for a in answers if a.status == 429]
    assert len(served) + len(refused) == 200
    assert len(served) == len(admitted)
    assert all(sum(1 for t in admitted if at - 60.0 <= t <= at) <= 50 for at in admitted)
    assert len(served) >= 25  # each gateway is sure of half
    for answer in answers:
        assert answer.headers["x-ratelimit-limit-requests"] == "50"
        assert 0 <= int(answer.headers["x-ratelimit-remaining-requests"]) < 50
        assert answer.headers["x-ratelimit-reset-requests"].endswith("s")
    for answer in refused:
        assert (answer.error["code"], answer.error["type"]) == ("rate_limit_exceeded", "rate_limit_error")
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert "50 requests per minute" in answer.error["message"]


async def spawned(plane: LimitPlane, home: Path, gateway_id: str) -> tuple[asyncio.subprocess.Process, int]:
    """A gateway in a process of its own, and its port."""
    settings = {
        "server_url": plane.url,
        "token": "tok",
        "gateway_id": gateway_id,
        "port": 0,
        "state_dir": str(home / gateway_id),
        "allowed_hosts": ["g"],
    }
    config = home / f"{gateway_id}.json"
    config.write_text(json.dumps(settings))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage.gateway.main", "--config", str(config), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        while True:
            line = json.loads(await process.stderr.readline())
            if line.get("event") == "gateway.listening":
                return process, int(line["address"].rpartition(":")[2])


async def killed(process: asyncio.subprocess.Process) -> None:
    """The power cut of one gateway: neither its master nor its worker does anything more."""
    workers = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    for signalled in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (*workers, process.pid):
            os.kill(pid, signalled)
    await process.wait()


async def ask(port: int) -> Answer:
    return await Rig(None, "127.0.0.1", port).ask(post())  # type: ignore[arg-type]


async def until_listed(port: int) -> Answer:
    """An answer of a gateway that has its table and knows its share."""
    async with asyncio.timeout(DEADLINE_S):
        while (answer := await ask(port)).status == 503 and answer.error["code"] in ("not_ready", "limits_unknown"):
            await asyncio.sleep(0.01)
    return answer


async def test_the_share_of_a_killed_gateway_stays_counted_until_the_hold_is_over(
    plane: LimitPlane, tmp_path: Path
) -> None:
    process, port = await spawned(plane, tmp_path, "g-1")
    try:
        assert (await until_listed(port)).status == 200
        for _ in range(9):
            assert (await ask(port)).status == 200
        assert (await ask(port)).status == 429
    finally:
        await killed(process)
    async with gateway(plane, tmp_path, "g-2") as two:
        await ready(two)
        assert (await until_told(two, post())).status == 429
        plane.clock.added_s += 500.0
        assert (await two.ask(post())).status == 429
        assert plane.shares() == {"g-1": 10}
        plane.clock.added_s += 161.0
        assert (await until_admitted(two)).status == 200
        assert "g-1" not in plane.shares()


async def until_admitted(rig: Rig) -> Answer:
    """The first answer that is no refusal: a gateway that heard that nothing is left asks again within seconds."""
    async with asyncio.timeout(DEADLINE_S):
        while (answer := await rig.ask(post())).status == 429:
            await asyncio.sleep(0.05)
    return answer


async def test_a_gateway_that_ends_gracefully_leaves_only_what_it_used(plane: LimitPlane, tmp_path: Path) -> None:
    async with gateway(plane, tmp_path, "g-1") as one:
        await ready(one)
        for _ in range(4):
            assert (await until_told(one, post())).status == 200
        assert plane.shares() == {"g-1": 10}
    assert plane.reports[-1].leaving
    assert plane.shares() == {"g-1": 4}
    async with gateway(plane, tmp_path, "g-2") as two:
        await ready(two)
        assert [(await until_told(two, post())).status for _ in range(7)] == [200] * 6 + [429]
        plane.clock.added_s += 62.0
        await until_admitted(two)
        assert "g-1" not in plane.shares()


async def test_a_successor_of_the_same_id_waits_for_what_the_one_before_may_have_admitted(
    plane: LimitPlane, tmp_path: Path
) -> None:
    process, port = await spawned(plane, tmp_path, "g-1")
    try:
        assert (await until_listed(port)).status == 200
    finally:
        await killed(process)
    async with gateway(plane, tmp_path, "g-1") as again:
        await ready(again)
        answer = await until_told(again, post())
        assert (answer.status, plane.shares()) == (429, {"g-1": 10})
        plane.clock.added_s += 62.0
        await until_admitted(again)


async def test_a_gateway_without_its_control_plane_admits_nothing_of_a_limited_tenant_but_says_why(
    plane: LimitPlane, tmp_path: Path
) -> None:
    async with gateway(plane, tmp_path, "g-1") as rig:
        await until(lambda: any(report.table_number for report in plane.reports), "the table is kept")
    async with running_gateway(tmp_path / "g-1", gateway_id="g-1") as rig:  # starts from the kept table
        answer = await rig.ask(post())
        assert (answer.status, answer.error["code"]) == (503, "limits_unknown")
        assert int(answer.headers["retry-after"]) >= 1
        limits = rig.gateway.hub.limits
        limits.configure(None, ())
        assert (await rig.ask(post())).status == 200


def usage(prompt: int, completion: int) -> bytes:
    return json.dumps({"usage": {"prompt_tokens": prompt, "completion_tokens": completion}}).encode()


@pytest.mark.parametrize("plane", [RateLimits(tokens_per_minute=1000)], indirect=True)
async def test_tokens_are_reserved_by_what_the_request_allows_and_settled_by_what_the_answer_tells(
    plane: LimitPlane, tmp_path: Path
) -> None:
    async def answer(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(usage(10, 90), extra="Content-Type: application/json\r\n"))

    plane.model.handler = answer
    async with gateway(plane, tmp_path, "g-1") as rig:
        await ready(rig)
        first = await until_told(rig, post(max_tokens=900))
        assert first.status == 200
        assert int(first.headers["x-ratelimit-remaining-tokens"]) < 100  # while it ran, all that it might take
        second = await rig.ask(post(max_tokens=800))
        assert second.status == 200  # the first gave back what it did not take
        assert (await rig.ask(post(max_tokens=700))).status == 200
        refused = await rig.ask(post(max_tokens=800))
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert "tokens per minute" in refused.error["message"]
        never = await rig.ask(post(max_tokens=5000))
        assert (never.status, never.headers["x-should-retry"]) == (429, "false")
        assert "retry-after" not in never.headers


@pytest.mark.parametrize("plane", [RateLimits(in_flight=2)], indirect=True)
async def test_what_is_in_flight_is_bounded_and_an_end_lets_the_next_one_in(plane: LimitPlane, tmp_path: Path) -> None:
    release = asyncio.Event()

    async def slow(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(reply())

    plane.model.handler = slow
    async with gateway(plane, tmp_path, "g-1") as rig:
        await ready(rig)
        running = [asyncio.create_task(rig.ask(post())) for _ in range(2)]
        await until(lambda: len(plane.model.seen) == 2, "two run")
        refused = await rig.ask(post())
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert "2 requests at once" in refused.error["message"]
        gone = await rig.connect()
        release.set()
        assert [(await task).status for task in running] == [200, 200]
        gone.close()
        assert (await rig.ask(post())).status == 200
