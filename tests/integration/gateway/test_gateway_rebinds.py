"""An endpoint that people made is bound anew under load: no request is lost, no stream is cut, weights hold."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from gateway_rig import ModelServer, Rig, Seen, post, reply, running_gateway, until
from test_gateway_and_its_control_plane import ControlPlane
from two_revisions import EVENTS, chunk

from moorage.wire.routing import Binding, BoundRoute, EndpointRoute, RoutingTable, Target

ENOUGH = 60
UNARY, STREAMING = 4, 3


@dataclass
class Model:
    """A server that says its name; a stream that is asked to be held ends when `release` is set."""

    name: str
    server: ModelServer = field(default_factory=ModelServer)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(seen.body)
        if not asked.get("stream"):
            writer.write(reply(self.name.encode()))
            return
        writer.write(EVENTS)
        await chunk(writer, self.name)
        if asked.get("hold"):
            await self.release.wait()
        await chunk(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")


@asynccontextmanager
async def models(*names: str) -> AsyncIterator[list[Model]]:
    made = [Model(name) for name in names]
    for model in made:
        model.server.handler = model.handle
        await model.server.start()
    try:
        yield made
    finally:
        for model in made:
            model.release.set()
            await model.server.stop()


def table(number: int, there: list[Model], **weights: int) -> RoutingTable:
    """Deployments, and `chat` bound to some of them."""
    routes = []
    for model in there:
        target = Target(replica=f"r-{model.name}", revision="1", host="127.0.0.1", port=model.server.port)
        routes.append(EndpointRoute(name=model.name, deployment=f"dep-{model.name}", mode="serve", targets=(target,)))
    bound = tuple(BoundRoute(deployment=name, weight=weight) for name, weight in weights.items())
    binding = Binding(uid="ep-1", name="chat", routes=bound)
    return RoutingTable(incarnation="s-1", number=number, endpoints=tuple(routes), bindings=(binding,))


@dataclass
class Clients:
    """Clients of `chat` that ask on until they are told to end; `answered` counts who answered whom."""

    rig: Rig
    answered: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    ending: bool = False

    async def ask_on(self, *, stream: bool) -> None:
        while not self.ending:
            client = await self.rig.connect()
            try:
                while not self.ending:
                    client.send(post("chat", stream=stream))
                    answer = await client.answer()
                    self.note(answer.status, answer.body, stream=stream)
                    if answer.headers.get("connection") == "close":
                        break
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                self.failed.append(f"cut: {error!r}")
            finally:
                client.close()

    def note(self, status: int, body: bytes, *, stream: bool) -> None:
        text = body.decode()
        if status != 200 or (stream and "[DONE]" not in text):
            self.failed.append(f"{status}: {text}")
            return
        self.answered[text.removeprefix("data: ").split("\n")[0]] += 1

    async def more_of(self, *names: str) -> None:
        """Until each of them has answered so many more."""
        before = Counter(self.answered)
        await until(lambda: all(self.answered[name] - before[name] >= ENOUGH for name in names))


@asynccontextmanager
async def asking(rig: Rig) -> AsyncIterator[Clients]:
    clients = Clients(rig)
    async with asyncio.TaskGroup() as group:
        for at in range(UNARY + STREAMING):
            group.create_task(clients.ask_on(stream=at >= UNARY))
        try:
            yield clients
        finally:
            clients.ending = True


async def held_stream(rig: Rig) -> "asyncio.Task[bytes]":
    """A stream at `chat` that has begun, and ends when its model is told to."""
    client = await rig.connect()
    client.send(post("chat", stream=True, hold=True))
    head = await client.head()
    assert head.status == 200

    async def rest() -> bytes:
        try:
            return await client.reader.readuntil(b"0\r\n\r\n")
        finally:
            client.close()

    return asyncio.create_task(rest())


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    plane = await ControlPlane().start()
    yield plane
    await plane.server.stop()


async def confirmed(plane: ControlPlane, told: RoutingTable) -> None:
    plane.publish(told)
    await until(lambda: plane.reports and plane.reports[-1].table_number == told.number)


async def test_an_endpoint_is_bound_anew_without_a_lost_request_or_a_cut_stream(
    tmp_path: Path, plane: ControlPlane
) -> None:
    async with models("a", "b") as (a, b):
        plane.publish(table(1, [a, b], a=100))
        async with running_gateway(tmp_path, server_url=plane.url) as rig:
            await confirmed(plane, table(2, [a, b], a=100))
            async with asking(rig) as clients:
                await clients.more_of("a")
                assert clients.answered.keys() == {"a"}
                on_a = await held_stream(rig)

                await confirmed(plane, table(3, [a, b], b=100))
                await clients.more_of("b")
                on_b = await held_stream(rig)
                asked_of_a = clients.answered["a"]
                await clients.more_of("b")
                assert clients.answered["a"] - asked_of_a <= UNARY + STREAMING, "only what was under way ended at a"

                await confirmed(plane, table(4, [a, b], a=50, b=50))
                await clients.more_of("a", "b")
                before = Counter(clients.answered)
                await clients.more_of("a", "b")
                drawn = clients.answered - before
                total = drawn.total()
                bound = 4 * (total * 0.25) ** 0.5 + UNARY + STREAMING
                assert abs(drawn["a"] - total / 2) <= bound, "the weights hold"

                await confirmed(plane, table(5, [b], b=50))
                await clients.more_of("b")
                a.release.set()
                b.release.set()
                assert b"[DONE]" in await on_a, "a deployment that is taken away still ends what it began"
                assert b"[DONE]" in await on_b
            assert clients.failed == []


async def test_a_binding_outlives_a_restart_of_its_gateway_without_a_control_plane(
    tmp_path: Path, plane: ControlPlane
) -> None:
    async with models("a", "b") as (a, b):
        async with running_gateway(tmp_path, server_url=plane.url):
            await confirmed(plane, table(1, [a, b], a=75, b=25))
        await plane.server.stop()
        async with running_gateway(tmp_path, server_url=plane.url) as rig:
            answers = [(await rig.ask(post("chat"))).body.decode() for _ in range(40)]
        assert Counter(answers) == {"a": 30, "b": 10}, "turns are counted, never drawn by luck"


async def test_a_request_for_a_sleeping_deployment_behind_an_endpoint_is_demand_for_it(
    tmp_path: Path, plane: ControlPlane
) -> None:
    async with models("a") as (a,):
        awake = table(2, [a], a=100)
        asleep = awake.endpoints[0].model_copy(update={"mode": "asleep", "targets": ()})
        plane.publish(awake.model_copy(update={"number": 1, "endpoints": (asleep,)}))
        async with running_gateway(tmp_path, server_url=plane.url) as rig:
            await until(lambda: plane.reports and plane.reports[-1].table_number == 1)
            waiting = asyncio.create_task(rig.ask(post("chat")))
            await until(lambda: any(e.held for r in plane.reports for e in r.endpoints))
            (seen,) = [e for e in plane.reports[-1].endpoints if e.held]
            assert (seen.name, seen.held) == ("a", 1), "it counts at the deployment that it was drawn for"
            plane.publish(awake)
            assert (await waiting).body == b"a"
