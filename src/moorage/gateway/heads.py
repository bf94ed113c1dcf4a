"""Request and response heads: checked, read once, and ready to send on.

Here: first lines (a request line is checked by httptools, once for each that is new), the choice between the gateway's
own paths and those that name an endpoint. Not here: what header lines say (`fields`), bodies, sockets, routing. A head
holds everything that its bytes mean, so equal bytes share one object; a head that never repeats shares what its first
line and its lines mean.
"""

import re
from typing import Final, Generic, NamedTuple, TypeVar
from urllib.parse import unquote

import httptools

from moorage.gateway import native
from moorage.gateway.fields import CHUNKED, UNFRAMED, BadHead, FieldReader, Judge, without
from moorage.gateway.shapes import Asks, Fields, Shapes

_CACHED_BYTES_MAX = 4096
_CACHED_HEADS_MAX = 1024
_HOSTS_MAX = 1024
_HOST_BYTES_MAX = 256
_NO_BODY_STATUSES = frozenset((204, 304))
_REQUEST_LINE = re.compile(rb"([A-Z-]+) ([\x21-\x7e\x80-\xff]+) HTTP/([0-9]\.[0-9])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([^\r\n]*))?")
_OWN_PATHS = frozenset((b"/livez", b"/readyz", b"/metrics", b"/v1/models"))

T = TypeVar("T")
_new = tuple.__new__

# Who answers a path. Plain integers, as an Enum's members are slow to read and this is asked for every request.
OWN: Final = 0
MODEL: Final = 1  # `/v1/…`: the body's `model` names the endpoint
ENDPOINT: Final = 2  # `/endpoints/NAME/…`
NOWHERE: Final = 3


class Forward(NamedTuple):
    """One reading of a path: the endpoint it names, and the request line to send there."""

    name: str
    line: bytes


class RequestLine(NamedTuple):
    """A request line. `path` is without its query.

    `usual`: where it is a POST that names its endpoint in the body, the line that goes on; else empty.
    """

    method: str
    path: str
    kind: int
    forwards: tuple[Forward, ...]
    http10: bool
    usual: bytes = b""


class RequestHead(NamedTuple):
    """A client's head. `lines` go on after the request line; `length` is the body's bytes, -1 when chunked.

    `revision`: the one that the request names, if it does. `asks`: what few heads say, None where it says none of it.
    `session`: what X-Moorage-Session says; empty where it says nothing.
    """

    line: RequestLine
    lines: bytes
    length: int
    keep_alive: bool
    expects_continue: bool
    request_id: bytes | None
    revision: str | None
    asks: Asks | None = None
    session: bytes = b""


class ResponseHead(NamedTuple):
    """An upstream's head. `length`: bytes of the body, -1 chunked, -2 until the connection closes.

    `upgrade`: the protocol to which it says that it switches; `events`: its body is a stream of server-sent events.
    """

    status: int
    head: bytes
    length: int
    keep_alive: bool
    upgrade: bytes = b""
    events: bool = False

    def unchunked(self) -> bytes:
        """The head for a client that knows no chunks."""
        return b"\r\n".join(without(self.head.split(b"\r\n"), frozenset((b"transfer-encoding",))))

    def bodiless(self) -> "ResponseHead":
        """The same as an answer to HEAD: whatever length it says, no body follows."""
        return self._replace(length=0)


class Remembered(Generic[T]):
    """What bytes mean, by the bytes; emptied when full, so a stream of new ones costs little more than nothing."""

    __slots__ = ("get", "known")

    def __init__(self) -> None:
        self.known: dict[bytes, T] = {}
        self.get = self.known.get

    def put(self, raw: bytes, meaning: T) -> None:
        """Remember bytes of ordinary size."""
        if len(raw) > _CACHED_BYTES_MAX:
            return
        if len(self.known) >= _CACHED_HEADS_MAX:
            self.known.clear()
        self.known[raw] = meaning


