"""Wherever the C core answers, it answers as Python does; and it does answer for what is ordinary."""

import json
import sys
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.gateway import native
from moorage.gateway.fields import _KINDS, BadHead
from moorage.gateway.framing import ChunkCounter, FramingError
from moorage.gateway.heads import RequestHead, RequestLine, RequestReader, ResponseHead, ResponseReader
from moorage.gateway.rewriting import renamed
from moorage.gateway.shapes import Asks
from moorage.gateway.skim import ModelSkimmer, leading_model, names_twice
from moorage.gateway.tokens import GAP_BOUNDS_S, Tokens, told_by_body
from tests.examples import examples
from tests.native_core import in_use, the_core
from tests.property.test_gateway_reads_heads import FIRST, STATUS, heads
from tests.property.test_gateway_reads_usage_tokens import TEXTS, usages
from tests.unit.gateway.test_gateway_lets_nothing_be_smuggled import BODIES, REFUSED

REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nAccept: application/json\r\n"
    b"Content-Type: application/json\r\nUser-Agent: OpenAI/Python 1.99\r\nAuthorization: Bearer sk-abc\r\n"
    b"Connection: keep-alive\r\nX-Trace: %08x\r\nContent-Length: %d\r\n\r\n"
)
KEYED = (
    b"POST /v1/completions HTTP/1.1\r\nhost: h\r\nx-request-id: abc-%x\r\nTE: trailers\r\n"
    b"authorization: bearer  moor-key.one.secret\r\ntransfer-encoding: chunked\r\nX-A:\r\nConnection: close\r\n"
    b"X-B: %d \r\nx-moorage-SESSION:  s:1 \r\n\r\n"
)
ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer: uvicorn\r\nDate: Mon, 30 Nov 2026 09:00:%02d GMT\r\nContent-Type: application/json\r\n"
    b"X-Moorage-Own: a\r\nx-request-id: b\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n"
)
EVENTS = (
    b"HTTP/1.1 200 OK\r\ndate: %d\r\ncontent-type: Text/Event-Stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\nx-n: %d\r\n\r\n"
)
BODY = (
    b'{"messages":[{"role":"user","content":"a \\"usage\\" {[\\n"}],"n":[1,{"Model":"x"}],'
    b'"model":"caf\xc3\xa9","t":0.7}'
)
CHUNKS = b"5\r\nhello\r\n1B\r\n0\r\n\r\n5678901234567890abcdef\r\n00003\r\n\r\n\r\r\n0\r\n\r\n"
USAGE = (
    b'{"id":"x","choices":[{"text":"a \\"usage\\": {"}],'
    b'"usage":{"prompt_tokens":9,"total_tokens":21,"completion_tokens":12,"details":{"a":"}"}},"model":"m"}'
)
ODD = [b"\r", b"\n", b"\r\n", b"\x00", b" ", b"\t", b":", b";", b'"', b"\\", b"\\u006d", b"{", b"}", b"[", b"]", b","]
ODD += [
    b"0",
    b"7",
    b"f",
    b"a",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"Model",
    b'"model":"b"',
    b'"usage":',
    b"close",
    b"Host: a\r\n",
]
ODD += [b"Content-Length: 1\r\n", b"Upgrade: h2c\r\n", b"1" * 20, b"X-Request-Id: a\r\n", b"0\r\n\r\n", b"@"]


@pytest.fixture(scope="module")
def core() -> native.NativeCore:
    return the_core()


