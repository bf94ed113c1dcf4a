"""Request and response heads: read once, checked, and kept ready to send on.

Here: parsing (httptools), refusal of what two parsers could read differently, removal of hop-by-hop headers, and the
choice between the gateway's own paths and those that name an endpoint. Not here: bodies, sockets, routing. A parsed
head holds everything that its bytes mean, so equal bytes may share one object.
"""

import re
from typing import Final, Generic, NamedTuple, TypeVar

import httptools

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authorization",
        b"proxy-authenticate",
        b"te",
        b"upgrade",
    )
)
_STOPPING = _HOP_BY_HOP | {b"expect", b"x-request-id"}
_USUAL_WORDS = frozenset((b"keep-alive", b"close", b"upgrade", b"te"))
_NONE_NAMED: frozenset[bytes] = frozenset()
_SANE_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")
_SANE_TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]+")
_CACHED_BYTES_MAX = 4096
_CACHED_HEADS_MAX = 1024
_NO_BODY_STATUSES = frozenset((204, 304))

H = TypeVar("H")


class BadHead(Exception):
    """A head that is refused. `status` is what the client gets."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


# Who answers a path. Plain integers, as an Enum's members are slow to read and this is asked for every request.
OWN: Final = 0
MODEL: Final = 1  # `/v1/…`: the body's `model` names the endpoint
ENDPOINT: Final = 2  # `/endpoints/NAME/…`
NOWHERE: Final = 3


class Forward(NamedTuple):
    """One reading of a path: the endpoint it names, and the head to send there, all but its last lines."""

    name: str
    head: bytes


class RequestHead(NamedTuple):
    """A client's head. `length` is the body's bytes, -1 when chunked."""

    method: str
    path: str
    kind: int
    forwards: tuple[Forward, ...]
    length: int
    keep_alive: bool
    http10: bool
    expects_continue: bool
    request_id: bytes | None
    authorization: bytes | None


class ResponseHead(NamedTuple):
    """An upstream's head. `length`: bytes of the body, -1 chunked, -2 until the connection closes."""

    status: int
    head: bytes
    head_unchunked: bytes
    length: int
    keep_alive: bool


class _Reader:
    """Collects what httptools finds."""

    __slots__ = ("complete", "headers", "status", "url")

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.url = b""
        self.status = b""
        self.complete = 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_status(self, status: bytes) -> None:
        self.status += status

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete += 1


class HeadCache(Generic[H]):
    """Heads already parsed, by their bytes; emptied when full, so a stream of new heads costs no more than no cache."""

    __slots__ = ("_heads", "get")

    def __init__(self) -> None:
        self._heads: dict[bytes, H] = {}
        self.get = self._heads.get

    def put(self, raw: bytes, head: H) -> None:
        """Remember a head of ordinary size."""
        if len(raw) > _CACHED_BYTES_MAX:
            return
        if len(self._heads) >= _CACHED_HEADS_MAX:
            self._heads.clear()
        self._heads[raw] = head


def parse_request(raw: bytes) -> RequestHead:
    """Parse a whole head, blank line included.

    Raises:
        BadHead: malformed, or open to two readings.
    """
    reader = _Reader()
    parser = httptools.HttpRequestParser(reader)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # the upgrade is declined by leaving its headers out
    except httptools.HttpParserInvalidMethodError:
        raise BadHead(501, "unknown method") from None
    except httptools.HttpParserError as error:
        raise BadHead(400, f"malformed request: {error}") from None
    version = parser.get_http_version()
    method = parser.get_method().decode("ascii")
    if reader.complete != 1:
        raise BadHead(400, "malformed request head")
    if version not in ("1.0", "1.1"):
        raise BadHead(505, f"HTTP version {version} is not served here")
    if method == "CONNECT" or not _SANE_TARGET.fullmatch(reader.url):
        raise BadHead(400, "bad request target")
    return _request(reader, method, version)


def _request(reader: _Reader, method: str, version: str) -> RequestHead:
    length, hosts, http10 = 0, 0, version == "1.0"
    expects = False
    request_id = authorization = connection = None
    lines: list[bytes] = []
    for name, value in reader.headers:
        low = name.lower()
        if low in _STOPPING:
            if low == b"connection":
                connection = value
            elif low == b"expect":
                expects = _expects(value)
            elif low == b"x-request-id" and _SANE_ID.fullmatch(value):
                request_id = value
            continue
        if low == b"content-length":
            length = int(value)
        elif low == b"transfer-encoding":
            length = _chunked(value, length, http10)
        elif low == b"host":
            hosts += 1
        elif low == b"authorization":
            authorization = value
        lines += (name, b": ", value, b"\r\n")
    if hosts != 1 and not (http10 and hosts == 0):
        raise BadHead(400, "exactly one Host header is needed")
    named = _NONE_NAMED
    if connection is not None:
        named = _connection_words(reader.headers)
        if not named <= _USUAL_WORDS:
            lines = _without(lines, named)
    target = _origin_form(reader.url)
    rest = b"".join(lines) if hosts else b"Host: moorage\r\n" + b"".join(lines)
    kind, forwards = _forwards(method, target, rest)
    return RequestHead(
        method=method,
        path=target.partition(b"?")[0].decode("latin-1"),
        kind=kind,
        forwards=forwards,
        length=length,
        keep_alive=not http10 and b"close" not in named,
        http10=http10,
        expects_continue=expects and not http10,
        request_id=request_id,
        authorization=authorization,
    )


