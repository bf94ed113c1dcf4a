"""The header lines of a head: which are well formed, what they say about framing and the connection, which go on.

Here: the grammar of one line, the few names that mean something to a gateway, and the memory of lines seen. Heads
seldom repeat, but most of their lines do: a line is judged once, and a known line without meaning to us costs one
look-up. Not here: first lines (`heads`), bodies, sockets, whole heads that are like others (`shapes`, to which this
tells what each line is).

The grammar is strict: a name is a token directly before its colon, a line that begins with a space continues nothing,
a value has no control characters. So every parser behind us reads the same lines from what is passed on.
"""

import re
from collections.abc import Callable, Sequence

from moorage.gateway.shapes import (
    ANY,
    DROPPED,
    ENDING,
    FIXED,
    FOREIGN,
    KEY,
    LENGTH,
    MOORAGE_KEY,
    REQUEST_ID,
    SANE_ID,
    SESSION,
    Asks,
    Fields,
)

CHUNKED = -1
UNFRAMED = -2

_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_LENGTH_DIGITS_MAX = 18
_KNOWN_LINES_MAX = 2048
_KNOWN_BYTES_MAX = 1024
_NO_WORDS: frozenset[bytes] = frozenset()
_USUAL_WORDS = frozenset((b"keep-alive", b"close", b"upgrade", b"te"))
_NEVER_NAMED = frozenset((b"content-length", b"transfer-encoding", b"host", b"authorization", b"content-type"))
"""Lines that frame or address the message stay whatever Connection says, else a client could take them away."""

_PLAIN, _LENGTH, _CODING, _HOST, _ORIGIN, _TYPE, _SESSION = 0, 1, 2, 3, 4, 5, 6
_CREDENTIAL = 14
"""A Moorage key ends at this hop; whatever else vouches for a client is the model server's to judge."""
_VOUCHING = (b"authorization", b"x-api-key")
# From here on the line ends at this hop.
_HOP, _CONNECTION, _EXPECT, _REQUEST_ID, _REVISION, _ENDPOINT, _UPGRADE = 7, 8, 9, 10, 11, 12, 13
_OF_ONE_VALUE = frozenset((_REVISION, _ENDPOINT, _UPGRADE, _CREDENTIAL, _TYPE))
"""Two different values are one that there is not."""
_FORMS = (b"multipart/", b"application/x-www-form-urlencoded")
_PROTOCOL = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z/-]+")
_NEVER_UPGRADED = (b"h2", b"http", b"tls", b"ssl")
"""Protocols that this hop would have to speak: what runs inside would be requests that nobody here read."""
_OURS = b"x-moorage-"
_SESSION_NAME = b"x-moorage-session"
_KINDS = {
    b"content-length": _LENGTH,
    b"transfer-encoding": _CODING,
    b"host": _HOST,
    b"origin": _ORIGIN,
    b"content-type": _TYPE,
    b"connection": _CONNECTION,
    b"expect": _EXPECT,
    b"x-request-id": _REQUEST_ID,
    b"x-moorage-revision": _REVISION,
    b"x-moorage-endpoint": _ENDPOINT,
    _SESSION_NAME: _SESSION,
    b"keep-alive": _HOP,
    b"proxy-connection": _HOP,
    b"proxy-authorization": _HOP,
    b"proxy-authenticate": _HOP,
    b"te": _HOP,
    b"upgrade": _UPGRADE,
    b"http2-settings": _HOP,
    **dict.fromkeys(_VOUCHING, _CREDENTIAL),
}

_Meaning = tuple[int, int, bytes, frozenset[bytes]]
"""Kind, number (a length), text (the value of those where it matters), words (of Connection)."""

Judge = Callable[[Sequence[bytes], Sequence[bytes]], None]
"""Told the values of a head's Host lines and of its Origin lines; raises `BadHead` to refuse it."""


class BadHead(Exception):
    """A head that is refused. `status` and `code` are what the client gets."""

    def __init__(self, status: int, message: str, *, code: str = "bad_request") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


