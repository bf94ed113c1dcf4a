"""Header lines and trailers that a proxy must not pass, and those that it adds where it is told to."""

import asyncio
from pathlib import Path

import pytest
from gateway_rig import DEADLINE_S, ModelServer, Rig, Seen, get, post, reply, running_gateway, until

CHUNKED = b"POST /endpoints/m/x HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n%b\r\n\r\n"
BAD = [
    b"Content-Length: 3",
    b"transfer-encoding: chunked",
    b"HOST: other",
    b"Authorization: Bearer x",
    b"X-Request-Id: forged",
    b"X-Moorage-Replica: forged",
    b"Trailer : space",
    b" folded: line",
    b"X-Bad: \x01",
]


@pytest.mark.parametrize("trailer", BAD)
async def test_a_trailer_that_belongs_in_the_head_is_refused(rig: Rig, server: ModelServer, trailer: bytes) -> None:
    rig.serve(server)
    assert (await rig.ask(CHUNKED % trailer)).status == 400
    assert not server.seen


async def test_an_answers_trailer_that_belongs_in_the_head_cuts_it(rig: Rig, server: ModelServer) -> None:
    async def bad(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
        await writer.drain()
        await sent.wait()
        writer.write(b"0\r\nSet-Cookie: a=b\r\n\r\n")

    sent = asyncio.Event()
    server.handler = bad
    rig.serve(server)
    client = await rig.connect()
    client.send(post("m"))
    assert (await client.head()).status == 200
    assert await client.reader.readexactly(7) == b"2\r\nok\r\n"
    sent.set()
    assert await client.rest() == b""


async def test_lines_of_a_replica_that_look_like_ours_do_not_pass(rig: Rig, server: ModelServer) -> None:
    async def pretend(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        forged = "X-Moorage-Replica: forged\r\nx-moorage-anything: forged\r\nX-Request-Id: forged\r\nX-Other: 1\r\n"
        writer.write(reply(extra=forged))

    server.handler = pretend
    rig.serve(server)
    for _ in range(3):
        answer = await rig.ask(post("m"))
        assert answer.headers["x-moorage-replica"] == "r-0"
        assert answer.headers["x-other"] == "1"
        assert "forged" not in str(answer.headers)


async def test_who_asked_is_told_only_where_the_gateway_is_told_to(server: ModelServer, tmp_path: Path) -> None:
    for forwarded in (False, True):
        async with running_gateway(tmp_path / str(forwarded), forwarded=forwarded) as rig:
            rig.serve(server)
            assert (await rig.ask(get("/endpoints/m/x", "X-Forwarded-For: 10.0.0.9\r\n"))).status == 200
    without, told = (seen.raw_head.lower() for seen in server.seen)
    assert without.count(b"x-forwarded-") == 1
    assert b"x-forwarded-for: 10.0.0.9\r\nx-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\n" in told


async def test_a_client_that_reads_no_more_frees_its_replica(server: ModelServer, tmp_path: Path) -> None:
    async def endless(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
            await writer.drain()

    server.handler = endless
    async with running_gateway(tmp_path, write_timeout_s=1.0) as rig:
        rig.serve(server)
        client = await rig.connect()
        client.writer.transport.pause_reading()
        client.send(post("m"))
        await until(lambda: rig.router.find("m").in_flight == 1)
        await until(lambda: rig.router.find("m").in_flight == 0)
        await until(lambda: server.closed == 1)
        assert rig.router.find("m").revisions["rev-1"].traffic.client_gone == 1
        await until(lambda: not rig.gateway.hub.clients)


async def test_a_client_that_reads_slowly_is_not_cut(server: ModelServer, tmp_path: Path) -> None:
    size = 24 * 1024 * 1024

    async def large(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(bytes(size)))

    server.handler = large
    async with running_gateway(tmp_path, write_timeout_s=30.0) as rig:
        rig.serve(server)
        client = await rig.connect()
        client.send(post("m"))
        await client.head()
        async with asyncio.timeout(DEADLINE_S):
            left = size
            while left:
                left -= len(await client.reader.readexactly(min(left, 2_000_000)))
                await asyncio.sleep(0)
        client.close()