@st.composite
def broken(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes of which up to three were changed, left out or put in."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        gone = draw(st.sampled_from([0, 0, 1, 1, 2, 9]))
        data[at : at + gone] = draw(st.sampled_from(ODD) | st.binary(max_size=2))
    return bytes(data)


def outcome(read: Callable[[bytes], Any], raw: bytes) -> Any:
    try:
        return read(raw)
    except BadHead as error:
        return error.status, error.message


def both(reader: Callable[[], Any], raws: list[bytes], core: native.NativeCore) -> None:
    """Each of these heads is read alike, the first time and when all that it says is known."""
    with in_use(core):
        ours = reader()
    with in_use(None):
        for raw in [*raws, *raws]:
            assert outcome(ours.read, raw) == outcome(reader().read, raw)


def cut(raw: bytes) -> bytes:
    """A head as the gateway gets it."""
    end = raw.find(b"\r\n\r\n")
    return raw[: end + 4] if end >= 0 else raw + b"\r\n\r\n"


# --- heads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [REQUEST, KEYED])
def test_ordinary_requests_are_answered_in_c(core: native.NativeCore, raw: bytes) -> None:
    with in_use(None):
        pure = [RequestReader().read(raw % (n, n)) for n in range(3)]
    lines = {(raw % (0, 0)).partition(b"\r\n")[0]: pure[0].line}
    hosts = {b"Host: 127.0.0.1:8000", b"host: h"}
    for n, expected in enumerate(pure):
        found = core.request_head(raw % (n, n), RequestHead, Asks, lines, hosts)
        assert type(found) is RequestHead
        assert found == expected
        assert [type(value) for value in found] == [type(value) for value in expected]
        assert type(found.asks) is type(expected.asks)
    assert core.request_head(raw % (1, 1), RequestHead, Asks, {}, hosts) is None
    assert core.request_head(raw % (1, 1), RequestHead, Asks, lines, {b"Host: other"}) is None


@pytest.mark.parametrize("raw", [ANSWER, EVENTS])
def test_ordinary_answers_are_answered_in_c(core: native.NativeCore, raw: bytes) -> None:
    with in_use(core):
        reader = ResponseReader()
    with in_use(None):
        pure = [ResponseReader().read(raw % (n, n)) for n in range(3)]
        assert [reader.read(raw % (n, n)) for n in range(3)] == pure
    for n, expected in enumerate(pure):
        found = core.response_head(raw % (n, n), ResponseHead, reader._firsts.known)
        assert type(found) is ResponseHead
        assert found == expected
        assert [type(value) for value in found] == [type(value) for value in expected]


@given(
    raws=st.lists(
        heads(FIRST, True).map(cut) | broken(REQUEST % (1, 1)).map(cut) | broken(KEYED % (1, 1)).map(cut), max_size=6
    )
)
@settings(max_examples=examples(150))
def test_any_request_head_is_read_alike(raws: list[bytes]) -> None:
    both(RequestReader, [REQUEST % (1, 1), KEYED % (1, 1), *raws], the_core())


@given(
    raws=st.lists(
        heads(STATUS, False).map(cut) | broken(ANSWER % (1, 1)).map(cut) | broken(EVENTS % (1, 1)).map(cut), max_size=6
    )
)
@settings(max_examples=examples(150))
def test_any_answer_head_is_read_alike(raws: list[bytes]) -> None:
    both(ResponseReader, [ANSWER % (1, 1), EVENTS % (1, 1), *raws], the_core())


@pytest.mark.parametrize(
    "value", [b"", b"5", b"chunked", b"close", b"a", b"text/event-stream", b"multipart/form-data", b"moor-key.a.b"]
)
@pytest.mark.parametrize("name", sorted({*_KINDS, b"x-moorage-other", b"x-moorage-", b"accept", b"hosts", b"t"}))
def test_a_line_of_each_name_that_means_something_is_read_alike(
    core: native.NativeCore, name: bytes, value: bytes
) -> None:
    for spelled in (name, name.title(), name.upper()):
        line = b"%b: %b\r\n" % (spelled, value)
        others = [b"", b"Host: h\r\n", b"Content-Length: 2\r\n", line, b"Connection: Close\r\n"]
        both(RequestReader, [b"POST /v1/x HTTP/1.1\r\nHost: h\r\n%b%b\r\n" % (o, line) for o in others], core)
        both(ResponseReader, [b"HTTP/1.1 200 OK\r\n%b%b\r\n" % (o, line) for o in others], core)


@pytest.mark.parametrize(
    "status", [b"100 Continue", b"101 S", b"199 S", b"204 N", b"304 N", b"404 N", b"999 N", b"200", b"200 "]
)
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_status_is_read_alike(core: native.NativeCore, version: bytes, status: bytes) -> None:
    both(ResponseReader, [b"HTTP/%b %b\r\nContent-Length: 2\r\nConnection: Upgrade\r\n\r\n" % (version, status)], core)
    both(ResponseReader, [b"HTTP/%b %b\r\nContent-Length: 2\r\n\r\n" % (version, status)], core)


@pytest.mark.parametrize("at", [0, 3, 12])
def test_any_byte_anywhere_in_a_line_is_read_alike(core: native.NativeCore, at: int) -> None:
    line = b"X-Trace-Of-Ours: 0123456789abcdef0123456789"
    for place in (at, at + 17, at + 18, len(line)):
        raws = [b"Host: h\r\n%b%c%b\r\n\r\n" % (line[:place], byte, line[place:]) for byte in range(256)]
        both(RequestReader, [b"POST /v1/x HTTP/1.1\r\n" + raw for raw in raws], core)
        both(ResponseReader, [b"HTTP/1.1 200 OK\r\n" + raw for raw in raws], core)


@pytest.mark.parametrize("size", [1, 17, 18, 19, 127, 128, 129])
def test_a_length_and_an_id_of_any_size_are_read_alike(core: native.NativeCore, size: int) -> None:
    raws = [b"Content-Length: %b\r\n\r\n" % (digit * size) for digit in (b"0", b"1", b"9")]
    raws += [b"X-Request-Id: %b\r\n\r\n" % (text * size)[:size] for text in (b"a", b"a:.-_", b"a,", b"a b")]
    both(RequestReader, [b"POST /v1/x HTTP/1.1\r\nHost: h\r\n" + raw for raw in raws], core)
    both(ResponseReader, [b"HTTP/1.1 200 OK\r\n" + raw for raw in raws], core)


def test_no_head_beyond_what_the_judge_let_in_passes(core: native.NativeCore) -> None:
    def judge(hosts: Any, origins: Any) -> None:
        if list(hosts) != [b"h"] or origins not in ([], [b"http://ours"]):
            raise BadHead(403, f"{hosts} {origins}")

    raw = b"POST /v1/x HTTP/1.1\r\n%b\r\n"
    lines = [b"Host: h\r\n", b"Host: evil\r\n", b"host: H\r\n", b"Host: h\r\nOrigin: http://ours\r\n"]
    lines += [b"Host: h\r\nOrigin: http://evil\r\n", b"Origin: http://evil\r\nHost: h\r\n", b"Host: h\r\nHost: h\r\n"]
    both(lambda: RequestReader(judge), [raw % line for line in lines * 2], core)


@pytest.mark.parametrize("name", REFUSED)
def test_no_head_of_two_readings_is_answered_in_c(core: native.NativeCore, name: str) -> None:
    raw = cut(REFUSED[name])
    both(RequestReader, [raw], core)
    first, _, rest = raw.partition(b"\r\n")
    if type(outcome(RequestReader().read, first + b"\r\nHost: h\r\n\r\n")) is RequestHead:  # the fault is in the lines
        hosts = {line for line in rest.split(b"\r\n") if line.lower().startswith(b"host")}
        assert core.request_head(raw, RequestHead, Asks, {first: None}, hosts) is None


# --- chunks ---------------------------------------------------------------------------------------------------------


def counted(core: native.NativeCore | None, pieces: list[bytes]) -> list[Any]:
    """What a counter says of each piece, and what it then holds."""
    with in_use(core):
        counter, told = ChunkCounter(), []
        for piece in pieces:
            try:
                end = counter.feed(piece)
            except FramingError as error:
                return [*told, str(error)]
            told.append((end, counter._left, counter._line, counter._line_end, counter._trailer))
            told.append(counter.reframed(b"data", whole=end >= 0))
            if end >= 0:
                break
        return told


def test_ordinary_chunks_are_counted_in_c(core: native.NativeCore) -> None:
    size = len(CHUNKS)
    assert core.count_chunks(CHUNKS, 0, 0, 0) == (size, 0, 0)
    assert core.count_chunks(CHUNKS + b"more", 0, 0, 0) == (size, 0, 0)
    assert core.count_chunks(b"12" + CHUNKS, 2, 0, 0) == (size + 2, 0, 0)
    assert core.count_chunks(b"1000\r\nabc", 0, 0, 0) == (-1, 4093, 0)
    assert core.count_chunks(b"abc", 0, 3, 0) == (-1, 0, 2)
    assert core.count_chunks(b"\n5\r\nabcde\r", 0, 0, 1) == (-1, 0, 1)
    for odd in (
        b"5;a\r\n",
        b"5\r",
        b"0\r\nA: b\r\n\r\n",
        b"0\r\n\r",
        b"g\r\n",
        b"\r\n",
        b"-1\r\n",
        b"1" * 16 + b"\r\n",
    ):
        assert core.count_chunks(odd, 0, 0, 0) is None


def test_chunks_cut_at_every_two_bytes_are_counted_alike(core: native.NativeCore) -> None:
    for stream in (CHUNKS + b"GET", CHUNKS[:-2] + b"A: b\r\n\r\nGET"):
        for first in range(len(stream) + 1):
            for second in range(first, len(stream) + 1):
                pieces = [stream[:first], stream[first:second], stream[second:]]
                assert counted(core, pieces) == counted(None, pieces)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_of_two_readings_is_counted_alike_however_it_is_cut(core: native.NativeCore, name: str) -> None:
    body = BODIES[name]
    step = max(1, len(body) // 300)
    places = range(0, len(body), step)
    for at in places:
        assert counted(core, [body[:at], body[at:]]) == counted(None, [body[:at], body[at:]])
    pieces = [body[at : at + step] for at in places]
    assert counted(core, pieces) == counted(None, pieces)


@given(
    body=broken(CHUNKS) | broken(CHUNKS[:-2] + b"A: b\r\n\r\n") | st.binary(max_size=40),
    cuts=st.lists(st.integers(0, 60), max_size=4),
)
@settings(max_examples=examples(200))
def test_any_bytes_are_counted_alike(body: bytes, cuts: list[int]) -> None:
    ends = sorted({*cuts, len(body)})
    pieces = [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert counted(the_core(), pieces) == counted(None, pieces)


# --- the model of a body --------------------------------------------------------------------------------------------


def pure_model(body: bytes) -> Any:
    """The name, and whether there is a second one, as the gateway's intake asks for them."""
    return leading_model(body) or ModelSkimmer().feed(body, True), names_twice(body)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_ordinary_bodies_are_skimmed_in_c(core: native.NativeCore, kind: Callable[[bytes], Any]) -> None:
    assert core.sole_model(kind(BODY)) == "café"
    assert core.sole_model(kind(b' {\n "model" : "m" }')) == "m"
    assert core.sole_model(kind(b'{"a":{"Model":1},"model":"m"}')) == "m"
    assert core.sole_model(kind(b'{"model":"m","a":"\\u006')) is None
    assert core.sole_model(kind(b'{"model":"m","model":"n"}')) is None
    assert core.sole_model(kind(b"")) is None


ODD_BODIES = [b'{}{"model":"m"}', b'[{"model":"m"}]', b'"{"{"model":"m"}', b'}{"model":"m"}', b'{"a":1]{"model":"m"}']
ODD_BODIES += [b'{"model" 1:"m"}', b'{"model":["m"]}', b'{"model":{"model":"m"}}', b'{"model":null,"model":"m"}']
ODD_BODIES += [
    b'{"model","m"}',
    b'{"a" "model":"m"}',
    b'{"model":"m',
    b'{"model":"m\\"',
    b'{"a":["model","m"]}',
    b'\x0b{"model":"m"}',
]
ODD_BODIES += [b'{"model":"%b"}' % (b"a" * size) for size in (1023, 1024, 1025)]
ODD_BODIES += [b'{"%b":1,"model":"m"}' % (b"a" * size + b"\\n") for size in (61, 62, 63, 64, 65)]


@pytest.mark.parametrize("body", ODD_BODIES)
def test_an_odd_body_is_skimmed_alike(core: native.NativeCore, body: bytes) -> None:
    for raw in (body, b" " + body, b'{"z":[' + body + b"]}", b'{"z":1,' + body[1:]):
        found = core.sole_model(raw)
        assert found is None or (found, False) == pure_model(raw)


@given(
    body=broken(BODY)
    | broken(b'{"model":"m"}')
    | broken(b'{"a":"\\\\","m\\u006fdel":"m","model":"n"}')
    | st.binary(max_size=60)
)
@settings(max_examples=examples(300))
def test_any_body_is_skimmed_alike(body: bytes) -> None:
    found = the_core().sole_model(body)
    if found is not None:
        assert (found, False) == pure_model(body)


WORDS = st.sampled_from(["", "a", "model", '"model"', "é🙂", "\\", "{[,:]}", "\n"])
NESTED = st.recursive(
    WORDS | st.integers(0, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "c"]), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["model", "a", "b", "é"]), NESTED, max_size=4), st.sampled_from([None, 1]))
