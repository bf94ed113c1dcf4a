"""Whatever a client or a replica writes, one request is one request and one answer is one answer.

Each case hides a request for `/hidden` where one reading sees the body of another, or nothing at all. It must reach no
replica, and what does reach one is read by h11, which is strict and not ours, as exactly one request after the other.
"""

import pytest

from moorage.decide.serving.routes import Limits
from tests.gateway_on_wires import OK, Request, World, answers

HIDDEN = b"GET /endpoints/m/hidden HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /endpoints/m/seen HTTP/1.1\r\nHost: h\r\n"
CHUNKS = b"0\r\n\r\n"


def post(lines: bytes, body: bytes) -> bytes:
    return POST + lines + b"\r\n" + body


REFUSED = {
    "content-length and transfer-encoding": post(
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", CHUNKS + HIDDEN
    ),
    "transfer-encoding and content-length": post(
        b"Transfer-Encoding: chunked\r\nContent-Length: 50\r\n", CHUNKS + HIDDEN
    ),
    "transfer-encoding twice": post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", CHUNKS + HIDDEN),
    "transfer-encoding twice, one unknown": post(
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", CHUNKS + HIDDEN
    ),
    "two codings": post(b"Transfer-Encoding: gzip, chunked\r\n", CHUNKS + HIDDEN),
    "chunked not last": post(b"Transfer-Encoding: chunked, identity\r\n", CHUNKS + HIDDEN),
    "an unknown coding": post(b"Transfer-Encoding: xchunked\r\n", CHUNKS + HIDDEN),
    "identity": post(b"Transfer-Encoding: identity\r\n", CHUNKS + HIDDEN),
    "an empty coding": post(b"Transfer-Encoding:\r\n", CHUNKS + HIDDEN),
    "a quoted coding": post(b'Transfer-Encoding: "chunked"\r\n', CHUNKS + HIDDEN),
    "a coding after a vertical tab": post(b"Transfer-Encoding: \x0bchunked\r\n", CHUNKS + HIDDEN),
    "space before the colon of a coding": post(
        b"Transfer-Encoding : chunked\r\nContent-Length: 0\r\n", CHUNKS + HIDDEN
    ),
    "tab before the colon of a length": post(b"Content-Length\t: 45\r\n", HIDDEN),
    "a folded coding": post(b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 0\r\n", CHUNKS + HIDDEN),
    "a folded line": post(b"X-A: 1\r\n Content-Length: 45\r\n", HIDDEN),
    "a first line that is folded": b"GET /endpoints/m/seen HTTP/1.1\r\n Host: h\r\n\r\n" + HIDDEN,
    "length twice": post(b"Content-Length: 0\r\nContent-Length: 45\r\n", HIDDEN),
    "length twice, alike": post(b"Content-Length: 0\r\nContent-Length: 0\r\n", HIDDEN),
    "two lengths in one line": post(b"Content-Length: 0, 45\r\n", HIDDEN),
    "a length with a plus": post(b"Content-Length: +0\r\n", HIDDEN),
    "a length with a minus": post(b"Content-Length: -45\r\n", HIDDEN),
    "a length with an underscore": post(b"Content-Length: 4_5\r\n", HIDDEN),
    "a hexadecimal length": post(b"Content-Length: 0x2d\r\n", HIDDEN),
    "a length with a space in it": post(b"Content-Length: 4 5\r\n", HIDDEN),
    "an empty length": post(b"Content-Length:\r\n", HIDDEN),
    "a length that no machine has": post(b"Content-Length: 99999999999999999999\r\n", HIDDEN),
    "a length in other digits": post("Content-Length: ٤٥\r\n".encode(), HIDDEN),
    "a bare CR in a line": post(b"X-A: 1\rContent-Length: 45\r\n", HIDDEN),
    "a bare LF in a line": post(b"X-A: 1\nContent-Length: 45\r\n", HIDDEN),
    "NUL in a line": post(b"X-A: 1\x00\r\nContent-Length: 45\r\n", HIDDEN),
    "NUL in a name": post(b"Content-Length\x00: 45\r\n", HIDDEN),
    "a line without a colon": post(b"Content-Length 45\r\n", HIDDEN),
    "a line without a name": post(b": 45\r\n", HIDDEN),
    "a name in brackets": post(b"[Content-Length]: 45\r\n", HIDDEN),
    "two hosts": b"GET /endpoints/m/seen HTTP/1.1\r\nHost: h\r\nHost: g\r\n\r\n",
    "no host": b"GET /endpoints/m/seen HTTP/1.1\r\n\r\n",
    "a bare LF ends the first line": b"GET /endpoints/m/seen HTTP/1.1\nHost: h\r\n\r\n",
    "a bare CR in the target": b"GET /endpoints/m/se\ren HTTP/1.1\r\nHost: h\r\n\r\n",
    "a space in the target": b"GET /endpoints/m/se en HTTP/1.1\r\nHost: h\r\n\r\n",
    "a tab for a space": b"GET\t/endpoints/m/seen HTTP/1.1\r\nHost: h\r\n\r\n",
    "NUL in the target": b"GET /endpoints/m/se\x00en HTTP/1.1\r\nHost: h\r\n\r\n",
    "no version": b"GET /endpoints/m/seen\r\nHost: h\r\n\r\n",
    "a version of its own": b"GET /endpoints/m/seen HTTP/1.2\r\nHost: h\r\n\r\n",
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    "HTTP/0.9": b"GET /endpoints/m/seen\r\n\r\n" + HIDDEN,
    "a method in lower case with a colon": b"ge:t /endpoints/m/seen HTTP/1.1\r\nHost: h\r\n\r\n",
    "CONNECT": b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n" + HIDDEN,
    "chunks of HTTP/1.0": POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS + HIDDEN,
    "an unknown expectation": post(b"Expect: magic\r\nContent-Length: 45\r\n", HIDDEN),
}
"""Heads that two parsers may read in two ways: refused, and nothing that follows is read."""


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("step", [1, 10_000])
def test_a_head_of_two_readings_is_refused_and_ends_the_connection(name: str, step: int) -> None:
    world = World()
    client = world.client()
    raw = REFUSED[name]
    client.send(*(raw[at : at + step] for at in range(0, len(raw), step)))
    statuses = client.statuses
    assert len(statuses) == 1
    assert statuses[0] in {400, 408, 417, 501, 505}
    assert world.arrived == []
    assert client.wire.ended or client.wire.closing, "where the next request begins is unknown"
    client.send(HIDDEN)
    assert (len(client.statuses), world.arrived) == (1, [])
    world.close()
    assert world.left_over() == []


BODIES = {
    "a chunk size with a plus": b"+5\r\nhello\r\n" + CHUNKS + HIDDEN,
    "a chunk size with a minus": b"-5\r\nhello\r\n" + CHUNKS + HIDDEN,
    "a chunk size with an underscore": b"0_5\r\nhello\r\n" + CHUNKS + HIDDEN,
    "a chunk size with 0x": b"0x5\r\nhello\r\n" + CHUNKS + HIDDEN,
    "a chunk size after a space": b" 5\r\nhello\r\n" + CHUNKS + HIDDEN,
    "a chunk size before a space": b"5 \r\nhello\r\n" + CHUNKS + HIDDEN,
    "no chunk size": b"\r\nhello\r\n" + CHUNKS + HIDDEN,
    "a chunk size beyond 64 bits": b"10000000000000005\r\nhello\r\n" + CHUNKS + HIDDEN,
    "a chunk size ended by LF": b"5\nhello\r\n" + CHUNKS + HIDDEN,
    "an extension ended by LF": b"5;a=b\nhello\r\n" + CHUNKS + HIDDEN,
    "an extension with a bare CR": b"5;a=\rb\r\nhello\r\n" + CHUNKS + HIDDEN,
    "a chunk longer than its size": b"5\r\nhello!\r\n" + CHUNKS + HIDDEN,
    "a chunk ended by LF": b"5\r\nhello\n" + CHUNKS + HIDDEN,
    "a chunk ended by two other bytes": b"5\r\nhelloXX" + CHUNKS + HIDDEN,
    "a trailer ended by LF": b"0\r\nX-A: 1\n\r\n" + HIDDEN,
    "a trailer with a bare CR": b"0\r\nX-A: 1\rX-B: 2\r\n\r\n" + HIDDEN,
    "a trailer without a colon": b"0\r\n5\r\nhello\r\n" + CHUNKS + HIDDEN,
    "a trailer that is a request": b"0\r\n" + HIDDEN,
    "a trailer named as a length": b"5\r\nhello\r\n0\r\nContent-Length: 45\r\n\r\n" + HIDDEN,
    "a folded trailer": b"0\r\nX-A: 1\r\n 2\r\n\r\n" + HIDDEN,
    "NUL in a trailer": b"0\r\nX-A: \x00\r\n\r\n" + HIDDEN,
    "a chunk line of many kilobytes": b"5;" + b"a" * 9000 + b"\r\nhello\r\n" + CHUNKS + HIDDEN,
    "trailers of many kilobytes": b"0\r\n" + b"X-A: 1\r\n" * 9000 + b"\r\n" + HIDDEN,
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("step", [7, 1_000_000])
def test_a_body_of_two_readings_is_no_whole_request_for_anybody(name: str, step: int) -> None:
    world = World()
    client = world.client()
    raw = post(b"Transfer-Encoding: chunked\r\n", BODIES[name])
    client.send(*(raw[at : at + step] for at in range(0, len(raw), step)))
    assert world.arrived == [], "what came of it lacks its end"
    assert client.statuses == [400]
    assert client.wire.ended or client.wire.closing
    world.close()
    assert world.left_over() == []


ONE = {
    "a length with zeros before it": (post(b"Content-Length: 0005\r\n", b"hello"), b"hello"),
    "spaces around a length": (post(b"Content-Length: \t 5 \t\r\n", b"hello"), b"hello"),
    "a body that looks like a request": (post(b"Content-Length: 45\r\n", HIDDEN), HIDDEN),
    "a chunk that looks like the end": (
        post(b"Transfer-Encoding: Chunked\r\n", b"5\r\n0\r\n\r\n\r\n" + CHUNKS),
        CHUNKS,
    ),
    "a chunk that looks like a request": (
        post(b"Transfer-Encoding: chunked\r\n", b"%x\r\n%b\r\n" % (len(HIDDEN), HIDDEN) + CHUNKS),
        HIDDEN,
    ),
    "zeros before a chunk size": (post(b"Transfer-Encoding: chunked\r\n", b"0005\r\nhello\r\n" + CHUNKS), b"hello"),
    "an extension": (post(b"Transfer-Encoding: chunked\r\n", b'5;a="b;c"\r\nhello\r\n' + CHUNKS), b"hello"),
    "a trailer": (post(b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\nX-A: 1\r\n\r\n"), b"hello"),
    "Connection names the length": (post(b"Content-Length: 5\r\nConnection: content-length\r\n", b"hello"), b"hello"),
    "Connection names the coding": (
        post(b"Transfer-Encoding: chunked\r\nConnection: transfer-encoding\r\n", b"5\r\nhello\r\n" + CHUNKS),
        b"hello",
    ),
    "empty lines before it": (b"\r\n\r\n" + post(b"Content-Length: 5\r\n", b"hello"), b"hello"),
    "an absolute target with another host": (
        b"POST http://other/endpoints/m/seen HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        b"hello",
    ),
    "a body with GET": (b"GET /endpoints/m/seen HTTP/1.1\r\nHost: h\r\nContent-Length: 45\r\n\r\n" + HIDDEN, HIDDEN),
    "HTTP/1.0 without a host": (b"POST /endpoints/m/seen HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("step", [1, 10_000])
def test_what_has_one_reading_arrives_as_exactly_that(name: str, step: int) -> None:
    raw, body = ONE[name]
    world = World()
    client = world.client()
    client.send(*(raw[at : at + step] for at in range(0, len(raw), step)))
    assert [(request.target, request.body) for request in world.arrived] == [("/seen", body)]
    assert client.statuses == [200]
    world.close()
    assert world.left_over() == []


def test_lines_that_speak_of_this_connection_alone_go_no_further() -> None:
    world = World()
    lines = b"Connection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Connection: x\r\n"
    world.client().send(post(lines + b"Content-Length: 0\r\n", b""))
    [request] = world.arrived
    assert {name for name, _ in request.headers} == {"host", "content-length", "x-request-id"}
    world.close()


FORGED = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
STATUS = b"HTTP/1.1 200 OK\r\n"
ANSWERS: dict[str, tuple[bytes, list[tuple[int, bytes]]]] = {
    "two answers": (OK + FORGED, [(200, b"ok")]),
    "bytes after the chunks": (
        STATUS + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n" + CHUNKS + FORGED,
        [(200, b"ok")],
    ),
    "a body after 204": (b"HTTP/1.1 204 No\r\n\r\n" + FORGED, [(204, b"")]),
    "a body with a length after 204": (b"HTTP/1.1 204 No\r\nContent-Length: 49\r\n\r\n" + FORGED, [(204, b"")]),
    "a body after 304": (b"HTTP/1.1 304 No\r\nContent-Length: 49\r\n\r\n" + FORGED, [(304, b"")]),
    "interim answers": (b"HTTP/1.1 100 C\r\n\r\n" * 3 + b"HTTP/1.1 103 E\r\nLink: a\r\n\r\n" + OK, [(200, b"ok")]),
    "interim answers without end": (b"HTTP/1.1 100 C\r\n\r\n" * 20_000, [(502, b"")]),
    "two lengths": (STATUS + b"Content-Length: 2\r\nContent-Length: 49\r\n\r\nok" + FORGED, [(502, b"")]),
    "length and chunks": (
        STATUS + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS + FORGED,
        [(502, b"")],
    ),
    "a length with a sign": (STATUS + b"Content-Length: +2\r\n\r\nok" + FORGED, [(502, b"")]),
    "an unknown coding": (STATUS + b"Transfer-Encoding: gzip\r\n\r\nok", [(502, b"")]),
    "a folded line": (STATUS + b"X-A: 1\r\n Content-Length: 2\r\n\r\nok", [(502, b"")]),
    "a bare LF": (STATUS + b"X-A: 1\nContent-Length: 2\r\n\r\nok", [(502, b"")]),
    "NUL in a line": (STATUS + b"X-A: 1\x00\r\nContent-Length: 2\r\n\r\nok", [(502, b"")]),
    "space before a colon": (STATUS + b"Content-Length : 2\r\n\r\nok", [(502, b"")]),
    "a status of two digits": (b"HTTP/1.1 20 OK\r\n\r\n", [(502, b"")]),
    "no status line": (b"hello\r\n\r\n", [(502, b"")]),
    "HTTP/2": (b"HTTP/2 200\r\n\r\n", [(502, b"")]),
    "a protocol that was not asked for": (
        b"HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + FORGED,
        [(502, b"")],
    ),
    "a head without end": (STATUS + b"X-A: 1\r\n" * 50_000, [(502, b"")]),
    "nothing and the end": (b"", [(502, b"")]),
    "a part of a head and the end": (STATUS + b"Content-Le", [(502, b"")]),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("step", [977, 10_000_000])
def test_a_client_gets_one_answer_whatever_the_replica_writes(name: str, step: int) -> None:
    raw, expected = ANSWERS[name]
    ends = [b""] if "the end" in name else []
    asked: list[Request] = []

    def answer(request: Request) -> list[bytes]:
        asked.append(request)
        if request.target == "/after":
            return [OK]
        return [*(raw[at : at + step] for at in range(0, len(raw), step)), *ends]

    world = World(answer)
    client = world.client()
    client.send(b"GET /endpoints/m/x HTTP/1.1\r\nHost: h\r\n\r\n")
    for _ in range(len(raw) // step // 5 + 1):
        world.turn()
    got = answers(client.got)
    assert [status for status, _ in got] == [status for status, _ in expected]
    assert b"forged" not in client.got
    if expected[0][0] < 500:
        assert got == expected
    client.send(b"GET /endpoints/m/after HTTP/1.1\r\nHost: h\r\n\r\n")
    assert answers(client.got)[-1] == (200, b"ok"), "the next request has a connection that is in order"
    world.close()
    assert world.left_over() == []


def test_an_answer_to_head_has_no_body_whatever_it_says() -> None:
    world = World(lambda request: [STATUS + b"Content-Length: 49\r\n\r\n" + FORGED])
    client = world.client()
    client.send(b"HEAD /endpoints/m/x HTTP/1.1\r\nHost: h\r\n\r\n")
    assert b"forged" not in client.got
    assert answers(client.got, ["HEAD"]) == [(200, b"")]
    world.close()
    assert world.left_over() == []


TRUNCATED = {
    "less than its length": STATUS + b"Content-Length: 10\r\n\r\nhalf",
    "within a chunk": STATUS + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhal",
    "before the last chunk": STATUS + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "within the end of the chunks": STATUS + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    "a chunk size that is none": STATUS + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n",
}


@pytest.mark.parametrize("name", TRUNCATED)
def test_an_answer_that_is_not_whole_cannot_be_taken_for_a_whole_one(name: str) -> None:
    head, mark, body = TRUNCATED[name].partition(b"\r\n\r\n")
    world = World(lambda request: None)
    client = world.client()
    client.send(b"GET /endpoints/m/x HTTP/1.1\r\nHost: h\r\nX-Request-Id: cut\r\n\r\n")
    (replica,) = world.replicas
    replica.give(head + mark)
    world.turn()
    replica.give(body)
    replica.wire.cut()
    world.turn()
    assert answers(client.got) == []
    assert client.wire.closing
    world.close()
    record = world.hub.counts.ring.find(b"cut")
    assert record is not None
    assert record.outcome == "cut"
    assert world.left_over() == []


def test_an_answer_before_the_request_was_read_ends_the_connection_after_it() -> None:
    refused = b"HTTP/1.1 413 Big\r\nContent-Length: 3\r\n\r\nbig"
    world = World(limits=Limits(max_in_flight=4))
    client = world.client()
    client.send(post(b"Content-Length: 100000\r\n", b"x" * 10))
    world.replicas[0].give(refused)
    world.turn()
    client.send(b"x" * 500, HIDDEN)
    assert answers(client.got) == [(413, b"big")]
    assert client.wire.ended or client.wire.closing
    assert world.arrived == []
    world.close()
    assert world.left_over() == []


@pytest.mark.parametrize("lines", [b"X-A: " + b"a" * 70_000 + b"\r\n", b"X-A: 1\r\n" * 10_000])
def test_a_head_too_large_is_refused_before_it_has_come(lines: bytes) -> None:
    world = World()
    client = world.client()
    for at in range(0, len(lines), 8192):
        client.send((POST + lines)[at : at + 8192])
    assert client.statuses == [431]
    assert world.arrived == []
    world.close()
    assert world.left_over() == []
