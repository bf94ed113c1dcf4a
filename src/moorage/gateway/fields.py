"""The header lines of one head: what they say about framing and the connection, and which of them go on.

Here: the names that mean something to a gateway, found in one pass over the whole head; every other line is passed on
as it came. Not here: whether the bytes are a head at all, which `heads` asks httptools before it calls this, so that
each line is `name:value` with a plain name, no folding and no control characters.
"""

import re

CHUNKED = -1
UNFRAMED = -2

# One pattern for all names that matter, over the lower-case head. A loop over every line in Python costs four times
# as much, and a callback for each line six times.
_NOTABLE = re.compile(
    rb"\n(c(?:ontent-length|onnection)|host|t(?:ransfer-encoding|e)|keep-alive|expect|x-request-id|upgrade"
    rb"|proxy-(?:connection|authorization|authenticate)):[ \t]*([^\r]*)"
)
_STOPPING = re.compile(
    rb"\n(connection|te|keep-alive|expect|x-request-id|upgrade"
    rb"|proxy-(?:connection|authorization|authenticate)):[ \t]*([^\r]*)\r"
)
_SANE_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")
_NO_WORDS: frozenset[bytes] = frozenset()
_COMMON_WORDS = {word: frozenset((word,)) for word in (b"keep-alive", b"close")}
"""Values of Connection that most clients and servers send, alone."""
_USUAL_WORDS = frozenset((b"keep-alive", b"close", b"upgrade", b"te"))
_NEVER_NAMED = frozenset((b"content-length", b"transfer-encoding", b"host", b"authorization", b"content-type"))
"""Lines that frame or address the message stay whatever Connection says, else a client could take them away."""


class BadHead(Exception):
    """A head that is refused. `status` is what the client gets."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


Fields = tuple[bytes, int, int, frozenset[bytes], bytes | None, bytes | None]
"""What header lines say; a plain tuple, since two are made for every request.

- the lines that go on, each with its line end
- bytes of the body, CHUNKED, or UNFRAMED when no line says it
- how many Host lines there are
- what Connection says, in lower case
- the value of Expect, in lower case
- the sender's X-Request-Id, if it is one that can be written into logs
"""


def read_fields(raw: bytes, start: int) -> Fields:
    """Read the lines of a head.

    Args:
        raw: the whole head, blank line included, already found to be well formed.
        start: where its second line begins.

    Raises:
        BadHead: the body's length is open to two readings.
    """
    low = raw.lower()
    length, framings, hosts, stops = UNFRAMED, 0, 0, 0
    stop = b""
    for name, value in _NOTABLE.findall(low):
        if name == b"content-length":
            framings += 1
            length = _length(value)
        elif name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            framings += 1
            length = _chunked(value)
        else:
            stops += 1
            stop = value if name == b"connection" else b""
    if framings > 1:
        raise BadHead(400, "the body's length is said more than once")
    if not stops:
        return raw[start:-2], length, hosts, _NO_WORDS, None, None
    words = _COMMON_WORDS.get(stop) if stops == 1 else None
    if words is not None:
        at = low.find(b"\nconnection:", start - 1) + 1
        return raw[start:at] + raw[low.find(b"\n", at) + 1 : -2], length, hosts, words, None, None
    return _without_stopping(raw, low, start, length, hosts)


def value_of(lines: bytes, name: bytes) -> bytes | None:
    """The first value of a header in some header lines; for what is seldom asked."""
    found = re.search(rb"(?:^|\n)" + re.escape(name) + rb":[ \t]*([^\r]*)", lines, re.IGNORECASE)
    return found[1].rstrip(b" \t") if found else None


def without(lines: bytes, names: frozenset[bytes]) -> bytes:
    """Header lines less those of these names (lower case)."""
    kept = [line for line in lines.split(b"\r\n")[:-1] if line.partition(b":")[0].lower() not in names]
    return b"".join(line + b"\r\n" for line in kept)


def _length(value: bytes) -> int:
    digits = value if value.isdigit() else value.rstrip(b" \t")
    if not digits.isdigit():
        raise BadHead(400, "bad Content-Length")
    return int(digits)


def _chunked(value: bytes) -> int:
    if value.rstrip(b" \t") != b"chunked":
        raise BadHead(501, "only `Transfer-Encoding: chunked` is served here")
    return CHUNKED


def _without_stopping(raw: bytes, low: bytes, start: int, length: int, hosts: int) -> Fields:
    """Cut out the lines that end at this hop; `low` is `raw` in lower case, so positions are the same in both."""
    words, expect, request_id = _NO_WORDS, None, None
    pieces, at = [], start
    for found in _STOPPING.finditer(low, start - 1):
        pieces.append(raw[at : found.start() + 1])
        at = found.end() + 1
        name = found[1]
        if name == b"connection":
            words |= _words(found[2])
        elif name == b"expect":
            expect = found[2].rstrip(b" \t")
        elif name == b"x-request-id":
            value = raw[found.start(2) : found.end(2)].rstrip(b" \t")
            request_id = value if _SANE_ID.fullmatch(value) else request_id
    pieces.append(raw[at:-2])
    kept = b"".join(pieces)
    if not words <= _USUAL_WORDS:
        kept = without(kept, words - _NEVER_NAMED)
    return kept, length, hosts, words, expect, request_id


def _words(value: bytes) -> frozenset[bytes]:
    return frozenset(word.strip() for word in value.split(b","))