@settings(max_examples=examples(200))
def test_documents_are_skimmed_alike(document: dict[str, Any], indent: int | None) -> None:
    body = json.dumps(document, indent=indent, ensure_ascii=False).encode()
    found = the_core().sole_model(body)
    if found is not None:
        assert (found, False) == pure_model(body)
        assert found == document["model"]
    elif isinstance(document.get("model"), str) and body.count(b'"model"') == 1:
        assert b"\\" in body, "an ordinary body was not answered"


def test_a_body_of_escapes_alone_takes_no_longer_for_each_of_them(core: native.NativeCore) -> None:
    # Quadratic work would take minutes here, which the limit on a test's time ends.
    body = b'{"messages":"' + b"\\n" * 2_000_000 + b'","model":"m"}'
    assert core.sole_model(body) == "m"
    assert core.sole_model(body[:-20]) is None


# --- renaming -------------------------------------------------------------------------------------------------------


LINE = RequestLine("POST", "/v1/x", 1, (), False)
LINES = st.lists(
    st.sampled_from(
        [
            b"Host: a\r\n",
            b"X-Content-Length: 57\r\n",
            b"X: content-length: 57\r\n",
            b"Content-Lengths: 57\r\n",
            b"c:\r\n",
        ]
    ),
    max_size=3,
).map(b"".join)
LENGTH_LINES = st.sampled_from(
    [
        b"Content-Length: 57\r\n",
        b"content-length:57 \t\r\n",
        b"CONTENT-LENGTH:\t 0057\r\n",
        b"Content-Length: \r\n",
        b"",
    ]
)
LEADING = b' {\n "model" :\t"mod-el", "a": "\\"model\\"", "n":[1]}'
MODELS = st.sampled_from(["m", "org/model-7b", "", "mod-el", 'a"b', "a\\b", "é", "tab\t", "~ !", "🙂", "\x7f"])


