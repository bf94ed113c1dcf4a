"""A head that has the shape of one before it says what it would say to a gateway that never saw another."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.gateway.fields import BadHead
from moorage.gateway.heads import RequestHead, RequestReader, ResponseHead, ResponseReader
from tests.examples import examples
from tests.native_core import in_use

KEY = b"moor-key.one.secret"
CLIENTS = [
    b"Host: g\r\nAccept: */*\r\n%(id)bX-Trace: %(any)b\r\nContent-Length: %(length)b\r\n",
    b"host: g\r\ncontent-length:%(length)b\r\nauthorization: %(key)b\r\nKeep-Alive: timeout=%(any)b\r\nx-a:%(any)b\r\n",
    b"Host: g\r\nX-Moorage-Session: %(session)b\r\nAuthorization: %(key)b\r\nX-Api-Key: %(key)b\r\n%(id)b",
    b"%(id)b%(id)bHost: g\r\nTransfer-Encoding: chunked\r\nx-moorage-session: %(session)b\r\n%(odd)b",
    b"Host: g\r\nX-Moorage-Session: a\r\nX-Moorage-Session: %(session)b\r\nX-Moorage-Revision: %(any)b\r\n%(odd)b",
]
ANYTHING = st.sampled_from(
    [b"1", b"ab", b"a b", b"", b" ", b"Mon, 30 Nov 2026 08:47:11 GMT", b"\xe9", b"a\tb "]
) | st.integers(0, 10**6).map(b"%d".__mod__)
BROKEN = st.sampled_from([b"a\x00", b"a\nb", b"a\rb", b"\x7f", b"a\r\nX-B: c", b"a\r\n\tb", b"a\r\nHost: h"])
VALUES = st.fixed_dictionaries(
    {
        "any": st.one_of(
            *[ANYTHING] * 6, BROKEN, st.sampled_from([b"text/event-stream", b"Text/Event-Stream;a", b"a/b"])
        ),
        "length": st.integers(0, 2000).map(b"%d".__mod__)
        | st.sampled_from([b"007", b"", b"5 ", b"+5", b"9" * 19, b"0"]),
        "key": st.sampled_from(
            [b"Bearer " + KEY, b"bearer  " + KEY + b"2", KEY, b"Bearer sk-1", b"Basic x", b"", b"moor-key."]
        ),
        "session": ANYTHING | BROKEN,
        "id": st.one_of(
            *[st.integers(0, 10**6).map(b"X-Request-Id: a-%d\r\n".__mod__)] * 3,
            st.sampled_from(
                [b"", b"X-Request-Id: a b\r\n", b"X-Request-Id: \r\n", b"X-Request-Id: %b\r\n" % (b"a" * 129)]
            ),
        ),
        "odd": st.sampled_from(
            [
                b"",
                b"",
                b"Connection: close\r\n",
                b"Connection: x-moorage-session\r\n",
                b"Expect: 100-continue\r\n",
                b"Origin: a\r\n",
            ]
        ),
    }
)
FIRSTS = st.sampled_from([b"POST /v1/x HTTP/1.1", b"POST /v1/x HTTP/1.1", b"POST /v1/y HTTP/1.0"])
STATUSES = st.sampled_from([b"200 OK", b"200 OK", b"204 No Content", b"304 N", b"101 S", b"500 "])


def told(reader: RequestReader | ResponseReader, raw: bytes) -> RequestHead | ResponseHead | tuple[int, str]:
    try:
        return reader.read(raw)
    except BadHead as error:
        return error.status, error.message


def head(first: bytes, client: bytes, values: dict[str, bytes]) -> bytes:
    raw = first + b"\r\n" + client % {name.encode(): value for name, value in values.items()} + b"\r\n"
    return raw[: raw.index(b"\r\n\r\n") + 4]


HEADS = st.lists(st.tuples(FIRSTS, STATUSES, st.sampled_from(CLIENTS), VALUES), min_size=6, max_size=40)


@given(HEADS, st.booleans())
@settings(max_examples=examples(120), deadline=None)
def test_heads_of_clients_of_several_makes_are_read_as_if_each_were_the_first(
    parts: list[tuple[bytes, bytes, bytes, dict[str, bytes]]], one_make: bool
) -> None:
    requests, answers = RequestReader(), ResponseReader()
    for first, status, client, values in parts:
        made = parts[0][2] if one_make else client
        asked, answered = head(first, made, values), head(b"HTTP/1.1 " + status, made, values)
        assert told(requests, asked) == told(RequestReader(), asked)
        assert told(answers, answered) == told(ResponseReader(), answered)


ORDINARY = {
    "any": b"1%d",
    "length": b"%d",
    "key": b"Bearer moor-key.%d",
    "session": b"s-%d",
    "id": b"X-Request-Id: r-%d\r\n",
    "odd": b"",
}


@pytest.mark.parametrize("client", [0, 1])
def test_what_varies_from_head_to_head_is_read_by_their_shape(client: int) -> None:
    with in_use(None):  # the core has no need of shapes for these
        requests, answers = RequestReader(), ResponseReader()
    for number in range(20):
        for made in (CLIENTS[client], CLIENTS[client] + b"Server: other\r\n"):  # two of a make that take turns
            values = {name: value % number if b"%d" in value else value for name, value in ORDINARY.items()}
            asked = head(b"POST /v1/x HTTP/1.1", made, values)
            answered = head(b"HTTP/1.1 200 OK", made, values)
            if number > 4:
                assert requests._shapes.read(asked) == told(RequestReader(), asked)
                assert answers._shapes.read(answered) == told(ResponseReader(), answered)
            told(requests, asked)
            told(answers, answered)


def test_a_line_that_was_judged_is_in_no_shape_that_another_has() -> None:
    def judge(hosts: object, origins: object) -> None:
        if (hosts, origins) != ([b"g"], [b"http://ours"]):
            raise BadHead(403, "not here")

    reader = RequestReader(judge)
    raw = b"POST /v1/x HTTP/1.1\r\nHost: %b\r\nOrigin: %b\r\nX-N: %d\r\n\r\n"
    for number in range(9):
        assert isinstance(told(reader, raw % (b"g", b"http://ours", number)), RequestHead)
        assert told(reader, raw % (b"h", b"http://ours", number)) == (403, "not here")
        assert told(reader, raw % (b"g", b"http://other", number)) == (403, "not here")