class FieldReader:
    """Reads header lines and remembers what they mean; emptied when full.

    Args:
        judge: who may ask; None lets everybody.
        answers: whether these are heads of answers, in which lines named X-Moorage-… are ours to write.
    """

    __slots__ = ("_answers", "_judge", "_notable", "_plain")

    def __init__(self, judge: Judge | None = None, *, answers: bool = False) -> None:
        self._judge = judge
        self._answers = answers
        self._plain: set[bytes] = set()
        self._notable: dict[bytes, _Meaning] = {}

    def read(self, lines: Sequence[bytes]) -> Fields:
        """Read a head's lines.

        Args:
            lines: those after the first one, without their line ends.

        Raises:
            BadHead: a line is malformed, the body's length is open to two readings, or the judge refuses it.
        """
        plain, notable = self._plain, self._notable
        length, framings = UNFRAMED, 0
        hosts: list[bytes] = []
        origins: list[bytes] = []
        stopping: list[bytes] = []
        words = _NO_WORDS
        told: dict[int, bytes] = {}
        for line in [line for line in lines if line not in plain]:
            kind, number, text, named = notable.get(line) or self._learn(line)
            if kind == _PLAIN:
                continue
            if kind < _HOST:
                framings += 1
                length = number
            elif kind == _HOST:
                hosts.append(text)
            elif kind == _ORIGIN:
                origins.append(text)
            else:
                if kind >= _HOP:
                    stopping.append(line)
                if kind == _CONNECTION:
                    words = words | named if words else named
                elif text or kind == _EXPECT:
                    _tell(told, kind, text)
        if framings > 1:
            raise BadHead(400, "the body's length is said more than once")
        if self._judge is not None and len(hosts) < 2:  # with two, whoever asks is refused as malformed
            self._judge(hosts, origins)
        kept = _kept(lines, frozenset(stopping), words) if stopping else None
        asks = _asks(told, words) if told else None
        session = b"" if _SESSION_NAME in words else told.get(_SESSION, b"")
        expect, request_id, revision = told.get(_EXPECT), told.get(_REQUEST_ID), told.get(_REVISION)
        return kept, length, len(hosts), words, expect, request_id, revision, asks, session

    def kinds(self, lines: Sequence[bytes], fields: Fields) -> list[int] | None:
        """What each of these lines is in the shape of their head; None where no other head may have it.

        Args:
            lines: as they were read.
            fields: what they say.
        """
        if fields[4] is not None or not fields[3] <= _USUAL_WORDS:
            return None
        kinds = [self._kind(line.partition(b":")[0].lower()) for line in lines]
        return [self._in_shape(line, kind, kinds.count(kind) == 1) for line, kind in zip(lines, kinds, strict=True)]

    def _in_shape(self, line: bytes, kind: int, alone: bool) -> int:
        # Host and Origin are fixed: a head that has the shape of one that was judged needs no judging.
        if kind == _CREDENTIAL:
            foreign = MOORAGE_KEY.fullmatch(line.partition(b":")[2].strip(b" \t")) is None
            if not alone:
                return FIXED if foreign else ENDING
            return FOREIGN if foreign else KEY
        if kind == _REQUEST_ID and not self._answers:
            return REQUEST_ID if alone else ENDING
        if kind in {_HOP, _REQUEST_ID}:
            return DROPPED
        if kind == _SESSION:
            return SESSION if alone else FIXED
        return {_PLAIN: ANY, _LENGTH: LENGTH}.get(kind, ENDING if kind >= _HOP else FIXED)

    def _kind(self, name: bytes) -> int:
        """Of a name in lower case."""
        kind = _KINDS.get(name, _PLAIN)
        if kind == _CREDENTIAL and self._answers:
            return _PLAIN
        return _HOP if kind in {_PLAIN, _SESSION} and self._answers and name.startswith(_OURS) else kind

    def _learn(self, line: bytes) -> _Meaning:
        found = _LINE.fullmatch(line)
        if found is None:
            raise BadHead(400, "malformed header line")
        name, value = found.groups()
        meaning = _meaning(self._kind(name.lower()), value.rstrip(b" \t"))
        if len(line) > _KNOWN_BYTES_MAX:
            return meaning
        if len(self._plain) + len(self._notable) >= _KNOWN_LINES_MAX:
            self._plain.clear()
            self._notable.clear()
        if meaning[0] == _PLAIN:
            self._plain.add(line)
        else:
            self._notable[line] = meaning
        return meaning


