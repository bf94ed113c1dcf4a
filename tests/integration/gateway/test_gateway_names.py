"""Whatever way a request names its endpoint, it gets there; and its replica reads the name that it knows itself by."""

import asyncio
import json

import pytest
from gateway_rig import ModelServer, Rig, get, post, until

from moorage.decide.serving.routes import RevisionSpec, RouteSpec

BOUNDARY = "----form5c3"


def parts(*fields: tuple[str, bytes, str]) -> bytes:
    out = b""
    for name, value, extra in fields:
        disposition = f'Content-Disposition: form-data; name="{name}"{extra}'
        out += f"--{BOUNDARY}\r\n{disposition}\r\n\r\n".encode() + value + b"\r\n"
    return out + f"--{BOUNDARY}--\r\n".encode()


def form(
    body: bytes, content_type: str = f"multipart/form-data; boundary={BOUNDARY}", path: str = "/v1/audio/x"
) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: g\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def served(rig: Rig, server: ModelServer, model: str | None = None, **fields: object) -> None:
    rig.apply(RouteSpec(name="m", mode="serve", targets=(server.target(),), model=model, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path",
    ["/v1/responses", "/v1/rerank", "/v1/score", "/v1/audio/speech", "/v1/embeddings", "/v1/not/yet/invented?x=1"],
)
async def test_any_path_under_v1_goes_to_the_model_that_its_body_names(
    rig: Rig, server: ModelServer, path: str
) -> None:
    served(rig, server)
    assert (await rig.ask(post("m", path=path))).status == 200
    assert server.seen[0].path == path


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST", "HEAD"])
async def test_a_request_without_a_body_names_it_in_the_query(rig: Rig, server: ModelServer, method: str) -> None:
    served(rig, server, "org/model")
    path = "/v1/responses/r-1?include=a&model=m"
    client = await rig.connect()
    client.send(f"{method} {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
    assert (await client.head()).status == 200
    client.close()
    assert server.seen[0].path == "/v1/responses/r-1?include=a&model=org/model"


async def test_a_header_names_it_and_goes_no_further(rig: Rig, server: ModelServer) -> None:
    served(rig, server, "org/model")
    for request in (
        get("/v1/responses/r-1", "X-Moorage-Endpoint: m\r\n"),
        post("anything", extra="x-moorage-endpoint: default/m\r\n"),
    ):
        assert (await rig.ask(request)).status == 200
    assert [seen.path for seen in server.seen] == ["/v1/responses/r-1", "/v1/chat/completions"]
    assert not any("x-moorage-endpoint" in seen.headers for seen in server.seen)
    assert json.loads(server.seen[1].body)["model"] == "anything"
    twice = "X-Moorage-Endpoint: m\r\nX-Moorage-Endpoint: n\r\n"
    assert (await rig.ask(post("m", extra=twice))).status == 404


async def test_what_names_nothing_is_told_every_way_to_name_it(rig: Rig, server: ModelServer) -> None:
    served(rig, server)
    for request in (
        get("/v1/responses/r-1"),
        get("/v1/responses/r-1?models=m"),
        post("m").replace(b'"model"', b'"mod_l"'),
        form(parts(("file", b"x" * 100, ""))),
        form(b"a=1&b=2", "application/x-www-form-urlencoded"),
        form(b"RIFF....", "audio/wav"),
    ):
        answer = await rig.ask(request)
        assert (answer.status, answer.error["code"]) == (400, "model_missing")
        assert all(word in answer.error["message"] for word in ("JSON", "form", "query", "/endpoints/NAME/"))
    answer = await rig.ask(get("/v1/x?model=m&model=n"))
    assert (answer.status, answer.error["code"]) == (400, "model_twice")
    answer = await rig.ask(form(parts(("model", b"m", "")), "multipart/form-data"))
    assert (answer.status, answer.error["code"]) == (400, "bad_request")
    assert not server.seen


async def test_a_slash_in_a_name_may_be_escaped_in_a_path(rig: Rig, server: ModelServer) -> None:
    served(rig, server)
    assert json.loads((await rig.ask(get("/v1/models/default%2Fm"))).body)["id"] == "m"
    assert (await rig.ask(get("/endpoints/default%2Fm/v1/x%2Fy"))).status == 200
    assert server.seen[0].path == "/v1/x%2Fy"


async def test_a_body_that_is_no_json_may_be_named_in_the_query(rig: Rig, server: ModelServer) -> None:
    served(rig, server)
    assert (await rig.ask(form(b"RIFF....", "audio/wav", "/v1/audio/x?model=m"))).status == 200
    assert server.seen[0].body == b"RIFF...."


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("step", [7919, 10**9])
async def test_a_form_names_it_after_a_large_file_too(rig: Rig, server: ModelServer, first: bool, step: int) -> None:
    served(rig, server, "org/whisper")
    file = bytes(range(256)) * 12_000 + b'\r\n--not-it\r\nContent-Disposition: form-data; name="model"\r\n\r\nwrong\r\n'
    fields = [("file", file, '; filename="a.wav"'), ("model", b"m", ""), ("language", b"en", "")]
    if first:
        fields.insert(0, fields.pop(1))
    request = form(parts(*fields))
    client = await rig.connect()
    for at in range(0, len(request), step):
        client.send(request[at : at + step])
        await client.writer.drain()
    assert (await client.answer()).status == 200
    client.close()
    fields[fields.index(("model", b"m", ""))] = ("model", b"org/whisper", "")
    assert server.seen[0].body == parts(*fields)


async def test_a_form_with_two_models_is_refused(rig: Rig, server: ModelServer) -> None:
    served(rig, server)
    for body, kind in (
        (parts(("model", b"m", ""), ("model", b"n", "")), f'multipart/form-data; boundary="{BOUNDARY}"'),
        (b"model=m&model=n", "application/x-www-form-urlencoded"),
    ):
        answer = await rig.ask(form(body, kind))
        assert (answer.status, answer.error["code"]) == (400, "model_twice")


async def test_a_form_of_pairs_names_it(rig: Rig, server: ModelServer) -> None:
    served(rig, server, "org/model v2")
    body = b"prompt=a%26model%3Dx&m%6Fdel=m&n=1"
    assert (await rig.ask(form(body, "application/x-www-form-urlencoded"))).status == 200
    assert server.seen[0].body == b"prompt=a%26model%3Dx&m%6Fdel=org%2Fmodel+v2&n=1"


async def test_json_before_the_first_part_of_a_form_names_nothing(rig: Rig, server: ModelServer) -> None:
    served(rig, server)
    body = b'{"model": "other"}\r\n' + parts(("model", b"m", ""))
    assert (await rig.ask(form(body))).status == 200


# --- the replica's own name ------------------------------------------------------------------------------------------


def chunked(body: bytes, sizes: list[int], trailer: bytes = b"") -> bytes:
    out, at = b"POST /v1/x HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n", 0
    for size in (*sizes, len(body)):
        data = body[at : at + size]
        at += size
        if data:
            out += b"%x\r\n%b\r\n" % (len(data), data)
    return out + b"0\r\n" + trailer + b"\r\n"


@pytest.mark.parametrize("name", ["m", "default/m"])
async def test_another_name_is_written_as_the_replica_calls_it(rig: Rig, server: ModelServer, name: str) -> None:
    served(rig, server, 'org/"model"', aliases=("gpt",))
    for body in (
        b'{"model":"%b","a":[1]}',
        b'{"a":{"model":"x"},"model" : "%b"}',
        b'{"b":"\\"model\\":","model":"%b"}',
    ):
        raw = body % name.encode()
        head = f"POST /v1/x HTTP/1.1\r\nHost: g\r\ncontent-length: {len(raw)}\r\nX-A: 1\r\n\r\n".encode()
        assert (await rig.ask(head + raw)).status == 200
        assert server.seen[-1].body == body % rb"org/\"model\""
        assert server.seen[-1].headers["x-a"] == "1"
    body = b'{ "a":1,\n"model" :"gpt"}'
    head = f"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    assert (await rig.ask(head + body)).status == 200
    assert server.seen[-1].body == body, "an alias is the replica's own"


@pytest.mark.parametrize("step", [1, 2, 3, 11, 10**9])
async def test_in_chunks_the_name_is_replaced_however_they_are_cut(rig: Rig, server: ModelServer, step: int) -> None:
    served(rig, server, "org/a-longer-name")
    body = b'{"messages": [{"content": "0\\r\\n\\r\\n"}], "model": "m", "n": 2}'
    client = await rig.connect()
    for sizes in ([1, 2, 3, 50], [60], [], [47, 1, 1, 1]):
        request = chunked(body, sizes, b"X-Sum: 1\r\n")
        for at in range(0, len(request), step):
            client.send(request[at : at + step])
            await client.writer.drain()
            await asyncio.sleep(0)
        assert (await client.answer()).status == 200
        assert server.seen[-1].body == body.replace(b'"m"', b'"org/a-longer-name"')
    client.close()


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_long_body_goes_on_as_it_comes_with_its_name_replaced(
    rig: Rig, server: ModelServer, framing: str
) -> None:
    served(rig, server, "org/model")
    filler = b"x" * 700_000
    body = b'{"model": "m", "prompt": "' + filler + b'"}'
    if framing == "length":
        request = f"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    else:
        request = chunked(body, [300_000, 300_000])
    client = await rig.connect()
    client.send(request[:290_000])
    await until(lambda: server.connections == 1, "it went on before it was whole")
    client.send(request[290_000:])
    assert (await client.answer()).status == 200
    client.close()
    assert server.seen[0].body == body.replace(b'"m"', b'"org/model"', 1)


async def test_the_path_passes_a_body_untouched(rig: Rig, server: ModelServer) -> None:
    served(rig, server, "org/model")
    assert (await rig.ask(post("m", path="/endpoints/m/v1/chat/completions"))).status == 200
    assert json.loads(server.seen[0].body)["model"] == "m"


async def test_a_copy_gets_the_replicas_own_name_as_well(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    rig.apply(
        RouteSpec(
            name="m",
            mode="serve",
            model="org/model",
            targets=(server.target("a", "rev-1"), second_server.target("b", "rev-2")),
            revisions=(
                RevisionSpec("rev-1", 1),
                RevisionSpec("rev-2", 2, role="candidate", by="mirror", share=100.0),
            ),
        )
    )
    assert (await rig.ask(post("m", n=1))).status == 200
    await until(lambda: second_server.seen)
    assert json.loads(second_server.seen[0].body) == {"model": "org/model", "n": 1}
    assert second_server.seen[0].body == server.seen[0].body
