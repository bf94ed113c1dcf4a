"""What two parsers could read differently is refused, and every refusal has OpenAI's shape."""

import json
import ssl
from pathlib import Path

import pytest
from gateway_rig import ModelServer, Rig, get, post, running_gateway, until

SMUGGLING = {
    "both lengths": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "signed length": b"Content-Length: +5\r\n\r\nhello",
    "length list": b"Content-Length: 5, 5\r\n\r\nhello",
    "hex length": b"Content-Length: 0x5\r\n\r\nhello",
    "folded header": b"X-A: b\r\n Content-Length: 5\r\n\r\nhello",
    "space before colon": b"Content-Length : 5\r\n\r\nhello",
    "bare line feeds": b"X-A: b\nContent-Length: 5\n\n\r\n\r\nhello",
    "bare carriage return": b"X-A: b\rContent-Length: 5\r\n\r\nhello",
    "nul in a value": b"X-A: \x00\r\n\r\n",
    "unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding list": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "coding twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two hosts": b"Host: other\r\n\r\n",
    "no colon": b"nonsense\r\n\r\n",
}


@pytest.mark.parametrize("case", SMUGGLING)
async def test_a_head_open_to_two_readings_is_refused_and_nothing_after_it_is_read(
    rig: Rig, server: ModelServer, case: str
) -> None:
    rig.serve(server)
    client = await rig.connect()
    client.send(b"POST /endpoints/m/x HTTP/1.1\r\nHost: g\r\n" + SMUGGLING[case] + post())
    answer = await client.answer()
    assert answer.status in (400, 501)
    assert answer.headers["connection"] == "close"
    assert answer.error["type"]
    assert await client.rest() == b""
    assert not server.seen


BAD_CHUNKS = [
    b"+5\r\nhello\r\n0\r\n\r\n",
    b"0x5\r\nhello\r\n0\r\n\r\n",
    b"5 \r\nhello\r\n0\r\n\r\n",
    b"5\nhello\r\n0\r\n\r\n",
    b"5_0\r\nhello\r\n0\r\n\r\n",
    b"5\r\nhelloXX0\r\n\r\n",
    b"ffffffffffffffff1\r\nh",
    b"\r\n5\r\nhello",
    b"-1\r\n\r\n",
    b"5;a\nb\r\nhello\r\n0\r\n\r\n",
]


@pytest.mark.parametrize("chunks", BAD_CHUNKS)
async def test_a_malformed_chunk_ends_the_request_and_the_connection(
    rig: Rig, server: ModelServer, chunks: bytes
) -> None:
    rig.serve(server)
    client = await rig.connect()
    client.send(b"POST /endpoints/m/x HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + post())
    answer = await client.answer()
    assert (answer.status, answer.error["code"]) == (400, "bad_request")
    assert await client.rest() == b""
    assert not server.seen


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/2.0\r\nHost: g\r\n\r\n", 505),
        (b"BREW / HTTP/1.1\r\nHost: g\r\n\r\n", 501),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: g\r\n\r\n", 400),
        (b"POST /endpoints/m/x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /v1/x HTTP/1.1\r\nHost: g\r\nExpect: dance\r\nContent-Length: 1\r\n\r\nx", 417),
        (b"GET /livez HTTP/1.1\r\nHost: g\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /livez HTTP/1.1\r\nHost: g\r\nX: " + b"a" * 70_000, 431),
        (b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"DELETE /v1/models HTTP/1.1\r\nHost: g\r\n\r\n", 405),
        (get("/nowhere"), 404),
    ],
)
async def test_bad_requests_get_a_fitting_status(
    rig: Rig, server: ModelServer, request_bytes: bytes, status: int
) -> None:
    rig.serve(server)
    answer = await rig.ask(request_bytes)
    assert answer.status == status
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the request has no `model`"),
        (b"[]", "the body is no JSON object"),
        (b"{}", "the request has no `model`"),
        (b'{"model": 3}', "`model` is a number, not a string"),
        (b'{"model": {"model": "m"}}', "`model` is an object, not a string"),
        (b'{"a": {"model": "m"}}', "the request has no `model`"),
        (b"not json", "the body is not valid JSON at byte 0: "),
        (b'"model"', "the body is no JSON object"),
        (b'{"model"', "the body is not valid JSON at byte 8: "),
        (b'{"model":alpha', "the body is not valid JSON at byte 9: "),
        (b'{"a":"\xc3\xa9", "b": x}', "the body is not valid JSON at byte 16: "),
        (b'{"a":"\xff"}', "the body is not valid JSON: what stands at byte 6 is not UTF-8"),
        (b'{"model": null, "x": "m"}', "`model` is null, not a string"),
        (b'{"a": 1, "model": "' + b"m" * 2000 + b'"}', "`model` is longer than 1024 bytes"),
        (b"[" * 100_000, "the request has no `model`"),
    ],
)
async def test_a_body_without_a_model_name_is_a_clear_error(
    rig: Rig, server: ModelServer, body: bytes, says: str
) -> None:
    rig.serve(server)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    answer = await rig.ask(head + body)
    code = "model_missing" if says.startswith("the request") else "invalid_body"
    assert (answer.status, answer.error["code"]) == (400, code)
    assert answer.error["message"].startswith(says)


