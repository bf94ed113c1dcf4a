"""A session that a head names is known from the head itself, and goes on as it came."""

import pytest

from moorage.gateway.heads import RequestReader, ResponseReader
from moorage.gateway.toplevel import affinity_of

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n%bAccept: b\r\nContent-Length: 2\r\n\r\n"


@pytest.mark.parametrize(
    ("lines", "session"),
    [
        (b"X-Moorage-Session: s-1\r\n", b"s-1"),
        (b"x-moorage-session:\ts 1 \r\n", b"s 1"),
        (b"X-MOORAGE-SESSION:\r\n", b""),
        (b"X-Moorage-Session: \r\nX-Moorage-Session: one\r\nX-Moorage-Session: two\r\n", b"one"),
        (b"X-Moorage-Sessions: s-1\r\n", b""),
        (b"", b""),
    ],
)
def test_the_first_session_that_says_something_counts_and_goes_on(lines: bytes, session: bytes) -> None:
    reader = RequestReader()
    for _ in range(3):  # read, then known
        head = reader.read(HEAD % lines)
        assert head.session == session
        assert lines in head.lines
        assert affinity_of("session", head, b"{}") == (session or None)


def test_sessions_that_vary_are_each_read_as_they_are() -> None:
    reader = RequestReader()
    for text in (b"s-1", b"s-2", b" s-3 ", b"", b"s 4", b"\xe9", b"s-1", b"a" * 200):
        assert reader.read(HEAD % (b"X-Moorage-Session: %b\r\n" % text)).session == text.strip()


def test_a_session_that_a_connection_takes_away_is_none() -> None:
    for connection in (b"x-moorage-session", b"close, X-Moorage-Session"):
        head = RequestReader().read(HEAD % (b"X-Moorage-Session: s\r\nConnection: %b\r\n" % connection))
        assert (head.session, b"ession" in head.lines) == (b"", False)


def test_an_answer_says_no_session() -> None:
    raw = b"HTTP/1.1 200 OK\r\nX-Moorage-Session: s\r\nContent-Length: 0\r\n\r\n"
    assert ResponseReader().read(raw).head == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"


def test_long_values_are_known_by_their_digest_and_short_ones_by_themselves() -> None:
    def key_of(text: bytes) -> bytes | None:
        return affinity_of("session", RequestReader().read(HEAD % (b"X-Moorage-Session: %b\r\n" % text)), b"")

    assert key_of(b"a" * 64) == b"a" * 64
    long = {key_of(b"a" * size) for size in range(65, 75)}
    assert len(long) == 10
    assert {len(key or b"") for key in long} == {16}
