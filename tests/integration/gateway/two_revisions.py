"""What tests of two revisions need beside a gateway: clients that go on asking, candidates that fail in each way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gateway_rig import Answer, ModelServer, Rig, Seen, post, reply

from moorage.decide.serving.routes import Limits, RevisionSpec, RouteSpec, TargetSpec
from moorage.gateway.reports import Reporter
from moorage.wire.routing import Evidence, GatewayReport

ACTIVE = RevisionSpec("rev-a", 1)
WORKERS = 6
ENOUGH = 150


def candidate(by: str, share: float) -> RevisionSpec:
    return RevisionSpec("rev-b", 2, role="candidate", by=by, share=share)


STRATEGIES = {
    "none": candidate("share", 0.0),
    "header": candidate("header", 0.0),
    "mirror": candidate("mirror", 100.0),
    "canary": candidate("share", 30.0),
}


def two(good: ModelServer, bad: TargetSpec, other: RevisionSpec) -> RouteSpec:
    return RouteSpec(
        "m",
        "serve",
        targets=(good.target("r-a", "rev-a"), bad),
        limits=Limits(max_in_flight=64),
        deployment="dep-1",
        revisions=(ACTIVE, other),
        evidence_id="compare-1",
    )


@dataclass
class Load:
    """Clients that ask one request after the other until they are told to end."""

    rig: Rig
    request: bytes = field(default_factory=post)
    answers: list[Answer | str] = field(default_factory=list)
    ending: bool = False

    async def ask_on(self) -> None:
        while not self.ending:
            client = await self.rig.connect()
            try:
                while not self.ending:
                    client.send(self.request)
                    answer = await client.answer()
                    self.answers.append(answer)
                    if answer.headers.get("connection") == "close":
                        break
            except (asyncio.IncompleteReadError, ConnectionError):
                self.answers.append("cut")
            finally:
                client.close()

    @property
    def failed(self) -> list[Answer | str]:
        return [a for a in self.answers if isinstance(a, str) or a.status >= 400]

    def of(self, revision: str) -> list[Answer]:
        return [a for a in self.answers if not isinstance(a, str) and a.headers.get("x-moorage-revision") == revision]


@asynccontextmanager
async def under_load(rig: Rig, request: bytes | None = None) -> AsyncIterator[Load]:
    load = Load(rig, request or post())
    async with asyncio.TaskGroup() as group:
        for _ in range(WORKERS):
            group.create_task(load.ask_on())
        try:
            yield load
        finally:
            load.ending = True


async def chunk(writer: asyncio.StreamWriter, text: str) -> None:
    data = f"data: {text}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Bad:
    """Handlers of candidates that fail, each in its way."""

    def __init__(self) -> None:
        self.asked = 0

    async def hangs(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await reader.read()
        return False

    async def errs(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        writer.write(reply(status=500) if self.asked % 10 < 3 else reply())

    async def cuts(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(EVENTS)
        await chunk(writer, '{"n": 1}')
        return False


@asynccontextmanager
async def time_runs_out(rig: Rig, revision: str) -> AsyncIterator[None]:
    """Whatever waits for a first byte of this revision has waited for as long as it may."""

    async def poll_and_expire() -> None:
        hub = rig.gateway.hub
        while True:
            for client in list(hub.clients):
                if client.target is not None and client.target.spec.revision == revision and client.upstream:
                    client.expire(hub.time())
            for copy in list(hub.copies):
                copy.expire()
            await asyncio.sleep(0.01)

    running = asyncio.create_task(poll_and_expire())
    try:
        yield
    finally:
        running.cancel()


def evidence(rig: Rig) -> dict[str, Evidence]:
    return {e.revision: e for e in report(rig).evidence}


def report(rig: Rig) -> GatewayReport:
    config = rig.gateway.config
    return Reporter(rig.gateway.hub, config, incarnation="i", address="h:1").report(None)


@asynccontextmanager
async def bad_candidate(kind: str) -> AsyncIterator[ModelServer]:
    """`refuses` is a port on which nobody listens any more."""
    server = await ModelServer().start()
    if kind == "refuses":
        await server.stop()
        yield server
        return
    server.handler = getattr(Bad(), kind)
    yield server
    await server.stop()
