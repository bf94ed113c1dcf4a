"""How a client tells a whole answer from a cut one, and what a client gets that sends no more."""

import asyncio
import socket
import struct

import pytest
from gateway_rig import ModelServer, Rig, Seen, get, post, reply, until


async def test_an_answer_without_length_ends_with_a_close_when_it_is_whole_and_with_a_reset_when_it_is_not(
    rig: Rig, server: ModelServer
) -> None:
    begun = asyncio.Event()

    async def unframed(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        await writer.drain()
        if seen.path == "/dies":
            await begun.wait()
            own = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return False

    server.handler = unframed
    rig.serve(server)
    clean = await rig.ask(get("/endpoints/m/x"))
    assert (clean.body, clean.headers["connection"]) == (b"all of it", "close")
    client = await rig.connect()
    client.send(get("/endpoints/m/dies", "X-Request-Id: cut-2\r\n"))
    assert (await client.head()).status == 200
    begun.set()
    with pytest.raises(ConnectionResetError):
        await client.rest()
    assert rig.gateway.hub.counts.ring.find(b"cut-2").outcome == "cut"


@pytest.mark.parametrize("path", ["/v1/x", "/endpoints/m/x"])
async def test_a_client_that_shuts_its_side_down_after_its_requests_gets_every_answer_and_a_close(
    rig: Rig, server: ModelServer, path: str
) -> None:
    gate = asyncio.Event()

    async def wait(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(reply(b"late"))

    server.handler = wait
    rig.serve(server)
    client = await rig.connect()
    client.send(post(path=path) + post(path=path) + b"POST /v1/x HTTP/1.1\r\nHost: g")
    client.writer.write_eof()
    await until(lambda: server.seen)
    await until(lambda: any(c._half_closed for c in rig.gateway.hub.clients), "the end of its bytes was seen")
    gate.set()
    for _ in range(2):
        answer = await client.answer()
        while answer.status == 100:
            answer = await client.answer()
        assert (answer.status, answer.body) == (200, b"late")
    assert await client.rest() == b""
    assert len(server.seen) == 2
    await until(lambda: not rig.gateway.hub.clients)


async def test_a_client_that_shuts_its_side_down_while_it_is_held_is_answered_once_it_wakes(
    rig: Rig, server: ModelServer
) -> None:
    rig.serve(mode="asleep")
    client = await rig.connect()
    client.send(post())
    client.writer.write_eof()
    endpoint = rig.router.find("m")
    await until(lambda: endpoint.waiting)
    assert (await client.answer()).status == 100
    rig.serve(server)
    assert (await client.answer()).status == 200
    assert await client.rest() == b""


async def test_a_request_cut_short_by_the_end_of_its_clients_bytes_is_given_up(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    client = await rig.connect()
    client.send(b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: 50\r\n\r\n{")
    await until(lambda: rig.gateway.hub.clients)
    client.writer.write_eof()
    assert await client.rest() == b""
    await until(lambda: not rig.gateway.hub.clients)
    assert not server.seen