class RequestReader:
    """Reads clients' heads.

    Args:
        judge: who may ask; None lets everybody.
    """

    __slots__ = ("_core", "_fields", "_firsts", "_heads", "_hosts", "_last", "_last_raw", "_shapes")

    def __init__(self, judge: Judge | None = None) -> None:
        self._core = native.core
        self._fields = FieldReader(judge)
        self._heads: Remembered[RequestHead] = Remembered()
        self._shapes: Shapes[RequestHead] = Shapes()
        self._firsts: Remembered[RequestLine] = Remembered()
        self._last_raw = b""
        self._last: RequestHead | None = None
        self._hosts: set[bytes] = set()
        """lines that the judge let in"""

    def read(self, raw: bytes) -> RequestHead:
        """A whole head, blank line included.

        Raises:
            BadHead: malformed, open to two readings, or refused by the judge.
        """
        if raw == self._last_raw and self._last is not None:
            return self._last
        head = (
            self._heads.get(raw)
            if self._core is None
            else self._core.request_head(raw, RequestHead, Asks, self._firsts.known, self._hosts)
        )
        if head is None:
            head = self._shapes.read(raw) if self._core is None else self._missed(raw)
            if head is not None:
                return head
            head = self._read(raw)
        self._last_raw, self._last = raw, head
        return head

    def _missed(self, raw: bytes) -> RequestHead | None:
        """What the core left to us, though it may be known; what the core needs for the next one is told again."""
        head = self._heads.get(raw) or self._shapes.read(raw)
        if head is not None:
            first = raw[: raw.find(b"\r\n")]
            if first not in self._firsts.known:
                self._firsts.put(first, head.line)
                self._let_in(raw.split(b"\r\n"))
        return head

    def _read(self, raw: bytes) -> RequestHead:
        """One of which nothing is known yet."""
        lines = raw.split(b"\r\n")
        first, others = lines[0], lines[1:-2]
        line = self._firsts.get(first)
        if line is None:
            line = _request_line(first)
            self._firsts.put(first, line)
        fields = self._fields.read(others)
        head = _request(line, raw, len(first) + 2, fields)
        self._heads.put(raw, head)
        if self._core is not None:
            self._let_in(lines)
        kinds = self._fields.kinds(others, fields)
        if kinds is not None:
            self._shapes.learn(raw, kinds, head)
        return head

    def _let_in(self, lines: list[bytes]) -> None:
        """A head was read of which the judge saw no more than a Host line: with this line it lets any such head in."""
        hosts = [line for line in lines if line[:5].lower() == b"host:"]
        if len(hosts) != 1 or any(line[:7].lower() == b"origin:" for line in lines):
            return
        if len(self._hosts) >= _HOSTS_MAX:
            self._hosts.clear()
            self._firsts.known.clear()  # so that both are told again, of heads that are known too
        if len(hosts[0]) <= _HOST_BYTES_MAX:
            self._hosts.add(hosts[0])


def _request(line: RequestLine, raw: bytes, start: int, fields: Fields) -> RequestHead:
    kept, length, hosts, words, expect, request_id, revision, asks, session = fields
    lines = raw[start:-2] if kept is None else kept
    http10 = line.http10
    if hosts != 1:
        if hosts or not http10:
            raise BadHead(400, "exactly one Host header is needed")
        lines = b"Host: moorage\r\n" + lines
    if length == UNFRAMED:
        length = 0
    elif length == CHUNKED and http10:
        raise BadHead(400, "chunks are not known to HTTP/1.0")
    if expect is not None and expect != b"100-continue":
        raise BadHead(417, "unknown expectation")
    if asks is not None and asks.upgrade:
        asks, lines = _upgraded(asks, lines, length, http10)
    keep_alive = not http10 and b"close" not in words
    # Not by the class's own constructor, which is a function in Python and costs as much as all of this.
    continues = expect is not None and not http10
    named = None if revision is None else revision.decode("latin-1")
    return _new(RequestHead, (line, lines, length, keep_alive, continues, request_id, named, asks, session))


def _upgraded(asks: Asks, lines: bytes, length: int, http10: bool) -> tuple[Asks, bytes]:
    """A request to switch protocols goes on as one; HTTP/1.0 knows none."""
    if http10:
        return asks._replace(upgrade=b""), lines
    if length:
        raise BadHead(400, "a request that asks for another protocol has no body")
    return asks, b"%bConnection: Upgrade\r\nUpgrade: %b\r\n" % (lines, asks.upgrade)


def _check_request_line(first: bytes) -> None:
    try:
        httptools.HttpRequestParser(None).feed_data(first + b"\r\nHost: any\r\n\r\n")
    except httptools.HttpParserUpgrade:
        pass  # CONNECT
    except httptools.HttpParserInvalidMethodError:
        raise BadHead(501, "unknown method") from None
    except httptools.HttpParserError as error:
        raise BadHead(400, f"malformed request: {error}") from None


def _request_line(first: bytes) -> RequestLine:
    _check_request_line(first)
    found = _REQUEST_LINE.fullmatch(first)
    if found is None:
        raise BadHead(400, "bad request line")
    method, url, version = found.groups()
    if version not in (b"1.0", b"1.1"):
        raise BadHead(505, f"HTTP version {version.decode()} is not served here")
    if method == b"CONNECT":
        raise BadHead(400, "bad request target")
    target = _origin_form(url)
    kind, forwards = _forwards(method, target)
    path = target.partition(b"?")[0].decode("latin-1")
    usual = forwards[0].line if kind == MODEL and method == b"POST" else b""
    return RequestLine(method.decode("ascii"), path, kind, forwards, version == b"1.0", usual)