@given(
    before=LINES,
    own=LENGTH_LINES,
    after=LINES,
    length=st.sampled_from([57, 0, 5, -1, 10**17]),
    body=st.just(LEADING) | broken(LEADING) | broken(BODY) | broken(b'{"model":"m"}'),
    model=MODELS,
)
@settings(max_examples=examples(300))
def test_any_request_is_renamed_alike(
    before: bytes, own: bytes, after: bytes, length: int, body: bytes, model: str
) -> None:
    head = RequestHead(LINE, before + own + after, length, True, False, None, "r", None, b"s")
    found = the_core().renamed(head, body, model)
    if found is not None:
        with in_use(None):
            expected = renamed(head, body, model)
        assert found == expected
        assert [type(value) for value in found[0]] == [type(value) for value in expected[0]]
        assert type(found[0]) is RequestHead


@pytest.mark.parametrize("model", ["m", "a-longer-name/7b", "mod-el"])
@pytest.mark.parametrize("line", [b"Content-Length: 57\r\n", b"content-length:57\r\n"])
def test_ordinary_requests_are_renamed_in_c(core: native.NativeCore, line: bytes, model: str) -> None:
    for lines in (line + b"Host: a\r\n", b"Host: a\r\n" + line):
        head = RequestHead(LINE, lines, 57, True, False, None, None)
        with in_use(None):
            assert core.renamed(head, LEADING, model) == renamed(head, LEADING, model)


