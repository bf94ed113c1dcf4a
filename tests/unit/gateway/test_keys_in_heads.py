"""A Moorage key is read from a head and goes no further; whatever else vouches for a client goes on as it came."""

import pytest

from moorage.gateway.heads import RequestReader

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n%bAccept: b\r\nContent-Length: 2\r\n\r\n"
KEY = b"moor-key.one.secret"


@pytest.mark.parametrize(
    "line",
    [b"Authorization: Bearer " + KEY, b"authorization:bearer  " + KEY, b"X-Api-Key: " + KEY, b"AUTHORIZATION: " + KEY],
)
def test_a_key_ends_here(line: bytes) -> None:
    reader = RequestReader()
    for _ in range(3):  # read, then known
        head = reader.read(HEAD % (line + b"\r\n"))
        assert head.asks is not None
        assert head.asks.credential == KEY
        assert b"moor-key" not in head.lines
        assert b"Accept: b" in head.lines


@pytest.mark.parametrize("line", [b"Authorization: Bearer sk-1", b"Authorization: Basic bW9vcg==", b"x-api-key: sk-2"])
def test_another_credential_goes_on_as_it_came(line: bytes) -> None:
    head = RequestReader().read(HEAD % (line + b"\r\n"))
    assert head.asks is None
    assert line in head.lines


def test_a_key_is_seen_where_foreign_credentials_stood_before() -> None:
    reader = RequestReader()
    for text in (b"sk-1", b"sk-2", b"sk-3", KEY, b"sk-4", KEY + b"2", b"sk-5"):
        head = reader.read(HEAD % (b"Authorization: Bearer " + text + b"\r\n"))
        mine = text.startswith(b"moor-key.")
        assert (head.asks.credential if head.asks else None) == (text if mine else None)
        assert (text in head.lines) is not mine


def test_two_different_keys_are_none_that_there_is() -> None:
    head = RequestReader().read(HEAD % (b"Authorization: Bearer " + KEY + b"\r\nX-Api-Key: " + KEY + b"2\r\n"))
    assert head.asks is not None
    assert head.asks.credential not in (KEY, KEY + b"2")
    assert b"moor-key" not in head.lines
