"""Clients and replicas that hold on to connections, over real sockets: others are served meanwhile, and they end."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from gateway_rig import Client, ModelServer, Rig, Seen, get, post, reply, running_gateway, until

from moorage.decide.serving.routes import Limits, RouteSpec

SLOW = 60


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Rig]:
    """A gateway that waits for heads and bodies for a second."""
    async with running_gateway(tmp_path, head_timeout_s=1.0, body_timeout_s=1.0) as rig:
        yield rig


async def until_nobody_listens(client: Client, data: bytes) -> None:
    """A byte now and then."""
    while not client.writer.is_closing():
        for at in range(len(data)):
            client.send(data[at : at + 1])
            await asyncio.sleep(0.05)


async def slow_clients(rig: Rig, begin: bytes, then: bytes) -> tuple[list[Client], list[asyncio.Task[None]]]:
    clients = [await rig.connect() for _ in range(SLOW)]
    for client in clients:
        client.send(begin)
    return clients, [asyncio.create_task(until_nobody_listens(client, then)) for client in clients]


@pytest.mark.parametrize(
    ("begin", "then"),
    [
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\n", b"X-A: 1\r\n"),
        (b"", b"GET /livez"),
    ],
    ids=["lines without end", "a first line, byte by byte"],
)
async def test_heads_that_drip_end_at_their_time_while_others_are_served(
    strict: Rig, server: ModelServer, begin: bytes, then: bytes
) -> None:
    strict.serve(server)
    clients, dripping = await slow_clients(strict, begin, then)
    for _ in range(20):
        assert (await strict.ask(post())).status == 200
    heads = await asyncio.gather(*(client.head() for client in clients))
    assert {head.status for head in heads} == {408}
    for task in dripping:
        task.cancel()
    for client in clients:
        client.close()
    await until(lambda: not strict.gateway.hub.clients, "every one of them to be gone")
    assert len(server.seen) == 20


async def test_bodies_that_stop_end_at_their_time_and_free_their_place(strict: Rig, server: ModelServer) -> None:
    strict.serve(server, max_in_flight=SLOW)
    begin = b"POST /endpoints/m/x HTTP/1.1\r\nHost: g\r\nContent-Length: 1000\r\n\r\nsome"
    clients = [await strict.connect() for _ in range(SLOW)]
    for client in clients:
        client.send(begin)
    answers = await asyncio.gather(*(client.head() for client in clients))
    assert {answer.status for answer in answers} == {408}
    assert server.connections == SLOW, "each of them had begun at the replica"
    await until(lambda: strict.router.find("m").in_flight == 0)
    await until(lambda: server.closed == server.connections, "the replica to be told")
    assert (await strict.ask(post())).status == 200
    for client in clients:
        client.close()


async def test_connections_that_say_nothing_are_closed(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, keepalive_s=1.0) as rig:
        clients = [await rig.connect() for _ in range(SLOW)]
        assert await asyncio.gather(*(client.rest() for client in clients)) == [b""] * SLOW


async def test_a_client_that_reads_nothing_holds_its_own_answer_only(rig: Rig, server: ModelServer) -> None:
    written = 0

    async def flood(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        nonlocal written
        if seen.path == "/small":
            writer.write(reply())
            return True
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 65536)
            written += 65536
            await writer.drain()
        return False

    server.handler = flood
    rig.serve(server)
    client = await rig.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.send(get("/endpoints/m/large"))
    await until(lambda: written > 0)
    before = -1
    while before != written:  # until the buffers between are full
        before = written
        for _ in range(50):
            assert (await rig.ask(get("/endpoints/m/small"))).status == 200
    assert written < 100_000_000, "what is not read is not taken in"
    client.close()
    await until(lambda: rig.router.find("m").in_flight == 0, "the replica to be let go")


async def test_an_answer_that_begins_and_hangs_is_cut_at_its_time(rig: Rig, server: ModelServer) -> None:
    async def hangs(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await reader.read(1)

    server.handler = hangs
    limits = Limits(first_byte_timeout_s=1.0)
    rig.apply(RouteSpec(name="m", mode="serve", targets=(server.target(),), limits=limits))
    client = await rig.connect()
    client.send(post(extra="X-Request-Id: hung\r\n"))
    assert (await client.head()).headers["content-length"] == "100"
    assert await client.rest() == b"half", "and the end comes before the length is reached"
    await until(lambda: rig.gateway.hub.counts.ring.find(b"hung") is not None)
    assert rig.gateway.hub.counts.ring.find(b"hung").outcome == "cut"  # type: ignore[union-attr]
    await until(lambda: server.closed == 1)
    client.close()


async def test_a_replica_that_answers_and_closes_without_reading_is_passed_on(rig: Rig) -> None:
    """Its close makes a reset of the unread body; what it answered before still counts."""

    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        await writer.drain()

    listening = await asyncio.start_server(early, "127.0.0.1", 0)
    server = ModelServer(port=listening.sockets[0].getsockname()[1])
    rig.serve(server)
    client = await rig.connect()
    client.send(b"POST /endpoints/m/x HTTP/1.1\r\nHost: g\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000)
    answer = await client.answer()
    assert (answer.status, answer.body) == (413, b"big")
    client.close()
    listening.close()


@pytest.mark.parametrize("cut_after", [0, 10, 60, 120])
async def test_clients_that_leave_anywhere_leave_nothing_behind(rig: Rig, server: ModelServer, cut_after: int) -> None:
    rig.serve(server)
    raw = post(x="y" * 100)
    for how in ("close", "reset", "half"):
        client = await rig.connect()
        client.send(raw[:cut_after])
        await client.writer.drain()
        if how == "half":
            client.writer.write_eof()
            assert await client.rest() == b"", "a part of a request has no answer"
        elif how == "reset":
            linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        client.close()
    await until(lambda: not rig.gateway.hub.clients)
    assert server.seen == []
    assert (await rig.ask(post())).status == 200


async def test_hundreds_of_idle_connections_keep_nobody_out(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    async with AsyncExitStack() as stack:
        for _ in range(300):
            client = await rig.connect()
            stack.callback(client.close)
        for _ in range(10):
            assert (await rig.ask(post())).status == 200
    await until(lambda: not rig.gateway.hub.clients)
