"""A request is sent a second time only where its policy says so, over a kept connection that was closed, and once."""

import asyncio

import pytest
from gateway_rig import ModelServer, Rig, Seen, get, post, reply, until

PUT = b"PUT /endpoints/m/x HTTP/1.1\r\nHost: g\r\nContent-Length: 4\r\n\r\nbody"
BARE_POST = b"POST /endpoints/m/x HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\n\r\n"


class Closing:
    """Answers the first request of each connection, and closes without a word when the second one comes."""

    def __init__(self, server: ModelServer, last_words: bytes = b"") -> None:
        self.answered: set[asyncio.StreamWriter] = set()
        self.swallowed = 0
        self.last_words = last_words
        server.handler = self

    async def __call__(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if writer in self.answered:
            self.swallowed += 1
            writer.write(self.last_words)
            return False
        self.answered.add(writer)
        writer.write(reply(seen.body or b"ok"))
        return True


@pytest.mark.parametrize(
    ("rule", "request_bytes", "repeated"),
    [
        ("idempotent", get("/endpoints/m/x"), True),
        ("idempotent", PUT, True),
        ("idempotent", post("m"), False),
        ("idempotent", BARE_POST, False),
        ("never", get("/endpoints/m/x"), False),
        ("never", PUT, False),
        ("always", post("m"), True),
        ("always", get("/endpoints/m/x"), True),
    ],
)
async def test_a_request_that_a_stale_connection_swallowed(
    rig: Rig, server: ModelServer, rule: str, request_bytes: bytes, repeated: bool
) -> None:
    closing = Closing(server)
    rig.serve(server, retry=rule)
    client = await rig.connect()
    client.send(request_bytes)
    first = await client.answer()
    assert first.status == 200
    client.send(request_bytes)
    second = await client.answer()
    assert closing.swallowed == 1
    assert second.status == (200 if repeated else 502)
    if repeated:
        assert second.body == first.body
        assert server.seen[1].body == server.seen[2].body
        assert server.seen[1].headers["x-request-id"] == server.seen[2].headers["x-request-id"]
    assert len(server.seen) == (3 if repeated else 2)
    assert rig.router.find("m").in_flight == 0
    client.send(request_bytes)
    assert (await client.answer()).status == 200
    client.close()


async def test_a_new_connection_that_is_closed_is_no_stale_one(rig: Rig, server: ModelServer) -> None:
    async def close(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        return False

    server.handler = close
    rig.serve(server, retry="always")
    assert (await rig.ask(get("/endpoints/m/x"))).status == 502
    assert len(server.seen) == 1


@pytest.mark.parametrize("words", [b"HTTP/1.1 200 O", b"HTTP/1.1 103 Early Hints\r\n\r\n", b"nonsense\r\n\r\n"])
async def test_after_a_byte_of_an_answer_nothing_is_repeated(rig: Rig, server: ModelServer, words: bytes) -> None:
    Closing(server, words)
    rig.serve(server, retry="always")
    client = await rig.connect()
    for status in (200, 502):
        client.send(get("/endpoints/m/x"))
        assert (await client.answer()).status == status
    client.close()
    assert len(server.seen) == 2


async def test_it_is_repeated_once(rig: Rig, server: ModelServer) -> None:
    refusing = False

    async def handler(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if refusing:
            return False
        writer.write(reply())
        return True

    server.handler = handler
    rig.serve(server, retry="always")
    one, two = await rig.connect(), await rig.connect()
    one.send(post("m"))
    two.send(post("m"))
    assert (await one.answer()).status == (await two.answer()).status == 200
    refusing = True
    one.send(post("m"))
    assert (await one.answer()).status == 502
    assert len(server.seen) == 4
    one.close()
    two.close()


async def test_a_request_that_went_on_as_it_came_is_not_repeated(rig: Rig, server: ModelServer) -> None:
    closing = Closing(server)
    rig.serve(server, retry="always")
    client = await rig.connect()
    client.send(PUT)
    assert (await client.answer()).status == 200
    head = PUT.removesuffix(b"body")
    client.send(head)
    await until(lambda: rig.router.find("m").in_flight == 1)
    await until(lambda: next(iter(rig.gateway.hub.clients)).upstream is not None)
    client.send(b"body")
    assert (await client.answer()).status == 502
    client.close()
    assert closing.swallowed == 1
