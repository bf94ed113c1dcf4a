"""However large a body and however slow who reads it: a gateway's process keeps a little of it only."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from gateway_process import GatewayProcess, gateway_process, keep_table
from gateway_rig import DEADLINE_S, Client, ModelServer, Seen, get
from test_gateway_processes import metrics

MIB = 1024 * 1024
WHOLE = 96 * MIB
PART = 256 * 1024
GROWTH_MAX = 24 * MIB
"""Both ways' socket buffers and copies in passing; a quarter of what goes through."""


async def resident(gateway: GatewayProcess) -> float:
    return sum(value for name, value in (await metrics(gateway)).items() if "process_resident_bytes" in name)


async def until_still(moved: Callable[[], int]) -> None:
    """Until nothing has moved for a while: who reads nothing holds back who writes."""
    async with asyncio.timeout(DEADLINE_S):
        before = -1
        while moved() != before:
            before = moved()
            await asyncio.sleep(0.5)


async def send_body(client: Client, sent: list[int]) -> None:
    for _ in range(WHOLE // PART):
        client.send(b"x" * PART)
        await client.writer.drain()
        sent.append(PART)


@pytest.mark.parametrize("framing", ["length", pytest.param("chunked", marks=pytest.mark.slow)])
async def test_an_upload_to_a_slow_replica_is_not_kept(tmp_path: Path, framing: str) -> None:
    gate, got = asyncio.Event(), 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await reader.readuntil(b"\r\n\r\n")
        await gate.wait()
        while got < WHOLE:
            got += len(await reader.read(MIB))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(slow, "127.0.0.1", 0, limit=65536)
    server = ModelServer(port=listener.sockets[0].getsockname()[1])
    keep_table(tmp_path, server)
    async with gateway_process(tmp_path) as gateway:
        client = await gateway.connect()
        before = await resident(gateway)
        line = f"Content-Length: {WHOLE}" if framing == "length" else "Transfer-Encoding: chunked"
        client.send(f"POST /endpoints/m/x HTTP/1.1\r\nHost: g\r\n{line}\r\n\r\n".encode())
        if framing == "chunked":
            client.send(b"%x\r\n" % WHOLE)
        sent: list[int] = []
        sending = asyncio.create_task(send_body(client, sent))
        await until_still(lambda: len(sent))
        assert not sending.done()
        assert await resident(gateway) - before < GROWTH_MAX
        gate.set()
        await sending
        client.send(b"\r\n0\r\n\r\n" if framing == "chunked" else b"")
        assert (await client.answer()).body == b"ok"
        assert await resident(gateway) - before < GROWTH_MAX
        client.close()
    listener.close()


async def test_an_answer_to_a_slow_reader_is_not_kept(tmp_path: Path, server: ModelServer) -> None:
    written = 0

    async def flood(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % WHOLE)
        while written < WHOLE:
            writer.write(b"y" * PART)
            await writer.drain()
            written += PART

    server.handler = flood
    keep_table(tmp_path, server)
    async with gateway_process(tmp_path) as gateway:
        client = await gateway.connect()
        before = await resident(gateway)
        client.send(get("/endpoints/m/x"))
        await client.head()
        await until_still(lambda: written)
        assert written < WHOLE
        assert await resident(gateway) - before < GROWTH_MAX
        left = WHOLE
        while left:
            left -= len(await client.reader.read(MIB))
        assert await resident(gateway) - before < GROWTH_MAX
        client.close()