def _origin_form(url: bytes) -> bytes:
    """`/path?query` of a target; absolute form is what clients send to a proxy."""
    if url.startswith(b"/"):
        return url
    scheme, mark, rest = url.partition(b"://")
    if not mark or scheme.lower() not in (b"http", b"https"):
        raise BadHead(400, "bad request target")
    slash = rest.find(b"/")
    return rest[slash:] if slash >= 0 else b"/"


def _forwards(method: bytes, target: bytes) -> tuple[int, tuple[Forward, ...]]:
    path = target.partition(b"?")[0]
    if path in _OWN_PATHS or path.startswith((b"/moorage/", b"/v1/models/")):
        return OWN, ()
    if path.startswith(b"/v1/"):
        return MODEL, (Forward("", b"%b %b HTTP/1.1\r\n" % (method, target)),)
    if not path.startswith(b"/endpoints/"):
        return NOWHERE, ()
    # Either NAME or NAMESPACE/NAME; which one, the table decides.
    parts = target[len(b"/endpoints/") :].split(b"/", 2)
    first, mark, query = parts[0].partition(b"?")
    name = unquote(first.decode("latin-1"))
    rest = b"/".join(parts[1:]) + mark + query
    forwards = [Forward(name, b"%b /%b HTTP/1.1\r\n" % (method, rest))]
    if len(parts) > 1:
        second, mark, query = parts[1].partition(b"?")
        rest = b"/".join(parts[2:]) + mark + query
        forwards.append(Forward(f"{name}/{unquote(second.decode('latin-1'))}", b"%b /%b HTTP/1.1\r\n" % (method, rest)))
    return ENDPOINT, tuple(forwards)


class _StatusLine(NamedTuple):
    status: int
    line: bytes
    http10: bool


class ResponseReader:
    """Reads upstreams' heads."""

    __slots__ = ("_core", "_fields", "_firsts", "_heads", "_last", "_last_raw", "_shapes")

    def __init__(self) -> None:
        self._core = native.core
        self._fields = FieldReader(answers=True)
        self._heads: Remembered[ResponseHead] = Remembered()
        self._shapes: Shapes[ResponseHead] = Shapes(answers=True)
        self._firsts: Remembered[_StatusLine] = Remembered()
        self._last_raw = b""
        self._last: ResponseHead | None = None

    def read(self, raw: bytes) -> ResponseHead:
        """A whole head, blank line included.

        Raises:
            BadHead: malformed, or open to two readings.
        """
        if raw == self._last_raw and self._last is not None:
            return self._last
        head = (
            self._heads.get(raw)
            if self._core is None
            else self._core.response_head(raw, ResponseHead, self._firsts.known)
        )
        if head is None:
            head = self._shapes.read(raw) if self._core is None else self._missed(raw)
            if head is not None:
                return head
            head = self._read(raw)
        self._last_raw, self._last = raw, head
        return head

    def _missed(self, raw: bytes) -> ResponseHead | None:
        """What the core left to us, though it may be known; what the core needs for the next one is told again."""
        head = self._heads.get(raw) or self._shapes.read(raw)
        if head is not None:
            self._line(raw[: raw.find(b"\r\n")])
        return head

    def _line(self, first: bytes) -> _StatusLine:
        line = self._firsts.get(first)
        if line is None:
            line = _status_line(first)
            self._firsts.put(first, line)
        return line

    def _read(self, raw: bytes) -> ResponseHead:
        """One of which nothing is known yet."""
        first, *others = raw.split(b"\r\n")[:-2]
        line = self._line(first)
        fields = self._fields.read(others)
        head = _response(line, raw, len(first) + 2, fields)
        self._heads.put(raw, head)
        kinds = self._fields.kinds(others, fields) if _has_body(line.status) else None
        if kinds is not None:
            self._shapes.learn(raw, kinds, head, line.line)
        return head


def _status_line(first: bytes) -> _StatusLine:
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise BadHead(502, "the model server's status line is malformed")
    minor, status, reason = found.groups()
    return _StatusLine(int(status), b"HTTP/1.1 %b %b\r\n" % (status, reason or b""), minor == b"0")


def _has_body(status: int) -> bool:
    return status >= 200 and status not in _NO_BODY_STATUSES


def _response(line: _StatusLine, raw: bytes, start: int, fields: Fields) -> ResponseHead:
    kept, length, _, words, _, _, _, asks, _ = fields
    lines = raw[start:-2] if kept is None else kept
    status = line.status
    if not _has_body(status):
        length = 0
    keep_alive = b"close" not in words and (not line.http10 or b"keep-alive" in words)
    upgrade = b"" if asks is None else asks.upgrade
    events = b"text/event-stream" in lines.lower()
    return _new(ResponseHead, (status, line.line + lines, length, keep_alive, upgrade, events))
