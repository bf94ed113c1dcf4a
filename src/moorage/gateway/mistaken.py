"""Clients that speak plain HTTP where TLS is spoken: told so, counted, logged now and then.

Here: noticing them, by what OpenSSL says of their first bytes, and the answer in plain HTTP that names https. Not here:
TLS (`tls`), connections (the event loop's). Called by `serving`, with the context that `tls` made.

OpenSSL knows a request by its method (GET, POST, HEAD, PUT); others are closed without a word, as anything else is.
"""

import json
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol

LOG_EVERY_S: Final = 60.0
_BODY: Final = json.dumps(
    {
        "error": {
            "message": "this port speaks TLS, and the request came in plain HTTP: use https:// in place of http://",
            "type": "invalid_request_error",
            "param": None,
            "code": "https_required",
        }
    }
).encode()
ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class Log(Protocol):
    """What is logged to."""

    def warning(self, event: str, /, **fields: object) -> object:
        """One line."""


class Mistaken:
    """Those of one process.

    Args:
        log: gets a line for the first one, and then one at most every `LOG_EVERY_S`, when another comes.
        clock: monotonic seconds.
    """

    def __init__(self, log: Log, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._told_at: float | None = None
        self.count = 0

    def seen(self) -> None:
        """There is one more."""
        self.count += 1
        now = self._clock()
        if self._told_at is None or now - self._told_at >= LOG_EVERY_S:
            self._told_at = now
            self._log.warning(
                "gateway.plain_http_at_tls",
                text="a client spoke plain HTTP at the TLS port; it was told to use https",
                count=self.count,
            )

    def watch(self, context: ssl.SSLContext) -> None:
        """Have handshakes of this context tell of them."""
        seen = self.seen

        class Handshake(_Handshake):
            noticed = staticmethod(seen)

        context.sslobject_class = Handshake


class _Handshake(ssl.SSLObject):
    """A side of TLS that answers a request in plain HTTP once, and reads the rest of it to nowhere.

    A connection closed with bytes unread would be reset, and the answer lost. Its client closes it; else the limit on
    handshakes does.
    """

    noticed: Callable[[], None]
    _out: ssl.MemoryBIO
    _in: ssl.MemoryBIO
    _answered = False

    @classmethod
    def _create(cls, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **named: Any) -> "_Handshake":
        made: _Handshake = super()._create(incoming, outgoing, *args, **named)  # type: ignore[misc]  # of wrap_bio
        made._in, made._out = incoming, outgoing
        return made

    def do_handshake(self) -> None:
        """Go on with it.

        Raises:
            ssl.SSLWantReadError: more must come first; also once it was answered in plain HTTP, which is sent then.
            ssl.SSLError: it failed.
        """
        if self._answered:
            self._in.read()
            raise ssl.SSLWantReadError
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if error.reason != "HTTP_REQUEST":
                raise
            self._answered = True
            self._in.read()
            self.noticed()
            self._out.read()  # an alert of TLS, which it would not understand
            self._out.write(ANSWER)
            raise ssl.SSLWantReadError from error