def test_what_is_no_request_is_not_renamed(core: native.NativeCore) -> None:
    head = RequestHead(LINE, b"Content-Length: 57\r\n", 57, True, False, None, None)
    odd: Any
    for odd in (
        RequestHead(LINE, cast(Any, "x"), 57, True, False, None, None),
        head._replace(length=2**70),
        (*head,),
        None,
    ):
        assert core.renamed(odd, LEADING, "m") is None
    assert core.renamed(head, bytearray(LEADING), "m") is None  # type: ignore[arg-type]
    assert core.renamed(head, LEADING, b"m") is None  # type: ignore[arg-type]


# --- usage ----------------------------------------------------------------------------------------------------------


def test_ordinary_answers_tell_their_usage_in_c(core: native.NativeCore) -> None:
    found = core.usage(USAGE, Tokens)
    assert found == Tokens(9, 12)
    assert type(found) is Tokens
    swapped = b'{"usage": {"completion_tokens" : 12, "prompt_tokens" : 9, "total_tokens": 21}, "timings": {"a": 1}}'
    assert core.usage(swapped, Tokens) == Tokens(9, 12)
    assert core.usage(b'{"a": 1,\n "usage": {\n"input_tokens": 9,\n"output_tokens": 12 } }\r\n', Tokens) == Tokens(
        9, 12
    )
    assert (
        core.usage(b'{"choices": [], "more": {"usage": {"prompt_tokens": 9, "completion_tokens": 12}}}', Tokens) is None
    )


