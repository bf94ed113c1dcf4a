"""While the control plane is away, a port that another model server took over answers nobody."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gateway_process import gateway_process, keep_table
from gateway_rig import Client, Handler, ModelServer, Rig, Seen, post, reply, running_gateway, until

from moorage.decide.serving.routes import Limits, RouteSpec


def serving(model: str) -> Handler:
    """A model server that says which model answers."""

    async def handle(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listed = json.dumps({"object": "list", "data": [{"id": model, "object": "model"}]}).encode()
        writer.write(reply(listed if seen.path == "/v1/models" else model.encode()))

    return handle


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_gateway(tmp_path) as rig:
        rig.gateway.hub.leased_until = float("-inf")
        yield rig


def route(*servers: ModelServer, model: str | None = "right", worker: str = "", **limits: float) -> RouteSpec:
    targets = tuple(server.target(f"r-{n}", worker=worker) for n, server in enumerate(servers))
    return RouteSpec(name="m", mode="serve", model=model, targets=targets, limits=Limits(**limits))  # type: ignore[arg-type]


def asked(server: ModelServer) -> list[str]:
    return [seen.path for seen in server.seen]


async def test_each_new_connection_is_asked_what_it_serves_before_it_is_fed(rig: Rig, server: ModelServer) -> None:
    server.handler = serving("right")
    rig.apply(route(server))
    client = await rig.connect()
    for _ in range(3):
        client.send(post())
        assert (await client.answer()).body == b"right"
    assert asked(server) == ["/v1/models", *["/v1/chat/completions"] * 3]
    assert server.connections == 1, "a connection is asked once"
    client.close()


async def test_nothing_is_asked_while_the_lease_holds_and_connections_from_then_stay_usable(
    rig: Rig, server: ModelServer
) -> None:
    server.handler = serving("right")
    rig.apply(route(server))
    rig.gateway.hub.leased_until = float("inf")
    client = await rig.connect()
    client.send(post())
    assert (await client.answer()).status == 200
    rig.gateway.hub.leased_until = float("-inf")
    client.send(post())
    assert (await client.answer()).status == 200
    assert "/v1/models" not in asked(server)
    client.close()


async def test_a_port_that_another_model_took_over_never_answers(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    server.handler = second_server.handler = serving("right")
    rig.apply(route(server, second_server))
    assert (await rig.ask(post())).status == 200
    port = server.port
    await server.stop()
    wrong = await ModelServer(serving("wrong")).start(port)
    try:
        answers = await asyncio.gather(*(rig.ask(post()) for _ in range(40)))
        assert {answer.body for answer in answers} == {b"right"}
        assert set(asked(wrong)) == {"/v1/models"}, "a replica that is another model is fed nothing"
        seen = len(wrong.seen)
        answers = await asyncio.gather(*(rig.ask(post()) for _ in range(40)))
        assert {answer.body for answer in answers} == {b"right"}
        assert len(wrong.seen) == seen, "and it is not asked again and again"
    finally:
        await wrong.stop()


async def test_with_no_replica_left_requests_are_held_and_go_on_with_a_newer_table(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    server.handler, second_server.handler = serving("wrong"), serving("right")
    rig.apply(route(server))
    client = await rig.connect()
    client.send(post())
    await until(lambda: any(e.waiting for e in rig.router.endpoints()))
    assert asked(server) == ["/v1/models"]
    rig.apply(route(second_server))
    assert (await client.answer()).body == b"right"
    client.close()


async def test_a_newer_table_that_names_the_replica_lets_it_be_asked_again(rig: Rig, server: ModelServer) -> None:
    server.handler = serving("wrong")
    rig.apply(route(server))
    client = await rig.connect()
    client.send(post())
    await until(lambda: any(e.waiting for e in rig.router.endpoints()))
    server.handler = serving("right")
    rig.apply(route(server))
    assert (await client.answer()).body == b"right"
    client.close()


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"not found", 404),
        reply(b"no", 405),
        reply(b"<html>"),
        reply(b'{"data": "right"}'),
        b"HTTP/1.0 200 OK\r\n\r\n" + b'{"data": [{"id": "right"}]}',
        b"garbage\r\n\r\n",
    ],
)
async def test_a_server_that_does_not_tell_is_not_fed(rig: Rig, server: ModelServer, answer: bytes) -> None:
    async def handle(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(answer)
        return b"HTTP/1.1" in answer

    server.handler = handle
    rig.apply(route(server, queue_timeout_s=0.3))
    assert (await rig.ask(post())).status in (503, 504)
    assert set(asked(server)) == {"/v1/models"}


async def test_a_list_in_chunks_and_pieces_is_read(rig: Rig, server: ModelServer) -> None:
    async def handle(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if seen.path != "/v1/models":
            writer.write(reply(b"right"))
            return
        body = b'{"data": [{"id": "other"}, {"id": "right"}]}'
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 7):
            part = body[at : at + 7]
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")

    server.handler = handle
    rig.apply(route(server))
    assert (await rig.ask(post())).body == b"right"


async def test_a_server_that_says_nothing_is_given_up_after_the_time_of_a_connect(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    async def silent(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    server.handler, second_server.handler = silent, serving("right")
    rig.apply(route(server, second_server, connect_timeout_s=0.2))
    assert {(await rig.ask(post())).body for _ in range(6)} == {b"right"}
    await until(lambda: not server.writers, "the connection that was asked is closed")


async def test_what_has_no_model_in_the_table_is_fed_as_ever(rig: Rig, server: ModelServer) -> None:
    rig.apply(route(server, model=None))
    assert (await rig.ask(post())).status == 200
    assert "/v1/models" not in asked(server)


async def test_a_gateway_that_starts_without_its_control_plane_has_no_lease(
    tmp_path: Path, server: ModelServer, second_server: ModelServer
) -> None:
    server.handler, second_server.handler = serving("wrong"), serving("right")
    keep_table(tmp_path, server, second_server, model="right")
    async with gateway_process(tmp_path) as gateway:
        for _ in range(8):
            client: Client = await gateway.connect()
            client.send(post())
            assert (await client.answer()).body == b"right"
            client.close()
    assert set(asked(server)) <= {"/v1/models"}