def _without(lines: list[bytes], names: frozenset[bytes]) -> list[bytes]:
    """Header lines (four parts each) less those of these names."""
    kept: list[bytes] = []
    for at in range(0, len(lines), 4):
        if lines[at].lower() not in names:
            kept += lines[at : at + 4]
    return kept


def _connection_words(headers: list[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Headers that Connection names are hop-by-hop too. Those that frame or address the message never are."""
    words: set[bytes] = set()
    for name, value in headers:
        if name.lower() == b"connection":
            words.update(word.strip().lower() for word in value.split(b","))
    return frozenset(words - {b"content-length", b"transfer-encoding", b"host", b"authorization", b"content-type"})


def _chunked(value: bytes, length: int, http10: bool) -> int:
    if value.strip().lower() != b"chunked" or length == -1 or http10:
        raise BadHead(501 if length != -1 and not http10 else 400, "only `Transfer-Encoding: chunked` is served here")
    return -1


def _expects(value: bytes) -> bool:
    if value.strip().lower() != b"100-continue":
        raise BadHead(417, "unknown expectation")
    return True


def _origin_form(url: bytes) -> bytes:
    """`/path?query` of a target; absolute form is what clients send to a proxy."""
    if url.startswith(b"/"):
        return url
    scheme, mark, rest = url.partition(b"://")
    if not mark or scheme.lower() not in (b"http", b"https"):
        raise BadHead(400, "bad request target")
    slash = rest.find(b"/")
    return rest[slash:] if slash >= 0 else b"/"


_OWN_PATHS = frozenset((b"/livez", b"/readyz", b"/metrics", b"/v1/models"))


def _forwards(method: str, target: bytes, rest: bytes) -> tuple[int, tuple[Forward, ...]]:
    path = target.partition(b"?")[0]
    if path in _OWN_PATHS or path.startswith((b"/moorage/", b"/v1/models/")):
        return OWN, ()
    start = method.encode("ascii") + b" "
    end = b" HTTP/1.1\r\n" + rest
    if path.startswith(b"/v1/"):
        return MODEL, (Forward("", start + target + end),)
    if not path.startswith(b"/endpoints/"):
        return NOWHERE, ()
    # Either NAME or NAMESPACE/NAME; which one, the table decides.
    parts = target[len(b"/endpoints/") :].split(b"/", 2)
    first, mark, query = parts[0].partition(b"?")
    forwards = [Forward(first.decode("latin-1"), start + b"/" + b"/".join(parts[1:]) + mark + query + end)]
    if len(parts) > 1:
        second, mark, query = parts[1].partition(b"?")
        name = f"{first.decode('latin-1')}/{second.decode('latin-1')}"
        forwards.append(Forward(name, start + b"/" + b"/".join(parts[2:]) + mark + query + end))
    return ENDPOINT, tuple(forwards)


def parse_response(raw: bytes, to_head: bool) -> ResponseHead:
    """Parse an upstream's whole head.

    Args:
        to_head: it answers a HEAD request, so no body follows.

    Raises:
        BadHead: malformed (502).
    """
    reader = _Reader()
    parser = httptools.HttpResponseParser(reader)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        raise BadHead(502, "the model server switched protocols unasked") from None
    except httptools.HttpParserError as error:
        raise BadHead(502, f"the model server's answer is malformed: {error}") from None
    status = parser.get_status_code()
    if reader.complete != 1:
        raise BadHead(502, "the model server's answer is malformed")
    named = _connection_words(reader.headers)
    http10 = parser.get_http_version() == "1.0"
    length, lines, framing_lines = -2, [b"HTTP/1.1 %d %b\r\n" % (status, reader.status)], []
    for name, value in reader.headers:
        low = name.lower()
        if low == b"content-length":
            length = int(value)
            framing_lines.append(b"Content-Length: " + value + b"\r\n")
        elif low == b"transfer-encoding":
            if value.strip().lower() != b"chunked" or length == -1:
                raise BadHead(502, "the model server's transfer encoding is not served here")
            length = -1
            framing_lines.append(b"Transfer-Encoding: chunked\r\n")
        elif low not in _HOP_BY_HOP and low not in named and low != b"x-request-id":
            lines.append(name + b": " + value + b"\r\n")
    if to_head or status in _NO_BODY_STATUSES or status < 200:
        length = 0
    unchunked = b"".join(lines)
    keep_alive = b"close" not in named and (not http10 or b"keep-alive" in named)
    return ResponseHead(status, unchunked + b"".join(framing_lines), unchunked, length, keep_alive)