@pytest.mark.parametrize("path", ["/v1/x", "/endpoints/m/x"])
async def test_a_body_in_chunks_has_the_limit_of_one_with_a_length(
    tmp_path: Path, server: ModelServer, path: str
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    begins = b'e\r\n{"model": "m"}\r\n'
    one_more = b"64\r\n" + b" " * 100 + b"\r\n"
    async with running_gateway(tmp_path, body_bytes_max=1000) as rig:
        rig.serve(server)
        client = await rig.connect()
        for _ in range(3):  # each has the whole of it
            client.send(head + begins + one_more * 8 + b"0\r\n\r\n")
            assert (await client.answer()).status == 200
        client.send(head + begins)
        for _ in range(10):
            client.send(one_more)  # and never an end
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (413, "body_too_large")
        assert await client.rest() == b""
        await until(
            lambda: server.closed == server.connections, "the replica's connection is closed, since it has a part"
        )
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    ("path", "status"), [("/endpoints/m/x", 503), ("/endpoints/nobody/x", 404), ("/v1/x?model=m", 100)]
)
async def test_who_asks_before_it_sends_a_body_is_not_told_to_go_on_where_no_body_would_help(
    rig: Rig, server: ModelServer, path: str, status: int
) -> None:
    rig.serve(server, mode="stopped")
    client = await rig.connect()
    client.send(f"POST {path} HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n".encode())
    answer = await client.answer()
    assert answer.status == status
    if status != 100:
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""
    client.close()


