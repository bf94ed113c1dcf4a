"""What the gateway takes for a head, httptools takes for the same head; a memory of heads changes no reading."""

import contextlib

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moorage.gateway.fields import BadHead
from moorage.gateway.heads import RequestHead, RequestReader, ResponseHead, ResponseReader

HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "te"}
STOPPING = HOP_BY_HOP | {"upgrade", "expect", "x-request-id"}
USUAL = {b"keep-alive", b"close", b"upgrade", b"te"}

GOOD_NAMES = (
    b"Host|content-length|Content-Length|Transfer-Encoding|Connection|X-Trace|x-trace|TE|Expect|X-Request-Id|Keep-Alive"
    b"|Upgrade|Date"
).split(b"|")
NAMES = st.sampled_from([*GOOD_NAMES, b"X-Bad Name", b"", b" X-Folded", b"X(a)"])
GOOD_VALUES = (
    b"5|05|12|chunked|CHUNKED|keep-alive|close|X-Trace, close|content-length|100-continue|abc-1|a b!|| padded |h2c|\xe9"
    b"|g|a: b|Sun, 29 Nov 2026 19:00:00 GMT"
).split(b"|")
BAD_VALUES = b"+5|5, 5|xchunked|a\x00b|a\rb|a\nb|a\n b|\x7f|1_0|0x5".split(b"|")
VALUES = st.sampled_from([*GOOD_VALUES, *BAD_VALUES])
SEPARATORS = st.sampled_from([b": "] * 12 + [b":", b":\t", b" : ", b" "])
GOOD_LINES = (
    b"Content-Length: 5|content-length:12|Transfer-Encoding: chunked|Connection: close|connection: keep-alive, x-trace"
    b"|X-Trace: 1|x-trace: 2|TE: trailers|Expect: 100-continue|X-Request-Id: abc-1|Keep-Alive: 5|Host: h|Date: now"
).split(b"|")
LINES = st.one_of(*[st.sampled_from(GOOD_LINES)] * 4, st.tuples(NAMES, SEPARATORS, VALUES).map(b"".join))
FIRST = st.sampled_from(
    [b"POST /v1/x HTTP/1.1"] * 6
    + [b"GET /endpoints/m/a?b=c HTTP/1.0", b"GET  / HTTP/1.1", b"BREW / HTTP/1.1", b"GET / HTTP/2.0", b"GET /"]
    + [b"GET /\n HTTP/1.1", b"get / HTTP/1.1", b"GET http://h/livez HTTP/1.1", b"CONNECT h:1 HTTP/1.1", b"X-A: b"]
)
STATUS = st.sampled_from(
    [b"HTTP/1.1 200 OK"] * 6
    + [b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No Content", b"HTTP/1.1 200", b"HTTP/1.1 20 OK", b"HTTP/2.0 200 OK", b"X"]
)


def heads(first: st.SearchStrategy[bytes], host: bool) -> st.SearchStrategy[bytes]:
    lines = st.lists(LINES, max_size=6).map(lambda own: [b"Host: g", *own] if host else own)
    return st.tuples(first, lines).map(lambda both: b"\r\n".join([both[0], *both[1], b"", b""]))


class Plain:
    """What httptools finds, collected the plain way."""

    def __init__(self, kind: type, raw: bytes) -> None:
        self.ends, self.fields = 0, []
        parser = kind(self)
        with contextlib.suppress(httptools.HttpParserUpgrade):
            parser.feed_data(raw)
        self.keep_alive = parser.should_keep_alive()
        self.version = parser.get_http_version()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower().decode(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self.ends += 1

    def values(self, name: str) -> list[bytes]:
        return [value for own, value in self.fields if own == name]

    def passed_on(self, stopping: set[str]) -> list[tuple[str, bytes]]:
        words = {word.strip().lower() for value in self.values("connection") for word in value.split(b",")} - USUAL
        never = {b"content-length", b"transfer-encoding", b"host", b"authorization", b"content-type"}
        gone = stopping | {word.decode("latin-1") for word in words - never}
        return [(name, value) for name, value in self.fields if name not in gone]


def fields_of(lines: bytes) -> list[tuple[str, bytes]]:
    pairs = (line.partition(b":") for line in lines.split(b"\r\n") if line)
    return [(name.lower().decode(), value.strip(b" \t")) for name, _, value in pairs]


def request(reader: RequestReader, raw: bytes) -> RequestHead | int:
    try:
        return reader.read(raw)
    except BadHead as error:
        return error.status


def response(reader: ResponseReader, raw: bytes) -> ResponseHead | int:
    try:
        return reader.read(raw)
    except BadHead as error:
        return error.status


def cut(raw: bytes) -> bytes:
    """A head as the gateway gets it: up to the first blank line."""
    return raw[: raw.index(b"\r\n\r\n") + 4]


@given(st.lists(heads(FIRST, True), min_size=1, max_size=8))
@example([b"POST /v1/x HTTP/1.1\r\nHost: g\r\nX-Trace: %d\r\nContent-Length: %d\r\n\r\n" % (n, n) for n in range(4)])
def test_a_request_head_that_is_taken_is_read_as_httptools_reads_it(raws: list[bytes]) -> None:
    reader = RequestReader()
    for raw in map(cut, raws):
        head = request(reader, raw)
        if isinstance(head, int):
            continue
        plain = Plain(httptools.HttpRequestParser, raw)
        assert plain.ends == 1
        assert fields_of(head.lines) == plain.passed_on(STOPPING)
        lengths = [int(value) for value in plain.values("content-length")]
        coded = bool(plain.values("transfer-encoding"))
        assert len(lengths) + coded <= 1
        assert head.length == (-1 if coded else sum(lengths))
        assert head.line.http10 == (plain.version == "1.0")
        assert not head.keep_alive or plain.keep_alive


@given(st.lists(heads(STATUS, False), min_size=1, max_size=8))
def test_a_response_head_that_is_taken_is_read_as_httptools_reads_it(raws: list[bytes]) -> None:
    reader = ResponseReader()
    for raw in map(cut, raws):
        head = response(reader, raw)
        if isinstance(head, int):
            continue
        plain = Plain(httptools.HttpResponseParser, raw)
        assert plain.ends == 1
        assert fields_of(head.head.partition(b"\r\n")[2]) == plain.passed_on(STOPPING)
        if head.length > 0:
            assert plain.values("content-length") == [b"%d" % head.length] or plain.values("content-length") == [b"05"]
        assert (head.length == -1) <= bool(plain.values("transfer-encoding"))


@given(st.lists(heads(FIRST, True), min_size=1, max_size=12))
def test_what_was_read_before_changes_no_reading_of_a_request(raws: list[bytes]) -> None:
    reader = RequestReader()
    for raw in map(cut, raws):
        assert request(reader, raw) == request(RequestReader(), raw)


@given(st.lists(heads(STATUS, False), min_size=1, max_size=12))
def test_what_was_read_before_changes_no_reading_of_a_response(raws: list[bytes]) -> None:
    reader = ResponseReader()
    for raw in map(cut, raws):
        assert response(reader, raw) == response(ResponseReader(), raw)


def usually(good: st.SearchStrategy[bytes], odd: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(good, good, good, odd)


NUMBERS = st.integers(0, 10**6).map(lambda number: b"%d" % number)
VARYING = st.tuples(
    usually(st.just(b"X-Trace: "), st.sampled_from([b"X-Trace:", b"x-trace: ", b"X-Other: ", b"TE: ", b"X-Trace : "])),
    usually(NUMBERS, VALUES | st.binary(max_size=6)),
    usually(st.just(b"Content-Length: "), st.sampled_from([b"content-length:", b"Content-Length:  ", b"X-Length: "])),
    usually(NUMBERS, VALUES | st.integers(10**17, 10**20).map(lambda number: b"%d" % number)),
)
EXTRA = st.sampled_from([b"", b"Connection: keep-alive", b"Connection: close", b"Transfer-Encoding: chunked", b"TE: a"])


@given(EXTRA, usually(st.just(b""), EXTRA), st.lists(VARYING, min_size=4, max_size=30))
def test_heads_of_one_shape_are_read_as_if_each_were_the_first(
    extra: bytes, last_extra: bytes, parts: list[tuple[bytes, ...]]
) -> None:
    requests, responses = RequestReader(), ResponseReader()
    for number, (trace, value, length, digits) in enumerate(parts):
        own = last_extra if last_extra and number > len(parts) // 2 else extra
        lines = b"Host: g\r\n%b%b%b\r\n%b%b\r\n\r\n" % (own + b"\r\n" if own else b"", trace, value, length, digits)
        asked, answered = cut(b"POST /v1/x HTTP/1.1\r\n" + lines), cut(b"HTTP/1.1 200 OK\r\n" + lines)
        assert request(requests, asked) == request(RequestReader(), asked)
        assert response(responses, answered) == response(ResponseReader(), answered)


def shaped(host: bytes, trace: bytes, length: bytes, connection: bytes) -> bytes:
    return b"Host: %b\r\nX-Trace: %b\r\nContent-Length: %b\r\nConnection: %b\r\n\r\n" % (
        host,
        trace,
        length,
        connection,
    )


@pytest.mark.parametrize("odd", [*GOOD_VALUES, *BAD_VALUES, b"9" * 30])
@pytest.mark.parametrize("place", range(4))
def test_a_value_is_judged_in_a_known_shape_as_in_a_new_head(place: int, odd: bytes) -> None:
    values = [b"g", b"1", b"5", b"keep-alive"]
    values[place] = odd
    requests, responses = RequestReader(), ResponseReader()
    known = [shaped(b"h", b"%d" % n, b"%d" % n, b"keep-alive") for n in range(3)]
    after = [shaped(b"h", b"%d" % n, b"%d" % n, b"keep-alive") for n in range(10, 13)]
    for lines in [*known, shaped(b"g", b"7", b"7", b"keep-alive"), shaped(*values), *after]:
        asked, answered = cut(b"POST /v1/x HTTP/1.1\r\n" + lines), cut(b"HTTP/1.1 200 OK\r\n" + lines)
        assert request(requests, asked) == request(RequestReader(), asked)
        assert response(responses, answered) == response(ResponseReader(), answered)


def test_a_memory_that_fills_up_in_the_middle_of_a_head_lets_no_line_through_that_ends_here() -> None:
    reader = RequestReader()
    for number in range(5000):
        raw = b"GET /v1/x HTTP/1.1\r\nConnection: close\r\nX-A: %d\r\nTE: t%d\r\nHost: g\r\n\r\n" % (number, number)
        assert fields_of(reader.read(raw).lines) == [("x-a", b"%d" % number), ("host", b"g")]
