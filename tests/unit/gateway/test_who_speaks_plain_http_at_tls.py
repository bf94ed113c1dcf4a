"""Clients that speak plain HTTP where TLS is spoken are counted, and logged no more than once a minute."""

import ssl

from moorage.gateway.mistaken import ANSWER, LOG_EVERY_S, Mistaken


class Lines:
    def __init__(self) -> None:
        self.counts: list[object] = []

    def warning(self, event: str, /, **fields: object) -> None:
        assert event == "gateway.plain_http_at_tls"
        self.counts.append(fields["count"])


def test_many_are_told_in_one_line_a_minute_with_how_many_there_were():
    lines, now = Lines(), [100.0]
    mistaken = Mistaken(lines, lambda: now[0])
    for _ in range(1000):
        mistaken.seen()
    assert lines.counts == [1]
    now[0] += LOG_EVERY_S
    mistaken.seen()
    assert lines.counts == [1, 1001]


def test_a_request_is_answered_once_in_plain_http_and_the_rest_of_it_is_not_kept():
    lines = Lines()
    mistaken = Mistaken(lines, lambda: 0.0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    mistaken.watch(context)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = context.wrap_bio(received, sent, server_side=True)
    received.write(b"POST /v1/chat/completions HTTP/1.1\r\n\r\n")
    assert _outcome(side) is ssl.SSLWantReadError
    assert sent.read() == ANSWER
    received.write(b"x" * 100_000)
    assert _outcome(side) is ssl.SSLWantReadError
    assert (sent.read(), received.pending, mistaken.count) == (b"", 0, 1)


def test_other_bytes_are_no_request():
    mistaken = Mistaken(Lines(), lambda: 0.0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    mistaken.watch(context)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    received.write(b"\x00\xff" * 50)
    assert _outcome(context.wrap_bio(received, sent, server_side=True)) is ssl.SSLError
    assert b"HTTP" not in sent.read()
    assert mistaken.count == 0


def _outcome(side: ssl.SSLObject) -> type[Exception]:
    try:
        side.do_handshake()
    except ssl.SSLError as error:
        return type(error)
    raise AssertionError("agreed on TLS with nobody")