@given(
    body=broken(USAGE)
    | st.tuples(usages(), TEXTS, TEXTS, st.sampled_from([None, 2]), st.booleans()).map(
        lambda told: json.dumps(
            {"c": told[1], **({"deep": {"usage": told[0][0]}} if told[4] else {"usage": told[0][0]}), "z": told[2]},
            indent=told[3],
            ensure_ascii=False,
        ).encode()
    ),
    begin=st.integers(0, 60),
)
@settings(max_examples=examples(300))
def test_any_answer_tells_the_same_usage(body: bytes, begin: int) -> None:
    tail = body[begin:]
    found = the_core().usage(tail, Tokens)
    with in_use(None):
        assert found is None or found == told_by_body(tail)


@pytest.mark.parametrize("first", ["prompt", "completion"])
@pytest.mark.parametrize("digits", [1, 11, 12, 13, 14])
def test_a_number_of_any_size_is_read_alike(core: native.NativeCore, digits: int, first: str) -> None:
    second = {"prompt": "completion", "completion": "prompt"}[first]
    for one, other in (("9" * digits, "1"), ("1", "9" * digits), ("0" + "1" * (digits - 1), "1"), ("1.5", "1")):
        for between in ("", '"total_tokens":1,', f'"total_tokens":{one},', " "):
            raw = f'{{"usage":{{"{first}_tokens":{one},{between}"{second}_tokens":{other}}}}}'.encode()
            found = core.usage(raw, Tokens)
            with in_use(None):
                assert found is None or found == told_by_body(raw)