def _tell(told: dict[int, bytes], kind: int, text: bytes) -> None:
    """One more line of a kind: it counts in place of those before it, but for the first session."""
    if kind not in told:
        told[kind] = text
    elif kind in _OF_ONE_VALUE:
        told[kind] += b", " + text
    elif kind != _SESSION:
        told[kind] = text


def _kept(lines: Sequence[bytes], stopping: frozenset[bytes], words: frozenset[bytes]) -> bytes:
    kept = [line for line in lines if line not in stopping]
    if not words <= _USUAL_WORDS:
        kept = without(kept, words - _NEVER_NAMED)
    return b"\r\n".join((*kept, b""))


def value_of(lines: bytes, name: bytes) -> bytes | None:
    """The first value of a header (its name in lower case) in some header lines; for what is seldom asked."""
    mark = name + b":"
    lower = lines.lower()
    at = 0
    if not lower.startswith(mark):
        at = lower.find(b"\r\n" + mark) + 2
        if at == 1:
            return None
    start = at + len(mark)
    end = lines.find(b"\r\n", start)
    return lines[start : end if end >= 0 else len(lines)].strip(b" \t")


def without(lines: Sequence[bytes], names: frozenset[bytes]) -> list[bytes]:
    """Header lines less those of these names (lower case)."""
    return [line for line in lines if line.partition(b":")[0].lower() not in names]


def _asks(told: dict[int, bytes], words: frozenset[bytes]) -> Asks | None:
    endpoint, form = told.get(_ENDPOINT, b""), told.get(_TYPE, b"")
    upgrade = told.get(_UPGRADE, b"") if b"upgrade" in words else b""
    if not _PROTOCOL.fullmatch(upgrade) or upgrade.startswith(_NEVER_UPGRADED):
        upgrade = b""
    credential = told.get(_CREDENTIAL, b"")
    return Asks(endpoint, form, upgrade, credential) if endpoint or form or upgrade or credential else None


def _meaning(kind: int, value: bytes) -> _Meaning:
    if kind == _PLAIN or (kind == _TYPE and not value.lower().startswith(_FORMS)):
        return _PLAIN_MEANING
    if kind == _CREDENTIAL:
        key = MOORAGE_KEY.fullmatch(value)
        return _PLAIN_MEANING if key is None else (_CREDENTIAL, 0, key[1], _NO_WORDS)
    if kind == _LENGTH:
        return _LENGTH, _length(value), b"", _NO_WORDS
    if kind == _CODING:
        if value.lower() != b"chunked":
            raise BadHead(501, "only `Transfer-Encoding: chunked` is served here")
        return _CODING, CHUNKED, b"", _NO_WORDS
    if kind == _CONNECTION:
        return _CONNECTION, 0, b"", frozenset(word.strip(b" \t") for word in value.lower().split(b","))
    if kind == _REQUEST_ID:
        return _REQUEST_ID, 0, value if SANE_ID.fullmatch(value) else b"", _NO_WORDS
    if kind in (_REVISION, _ENDPOINT, _TYPE, _SESSION):
        return kind, 0, value, _NO_WORDS
    return kind, 0, value.lower(), _NO_WORDS


def _length(value: bytes) -> int:
    # int() alone would accept signs, underscores and spaces, on which two parsers may disagree.
    if not value.isdigit() or len(value) > _LENGTH_DIGITS_MAX:
        raise BadHead(400, "bad Content-Length")
    return int(value)


_PLAIN_MEANING: _Meaning = (_PLAIN, 0, b"", _NO_WORDS)
