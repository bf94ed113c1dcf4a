"""What goes through the gateway arrives as it was sent, and ends where it ended."""

import asyncio
import json

import pytest
from gateway_rig import DEADLINE_S, ModelServer, Rig, Seen, get, post, reply, until


async def test_a_request_reaches_the_replica_of_the_model_it_names(rig: Rig, server: ModelServer) -> None:
    rig.serve(server, name="m")
    answer = await rig.ask(post("m", temperature=1))
    assert (answer.status, answer.body) == (200, b"ok")
    assert json.loads(server.seen[0].body) == {"model": "m", "temperature": 1}
    assert server.seen[0].headers["x-request-id"] == answer.headers["x-request-id"]
    assert answer.headers["x-moorage-replica"] == "r-0"


async def test_a_sane_request_id_of_the_client_is_kept_and_another_is_replaced(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    kept = await rig.ask(post(extra="X-Request-Id: abc-1\r\n"))
    assert kept.headers["x-request-id"] == "abc-1" == server.seen[0].headers["x-request-id"]
    replaced = await rig.ask(post(extra="X-Request-Id: a b!\r\n"))
    assert replaced.headers["x-request-id"] != "a b!"


async def test_endpoint_paths_lose_their_prefix_and_keep_their_query(rig: Rig, server: ModelServer) -> None:
    rig.serve(server, name="m")
    for path in ("/endpoints/m/a/b?x=1", "/endpoints/default/m/a/b?x=1", "/endpoints/m", "/endpoints/m?q=2"):
        assert (await rig.ask(get(path))).status == 200
    assert [seen.path for seen in server.seen] == ["/a/b?x=1", "/a/b?x=1", "/", "/?q=2"]


async def test_one_connection_serves_many_requests_and_so_does_the_one_upstream(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    client = await rig.connect()
    for _ in range(5):
        client.send(post())
        assert (await client.answer()).status == 200
    client.close()
    assert (server.connections, len(server.seen)) == (1, 5)


async def test_pipelined_requests_are_answered_in_order_and_apart(rig: Rig, server: ModelServer) -> None:
    async def echo(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(seen.body))

    server.handler = echo
    rig.serve(server)
    client = await rig.connect()
    client.send(b"".join(post(n=n) for n in range(10)) + get("/livez") + post(n=10))
    bodies = [(await client.answer()).body for _ in range(12)]
    client.close()
    assert bodies.pop(10) == b"ok\n"
    assert [json.loads(body)["n"] for body in bodies] == list(range(11))


async def test_hop_by_hop_headers_stop_here(rig: Rig, server: ModelServer) -> None:
    async def hop(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            reply(
                b"x", extra="Connection: keep-alive, X-Secret\r\nKeep-Alive: timeout=5\r\nX-Secret: 1\r\nX-Kept: 1\r\n"
            )
        )

    server.handler = hop
    rig.serve(server)
    hop_by_hop = (
        "Connection: X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nProxy-Authorization: x\r\nX-Other: 1\r\n"
    )
    answer = await rig.ask(post(extra=hop_by_hop))
    sent = server.seen[0].headers
    assert "x-other" in sent
    assert not {"connection", "x-mine", "te", "upgrade", "proxy-authorization"} & set(sent)
    assert answer.headers["x-kept"] == "1"
    assert not {"x-secret", "keep-alive"} & set(answer.headers)


CHUNKS = [b"data: one\n\n", b"0\r\n\r\n", b"data: [DONE]\n\nHTTP/1.1 200 OK\r\n\r\n"]
CHUNKED = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in CHUNKS) + b"0\r\n\r\n"


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
async def test_chunk_data_that_looks_like_an_end_is_data_however_it_is_cut(
    rig: Rig, server: ModelServer, step: int
) -> None:
    async def stream(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n" + CHUNKED
        for at in range(0, len(whole), step):
            writer.write(whole[at : at + step])
            await writer.drain()
            await asyncio.sleep(0)

    server.handler = stream
    rig.serve(server)
    client = await rig.connect()
    for _ in range(2):
        client.send(post(stream=True))
        head = await client.head()
        assert head.headers["transfer-encoding"] == "chunked"
        assert await client.reader.readexactly(len(CHUNKED)) == CHUNKED
    client.close()
    assert server.connections == 1


async def test_stray_bytes_after_an_answer_reach_nobody(rig: Rig, server: ModelServer) -> None:
    stray = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"

    async def twice(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(server.seen) % 2:
            writer.write(reply(b"true") + stray)
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntrue\r\n0\r\n\r\n" + stray)

    server.handler = twice
    rig.serve(server)
    client = await rig.connect()
    for _ in range(4):
        client.send(post())
        assert (await client.answer()).body == b"true"
    client.close()
    assert server.connections == 4


async def test_a_chunked_request_is_passed_on_as_it_came(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    body = json.dumps({"messages": ['{"model": "no"}'] * 50, "model": "m"}).encode()
    wire = (
        b"".join(b"%x\r\n%b\r\n" % (len(body[i : i + 9]), body[i : i + 9]) for i in range(0, len(body), 9))
        + b"0\r\n\r\n"
    )
    client = await rig.connect()
    for step in (1, 10, 100_000):
        client.send(b"POST /v1/x HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(wire), step):
            client.send(wire[at : at + step])
            if step == 10:
                await asyncio.sleep(0)
        assert (await client.answer()).status == 200
    client.close()
    assert [seen.body for seen in server.seen] == [body] * 3


async def test_expect_continue_is_answered_and_not_passed_on(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    client = await rig.connect()
    body = b'{"model": "m"}'
    for path in ("/v1/x", "/endpoints/m/x"):
        head = f"POST {path} HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        client.send(head.encode())
        assert (await client.head()).status == 100
        client.send(body)
        assert (await client.answer()).status == 200
    client.close()
    assert all("expect" not in seen.headers and seen.body == body for seen in server.seen)


async def test_a_client_of_http_1_0_gets_the_data_without_chunks_and_a_close(rig: Rig, server: ModelServer) -> None:
    async def stream(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED)

    server.handler = stream
    rig.serve(server)
    client = await rig.connect()
    client.send(b"GET /endpoints/m/x HTTP/1.0\r\n\r\n")
    head = await client.head()
    assert "transfer-encoding" not in head.headers
    assert await client.rest() == b"".join(CHUNKS)


async def test_connection_close_closes_even_when_the_head_was_seen_before(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    for _ in range(3):
        client = await rig.connect()
        client.send(post(extra="Connection: close\r\n"))
        answer = await client.answer()
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_an_upstream_that_says_close_is_not_used_again(rig: Rig, server: ModelServer) -> None:
    async def closing(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(reply(extra="Connection: close\r\n"))
        return False

    server.handler = closing
    rig.serve(server)
    client = await rig.connect()
    for _ in range(3):
        client.send(post())
        assert (await client.answer()).status == 200
    client.close()
    assert server.connections == 3


async def test_an_answer_to_head_has_no_body_and_keeps_the_connection(rig: Rig, server: ModelServer) -> None:
    async def to_head(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(b"" if seen.method == "HEAD" else b"body", extra=""))

    async def head_with_length(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + (b"" if seen.method == "HEAD" else b"body"))

    server.handler = head_with_length
    rig.serve(server)
    client = await rig.connect()
    for _ in range(2):
        client.send(b"HEAD /endpoints/m/x HTTP/1.1\r\nHost: g\r\n\r\n")
        assert (await client.head()).headers["content-length"] == "4"
        client.send(get("/endpoints/m/x"))
        assert (await client.answer()).body == b"body"
    client.close()
    assert server.connections == 1


async def test_a_large_upload_is_held_back_when_the_model_server_does_not_read(rig: Rig, server: ModelServer) -> None:
    gate = asyncio.Event()
    size = 64 * 1024 * 1024

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await gate.wait()
        await reader.readexactly(size)
        writer.write(reply())
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(slow, "127.0.0.1", 0, limit=65536)
    server.port = listener.sockets[0].getsockname()[1]
    rig.serve(server)
    client = await rig.connect()
    client.send(f"POST /endpoints/m/x HTTP/1.1\r\nHost: g\r\nContent-Length: {size}\r\n\r\n".encode())

    async def upload() -> None:
        block = b"x" * 65536
        for _ in range(size // len(block)):
            client.send(block)
            await client.writer.drain()

    uploading = asyncio.ensure_future(upload())
    await until(lambda: any(c._reading_paused for c in rig.gateway.hub.clients), "the client is held back")
    assert not uploading.done()
    gate.set()
    async with asyncio.timeout(DEADLINE_S):
        await uploading
    assert (await client.answer()).status == 200
    client.close()
    listener.close()


async def test_a_client_that_does_not_read_holds_the_model_server_back(rig: Rig, server: ModelServer) -> None:
    size = 64 * 1024 * 1024
    sent = 0

    async def flood(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
        for _ in range(size // 65536):
            writer.write(b"y" * 65536)
            sent += 65536
            await writer.drain()

    server.handler = flood
    rig.serve(server)
    client = await rig.connect()
    client.send(get("/endpoints/m/x"))
    head = await client.head()
    await until(lambda: any(c._writing_paused for c in rig.gateway.hub.clients), "the model server is held back")
    assert sent < size
    assert head.status == 200
    async with asyncio.timeout(DEADLINE_S):
        body = await client.reader.readexactly(size)
    assert body == b"y" * size
    client.send(get("/livez"))
    assert (await client.answer()).body == b"ok\n"
    client.close()