async def test_json_that_is_sent_as_a_form_is_told_so(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    answer = await rig.ask(post("m", extra="Content-Type: application/x-www-form-urlencoded\r\n"))
    assert answer.error["code"] == "invalid_body"
    assert answer.error["message"] == (
        "the body is a form (Content-Type: application/x-www-form-urlencoded), not JSON: "
        "send Content-Type: application/json"
    )


async def test_a_name_is_not_told_back_at_any_length(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    answer = await rig.ask(post("n" * 1000))
    assert answer.status == 404
    assert answer.error["message"].startswith(f"The model `{'n' * 200}…` does not exist")


async def test_a_method_that_nobody_has_is_the_clients_fault(rig: Rig, server: ModelServer) -> None:
    answer = await rig.ask(b"BREW / HTTP/1.1\r\nHost: g\r\n\r\n")
    assert (answer.status, answer.error["type"]) == (501, "invalid_request_error")


TWICE = [
    b'{"model": "m", "x": 1, "model": "other"}',
    b'{"model": "m", "model": "m"}',
    b'{"model": "m", "x": {"model": 1}, "\\u006dodel": "other"}',
    b'{"model": "m", "n": ' + b"1" * 5000 + b', "mod\\u0065l": 3}',
    b'{"model": "m", "x": "' + b"y" * 200_000 + b'", "model": "other"}',
]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("step", [11, 300_000])
@pytest.mark.parametrize("body", TWICE, ids=range(len(TWICE)))
async def test_a_body_that_names_two_models_reaches_none(
    rig: Rig, server: ModelServer, body: bytes, step: int, chunked: bool
) -> None:
    rig.serve(server)
    step = max(step, len(body) // 50)
    parts = [body[at : at + step] for at in range(0, len(body), step)]
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    client = await rig.connect()
    client.send(f"POST /v1/x HTTP/1.1\r\nHost: g\r\n{framing}\r\n\r\n".encode())
    for part in parts:
        client.send(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
        await client.writer.drain()
    client.send(b"0\r\n\r\n" if chunked else b"")
    answer = await client.answer()
    assert (answer.status, answer.error["code"]) == (400, "model_twice")
    client.send(post())
    assert (await client.answer()).status == 200
    client.close()
    assert len(server.seen) == 1


async def test_a_model_named_again_deeper_or_inside_text_is_no_second_one(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    assert (await rig.ask(post("m", tools=[{"model": 1}], note='"model": "x"', text="\u006d"))).status == 200
    body = b'{"model": "m", "tools": {"model": {"model": 2}}, "x": "\\u006dodel", "y": [""model"", "model"]}'
    head = f"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    assert (await rig.ask(head + body)).status == 200


async def test_an_unknown_model_is_404_and_names_nothing_else(rig: Rig, server: ModelServer) -> None:
    rig.serve(server, name="secret")
    answer = await rig.ask(post("other"))
    assert (answer.status, answer.error["code"], answer.error["type"]) == (
        404,
        "model_not_found",
        "invalid_request_error",
    )
    assert b"secret" not in answer.body


async def test_without_any_table_a_name_is_not_called_unknown(rig: Rig) -> None:
    answer = await rig.ask(post("m"))
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    for path in ("/readyz", "/v1/models", "/v1/models/m"):
        assert (await rig.ask(get(path))).status == 503


async def test_a_refusal_keeps_a_good_connection(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    client = await rig.connect()
    client.send(post("unknown") + post("m"))
    assert (await client.answer()).status == 404
    assert (await client.answer()).status == 200
    client.close()


async def test_attribution_needs_the_token(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    done = await rig.ask(post(extra="X-Request-Id: q-1\r\n"))
    assert done.status == 200
    assert (await rig.ask(get("/moorage/requests/q-1"))).status == 401
    assert (await rig.ask(get("/moorage/requests/q-1", "Authorization: Bearer no\r\n"))).status == 401
    found = await rig.ask(get("/moorage/requests/q-1", "Authorization: Bearer tok\r\n"))
    record = json.loads(found.body)
    assert {k: record[k] for k in ("endpoint", "replica", "revision", "status", "bytes", "outcome", "generation")} == {
        "endpoint": "m",
        "replica": "r-0",
        "revision": "rev-1",
        "status": 200,
        "bytes": 2,
        "outcome": "ok",
        "generation": 1,
    }
    assert (await rig.ask(get("/moorage/requests/q-2", "Authorization: Bearer tok\r\n"))).status == 404


async def test_metrics_count_by_endpoint(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    for _ in range(3):
        await rig.ask(post())
    text = (await rig.ask(get("/metrics"))).body.decode()
    assert 'moorage_gateway_requests_total{namespace="default",endpoint="m",deployment="m",code="2xx"} 3' in text
    assert 'moorage_gateway_in_flight{namespace="default",endpoint="m"} 0' in text


async def test_a_client_that_speaks_tls_to_a_plain_port_is_told_at_once(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="g")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    client = await rig.connect()
    client.send(outgoing.read())
    answer = await client.answer()
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert "http://" in answer.error["message"]
