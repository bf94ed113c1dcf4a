"""An upgraded connection is a tunnel of bytes, counts as in flight, and is never a way around the gateway's reading."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
import websockets
from gateway_rig import DEADLINE_S, ModelServer, Rig, Seen, get, post, reply, running_gateway, until
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from moorage.decide.serving.routes import Limits, RouteSpec, TargetSpec

UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


def state(rig: Rig):  # type: ignore[no-untyped-def]
    return rig.router.find("m")


async def echo(connection: ServerConnection) -> None:
    assert connection.request is not None
    await connection.send(connection.request.path)
    async for message in connection:
        await connection.send(message)


@pytest.mark.parametrize("path", ["/v1/realtime?model=m", "/endpoints/m/v1/realtime?model=m"])
async def test_a_websocket_works_through_the_gateway_and_counts_until_it_ends(rig: Rig, path: str) -> None:
    async with serve(echo, "127.0.0.1", 0, max_size=None) as server:
        port = server.sockets[0].getsockname()[1]
        target = TargetSpec(replica="r", revision="v", host="127.0.0.1", port=port)
        rig.apply(RouteSpec(name="m", mode="serve", targets=(target,)))
        async with asyncio.timeout(DEADLINE_S):
            async with connect(f"ws://{rig.host}:{rig.port}{path}", proxy=None, max_size=None) as socket:
                assert await socket.recv() == "/v1/realtime?model=m"
                assert socket.response is not None
                assert "X-Request-Id" in socket.response.headers
                assert state(rig).in_flight == 1
                large = os.urandom(3_000_000)
                await socket.send(large)
                assert await socket.recv() == large
                await socket.send("text")
                assert await socket.recv() == "text"
            await until(lambda: state(rig).in_flight == 0)
    assert state(rig).completed == 1


async def test_the_query_of_a_websocket_gets_the_replicas_own_name(rig: Rig) -> None:
    async with serve(echo, "127.0.0.1", 0, max_size=None) as server:
        port = server.sockets[0].getsockname()[1]
        target = TargetSpec(replica="r", revision="v", host="127.0.0.1", port=port)
        rig.apply(RouteSpec(name="m", mode="serve", targets=(target,), model="org/model"))
        async with connect(f"ws://{rig.host}:{rig.port}/v1/realtime?a=1&model=default%2Fm&b=2", proxy=None) as socket:
            assert await socket.recv() == "/v1/realtime?a=1&model=org/model&b=2"


async def test_a_refused_websocket_is_an_ordinary_answer(rig: Rig, server: ModelServer) -> None:
    async def no(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(b"no", 403))

    server.handler = no
    rig.serve(server)
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with connect(f"ws://{rig.host}:{rig.port}/endpoints/m/ws", proxy=None):
            pass
    assert refused.value.response.status_code == 403
    assert state(rig).in_flight == 0


async def test_what_a_client_sends_before_the_101_waits_for_it(rig: Rig, server: ModelServer) -> None:
    release = asyncio.Event()
    early: list[bytes] = []

    async def slow(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        early.append(bytes(reader._buffer))  # type: ignore[attr-defined]
        writer.write(SWITCHED + b"first")
        early.append(await reader.readexactly(len(ahead)))
        writer.write(b"second")
        await writer.drain()
        return False

    server.handler = slow
    rig.serve(server)
    ahead = post("m")
    client = await rig.connect()
    client.send(get("/endpoints/m/x", UPGRADE) + ahead)
    await until(lambda: server.seen)
    release.set()
    head = await client.head()
    assert (head.status, head.headers["upgrade"]) == (101, "websocket")
    assert await client.rest() == b"firstsecond"
    assert early == [b"", ahead]
    assert len(server.seen) == 1


async def test_without_a_101_what_followed_is_the_next_request(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    client = await rig.connect()
    client.send(get("/endpoints/m/x", UPGRADE) + post("nobody"))
    assert (await client.answer()).status == 200
    assert (await client.answer()).status == 404
    client.close()
    assert len(server.seen) == 1


@pytest.mark.parametrize("asked", ["h2c", "h2", "HTTP/2.0", "TLS/1.0", "websocket, h2c", "a b"])
async def test_protocols_in_which_requests_could_hide_are_never_asked_for(
    rig: Rig, server: ModelServer, asked: str
) -> None:
    rig.serve(server)
    settings = (
        f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {asked}\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
    )
    assert (await rig.ask(get("/endpoints/m/x", settings))).status == 200
    assert not {"upgrade", "connection", "http2-settings"} & set(server.seen[0].headers)


@pytest.mark.parametrize("extra", ["", "Connection: Upgrade\r\nUpgrade: other\r\n"])
async def test_a_101_that_was_not_asked_for_is_a_bad_answer(rig: Rig, server: ModelServer, extra: str) -> None:
    async def switch(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCHED + b"anything")

    server.handler = switch
    rig.serve(server)
    assert (await rig.ask(get("/endpoints/m/x", extra))).status == 502


async def test_an_upgrade_with_a_body_is_refused(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    assert (await rig.ask(post("m", extra=UPGRADE))).status == 400
    assert not server.seen


async def test_one_way_may_end_before_the_other(rig: Rig, server: ModelServer) -> None:
    async def after_the_end(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(SWITCHED)
        writer.write(b"you said " + await reader.read())
        await writer.drain()
        return False

    server.handler = after_the_end
    rig.serve(server)
    client = await rig.connect()
    client.send(get("/endpoints/m/x", UPGRADE))
    assert (await client.head()).status == 101
    client.send(b"all of it")
    client.writer.write_eof()
    assert await client.rest() == b"you said all of it"
    client.close()
    await until(lambda: state(rig).in_flight == 0)
    await until(lambda: not rig.gateway.hub.clients)


async def test_a_tunnel_keeps_no_more_than_the_reader_takes(rig: Rig, server: ModelServer) -> None:
    written = 0
    stuck = asyncio.Event()
    most = 64 * 1024 * 1024

    async def flood(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        nonlocal written
        writer.write(SWITCHED)
        while written < most:
            writer.write(bytes(65536))
            written += 65536
            stuck.clear()
            try:
                await asyncio.wait_for(writer.drain(), 2)
            except TimeoutError:
                stuck.set()
                await writer.drain()
        return False

    server.handler = flood
    rig.serve(server)
    client = await rig.connect()
    client.send(get("/endpoints/m/x", UPGRADE))
    async with asyncio.timeout(DEADLINE_S):
        await stuck.wait()
    assert written < most
    assert (await client.head()).status == 101
    assert len(await client.rest()) == most


async def test_either_side_that_dies_ends_the_tunnel(rig: Rig, server: ModelServer) -> None:
    async def wait(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(SWITCHED)
        if await reader.readexactly(3) == b"die":
            writer.transport.abort()
        else:
            await reader.read()
        return False

    server.handler = wait
    rig.serve(server)
    for word in (b"die", b"end"):
        client = await rig.connect()
        client.send(get("/endpoints/m/x", UPGRADE))
        await client.head()
        assert state(rig).in_flight == 1
        client.send(word)
        if word == b"die":
            with contextlib.suppress(ConnectionError):
                assert await client.rest() == b""
        client.close()
        await until(lambda: state(rig).in_flight == 0 and not rig.gateway.hub.clients)
    await until(lambda: server.closed == server.connections)


async def test_a_tunnel_in_which_nobody_speaks_is_closed(server: ModelServer, tmp_path: Path) -> None:
    async def wait(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(SWITCHED)
        await reader.read()
        return False

    server.handler = wait
    async with running_gateway(tmp_path, tunnel_idle_s=1.0) as rig:
        rig.serve(server)
        client = await rig.connect()
        client.send(get("/endpoints/m/x", UPGRADE))
        request_id = (await client.head()).headers["x-request-id"]
        assert await client.rest() == b""
        await until(lambda: state(rig).in_flight == 0 and server.closed == 1)
        ended = rig.gateway.hub.counts.ring.find(request_id.encode())
        assert ended is not None
        assert ended.outcome == "client_gone"  # no failure of the replica


async def test_a_drain_waits_for_tunnels(rig: Rig, server: ModelServer) -> None:
    async def line(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(SWITCHED)
        writer.write(await reader.readexactly(4))
        await writer.drain()
        return False

    server.handler = line
    rig.apply(RouteSpec(name="m", mode="serve", targets=(server.target(),), limits=Limits()))
    client = await rig.connect()
    client.send(get("/endpoints/m/x", UPGRADE))
    await client.head()
    rig.gateway.hub.drain()
    assert not rig.gateway.hub.drained.is_set()
    client.send(b"last")
    assert await client.rest() == b"last"
    client.close()
    await until(rig.gateway.hub.drained.is_set)
