"""A held request that streams hears of it while it waits, and whatever then comes is told inside of that stream."""

import asyncio
import json

import pytest
from gateway_rig import DEADLINE_S, Client, ModelServer, Rig, Seen, post, reply, until

from moorage.decide.serving.routes import Limits, RouteSpec

EVENTS = b"data: one\n\ndata: two\n\n"
EVENT_STREAM = "Content-Type: text/event-stream\r\n"


def asleep(rig: Rig, **limits: object) -> None:
    rig.apply(RouteSpec(name="m", mode="asleep", limits=Limits(hold_comments_s=0.02, **limits)))  # type: ignore[arg-type]


def awake(rig: Rig, server: ModelServer) -> None:
    route = RouteSpec(name="m", mode="serve", targets=(server.target(),), limits=Limits(hold_comments_s=0.02))
    assert rig.apply(route)


async def comments(client: Client) -> bytes:
    """Read the head and two comments."""
    head = await client.head()
    assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
    assert head.headers["x-request-id"]
    async with asyncio.timeout(DEADLINE_S):
        return await client.reader.readuntil(b"woken)\n\n\r\n") + await client.reader.readuntil(b"woken)\n\n\r\n")


def data_of(chunked: bytes) -> bytes:
    out = b""
    while chunked:
        size, _, chunked = chunked.partition(b"\r\n")
        length = int(size, 16)
        out += chunked[:length]
        assert chunked[length : length + 2] == b"\r\n"
        chunked = chunked[length + 2 :]
        if not length:
            assert not chunked
            return out
    raise AssertionError("the stream has no end")


def comment_lines(count: int) -> bytes:
    return b": waiting for m (it is being woken)\n\n" * count


async def rest_of(client: Client) -> bytes:
    """The data of what is left, without more comments."""
    data = data_of(await client.rest())
    while data.startswith(b": "):
        data = data.partition(b"\n\n")[2]
    return data


@pytest.mark.parametrize("framing", ["length", "chunks", "close"])
async def test_the_replicas_events_follow_the_comments(rig: Rig, server: ModelServer, framing: str) -> None:
    async def stream(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if framing == "length":
            writer.write(reply(EVENTS, extra=EVENT_STREAM))
        elif framing == "chunks":
            writer.write(f"HTTP/1.1 200 OK\r\n{EVENT_STREAM}Transfer-Encoding: chunked\r\n\r\n".encode())
            for at in range(0, len(EVENTS), 7):
                part = EVENTS[at : at + 7]
                writer.write(b"%x;e=1\r\n%b\r\n" % (len(part), part))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
        else:
            writer.write(f"HTTP/1.1 200 OK\r\n{EVENT_STREAM}\r\n".encode() + EVENTS)
        return framing != "close"

    server.handler = stream
    asleep(rig)
    client = await rig.connect()
    client.send(post("m", messages=[], stream=True))
    assert data_of(await comments(client) + b"0\r\n\r\n") == comment_lines(2)
    awake(rig, server)
    assert await rest_of(client) == EVENTS
    assert json.loads(server.seen[0].body) == {"model": "m", "messages": [], "stream": True}
    await until(lambda: rig.router.find("m").in_flight == 0)


@pytest.mark.parametrize(
    ("status", "body", "code", "counted"),
    [
        (400, b'{\n "error": {"code": "too_long", "message": "x"}}', "too_long", 400),
        (500, b"broken", "no_stream", 500),
        (200, b'{"choices": []}', "no_stream", 200),
    ],
)
async def test_another_answer_is_told_as_an_event_and_counted_as_it_was(
    rig: Rig, server: ModelServer, status: int, body: bytes, code: str, counted: int
) -> None:
    async def other(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(body, status))

    server.handler = other
    asleep(rig)
    client = await rig.connect()
    client.send(post("m", stream=True))
    await comments(client)
    awake(rig, server)
    event, done, empty = (await rest_of(client)).split(b"\n\n")
    assert json.loads(event.removeprefix(b"data: "))["error"]["code"] == code
    assert (done, empty) == (b"data: [DONE]", b"")
    stats = rig.gateway.hub.router.find("m").revisions["rev-1"].traffic.statuses
    await until(lambda: stats[counted // 100] == 1)


async def test_a_refusal_is_told_as_an_event(rig: Rig, server: ModelServer) -> None:
    asleep(rig, queue_timeout_s=1.0)
    client = await rig.connect()
    client.send(post("m", stream=True))
    await comments(client)
    event, done, _ = (await rest_of(client)).split(b"\n\n")
    error = json.loads(event.removeprefix(b"data: "))["error"]
    assert error["type"] in ("server_error", "rate_limit_error")
    assert done == b"data: [DONE]"
    assert not rig.router.find("m").waiting


@pytest.mark.parametrize(
    "request_bytes",
    [
        post("m", stream=False),
        post("m", messages=[{"stream": True}]),
        post("m", stream=True).replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
async def test_who_asks_for_no_stream_gets_the_plain_answer(
    rig: Rig, server: ModelServer, request_bytes: bytes
) -> None:
    asleep(rig, queue_timeout_s=1.0)
    answer = await rig.ask(request_bytes)
    assert answer.status in (429, 503, 504)


async def test_a_held_stream_whose_client_leaves_is_held_no_longer(rig: Rig, server: ModelServer) -> None:
    asleep(rig)
    client = await rig.connect()
    client.send(post("m", stream=True))
    await comments(client)
    client.close()
    await until(lambda: not rig.router.find("m").waiting and not rig.gateway.hub.clients)


async def test_a_replica_that_dies_in_the_middle_leaves_no_whole_stream(rig: Rig, server: ModelServer) -> None:
    async def die(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(f"HTTP/1.1 200 OK\r\n{EVENT_STREAM}Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n".encode())
        return False

    server.handler = die
    asleep(rig)
    client = await rig.connect()
    client.send(post("m", stream=True))
    await comments(client)
    awake(rig, server)
    rest = await client.rest()
    assert rest.endswith(b"3\r\none\r\n")
    with pytest.raises(AssertionError, match="no end"):
        data_of(rest)


async def test_by_path_a_body_is_looked_at_however_late_it_comes(rig: Rig, server: ModelServer) -> None:
    asleep(rig)
    client = await rig.connect()
    request = post("m", path="/endpoints/m/v1/chat/completions", stream=True)
    head, _, body = request.partition(b"\r\n\r\n")
    client.send(head + b"\r\n\r\n")
    await until(lambda: rig.gateway.hub.clients)
    for at in range(len(body)):
        client.send(body[at : at + 1])
        await client.writer.drain()
    await comments(client)
    client.close()