@pytest.mark.parametrize("with_core", [True, False])
def test_an_answer_is_looked_at_by_its_ends_only(core: native.NativeCore, with_core: bool) -> None:
    usage = b'"usage": {"prompt_tokens": 9, "completion_tokens": 12}'
    long = b'"' + b"a" * 5000 + b'"'
    with in_use(core if with_core else None):
        for raw, told in (
            (b'{"a": %b, %b}' % (long, usage), Tokens(9, 12)),
            (b'{%b, "a": %b}' % (usage, long), Tokens(9, 12)),
            (b'{"a": %b, %b, "b": %b}' % (long, usage, long), None),
        ):
            assert told_by_body(raw, raw) == told
        # work for each against all that follows would take minutes, which the limit on a test's time ends
        assert told_by_body(b"{" + b'"usage":{},' * 100_000) is None
        assert told_by_body(b"{" + b'"usage":{},' + b'"\\' * 500_000) is None


@given(st.floats(allow_nan=False) | st.sampled_from(GAP_BOUNDS_S))
def test_a_gap_has_the_same_place(value: float) -> None:
    assert the_core().place(GAP_BOUNDS_S, value) == bisect_left(GAP_BOUNDS_S, value)


# --- memory ---------------------------------------------------------------------------------------------------------


def calls(core: native.NativeCore) -> dict[str, Callable[[], object]]:
    """Each function, answering and not."""
    keyed, answer = KEYED % (1, 1), ANSWER % (1, 1)
    head = RequestReader().read(keyed)
    lines, hosts = {b"POST /v1/completions HTTP/1.1": head.line}, {b"host: h"}
    firsts = {b"HTTP/1.1 200 OK": (200, b"HTTP/1.1 200 OK\r\n", False)}
    body = bytearray(BODY)
    known = RequestHead(LINE, b"Host: a\r\nContent-Length: 57\r\n", 57, True, False, None, None)
    return {
        "a request's head": lambda: core.request_head(keyed, RequestHead, Asks, lines, hosts),
        "a request's head of another host": lambda: core.request_head(keyed, RequestHead, Asks, lines, set()),
        "a request's head of no class": lambda: refused(core.request_head, keyed, int, Asks, lines, hosts),
        "an answer's head": lambda: core.response_head(answer, ResponseHead, firsts),
        "an answer's head of another status": lambda: core.response_head(answer, ResponseHead, {}),
        "chunks": lambda: core.count_chunks(CHUNKS * 2, 0, 0, 0),
        "no chunks": lambda: core.count_chunks(b"x" + CHUNKS, 0, 0, 0),
        "a body": lambda: core.sole_model(body),
        "no body": lambda: core.sole_model(b"{"),
        "what has no bytes": lambda: refused(core.sole_model, 1),
        "a request renamed": lambda: core.renamed(known, LEADING, "other"),
        "a request renamed alike": lambda: core.renamed(known, LEADING, "mod-el"),
        "a request not renamed": lambda: core.renamed(head, BODY, "other"),
        "a request without a length": lambda: core.renamed(head, LEADING, "other"),
        "a tuple of no use renamed": lambda: core.renamed((1, b"Content-Length: 1\r\n", 1), LEADING, "other"),
        "usage": lambda: core.usage(USAGE, Tokens),
        "no usage": lambda: core.usage(BODY, Tokens),
        "a place": lambda: core.place(GAP_BOUNDS_S, 0.5),
    }


def refused(function: Callable[..., object], *args: object) -> None:
    try:
        function(*args)
    except TypeError:
        return
    raise AssertionError("a value of no use was taken")


def test_no_call_keeps_memory_or_a_reference(core: native.NativeCore) -> None:
    shared = (None, True, False, RequestHead, ResponseHead, Asks, Tokens, b"")
    for name, call in calls(core).items():
        for _ in range(100):
            call()
        before = sys.getallocatedblocks(), [sys.getrefcount(value) for value in shared]
        for _ in range(100_000):
            call()
        after = sys.getallocatedblocks(), [sys.getrefcount(value) for value in shared]
        assert abs(after[0] - before[0]) < 500, name
        assert all(abs(now - then) < 500 for now, then in zip(after[1], before[1], strict=True)), name
