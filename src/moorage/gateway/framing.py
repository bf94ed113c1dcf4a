"""Where a chunked body ends, found while its bytes are passed through untouched.

Here: the counter of chunks and trailers. Not here: heads, sockets. Called by both sides of a request, so that bytes
after the end are never passed on, and chunk data that looks like an end is data.
"""

import re

from moorage.gateway import native

LINE_BYTES_MAX = 4096
TRAILER_BYTES_MAX = 16 * 1024
_HEX_DIGITS_MAX = 15
_HEX = frozenset(b"0123456789abcdefABCDEF")
_CR, _LF = 13, 10
_NO_TRAILERS = frozenset(
    (
        b"authorization",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"cookie",
        b"expect",
        b"forwarded",
        b"host",
        b"keep-alive",
        b"set-cookie",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
    )
)
_NO_TRAILERS_OF = (b"x-moorage-", b"proxy-", b"x-forwarded-")
"""What frames, addresses or vouches for a message cannot follow it (RFC 9110, 6.5.1): servers that join trailers to the
head would read there what nobody here has judged."""
_TRAILER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t\x20-\x7e\x80-\xff]*")
"""As strict as for the lines of a head: what one parser takes for a trailer, another may take for a request."""


class FramingError(Exception):
    """The bytes are not a chunked body."""


class ChunkCounter:
    """Follows one chunked body.

    Attributes:
        payload: when set to a list, the chunks' data is appended to it (for skimming, and for HTTP/1.0 clients).
    """

    __slots__ = ("_count_in_c", "_left", "_line", "_line_end", "_trailer", "payload")

    def __init__(self) -> None:
        core = native.core
        self._count_in_c = None if core is None else core.count_chunks
        self.payload: list[bytes] | None = None
        self._left = 0  # chunk data still to come
        self._line_end = 0  # bytes of the CRLF after chunk data still to come
        self._line = b""  # a size or trailer line of which only a part came
        self._trailer = 0  # bytes of trailers seen; 0 while chunks come

    def feed(self, data: bytes, pos: int = 0) -> int:
        """Count `data[pos:]`.

        Returns:
            The index just after the body's end, or -1 when the body goes on.

        Raises:
            FramingError: the bytes are not a chunked body.
        """
        count = self._count_in_c
        if count is not None and self.payload is None and not self._line and not self._trailer:
            counted = count(data, pos, self._left, self._line_end)
            if counted is not None:
                end, self._left, self._line_end = counted
                if end >= 0:
                    self._trailer = 1
                return end
        return self._feed(data, pos)

    def _feed(self, data: bytes, pos: int) -> int:
        size = len(data)
        while True:
            if self._left or self._line_end:
                pos = self._pass_data(data, pos, size)
            if pos >= size:
                return -1
            end = data.find(b"\r\n", pos)
            if self._line or end < 0:
                pos, line = self._gather(data, pos)
                if line is None:
                    return -1
            else:
                line = data[pos:end]
                pos = end + 2
            if not self._trailer:
                self._left = _chunk_size(line)
                self._trailer = 0 if self._left else 1
            elif line:
                self._count_trailer(line)
            else:
                return pos

    def reframed(self, payload: bytes | bytearray, *, whole: bool) -> bytes:
        """This data as the beginning of the body, so that what has not come yet can follow it as it comes.

        Args:
            payload: stands for all the data of the chunks that were counted. Trailers that came whole are left out.
            whole: the body's end was counted.
        """
        end = b"\r\n"
        if whole:
            rest = b"0\r\n\r\n"
        elif self._trailer:
            rest = b"0\r\n" + self._line
        elif self._line_end:
            end, rest = end[: 2 - self._line_end], b""
        elif self._left:
            rest = b"%x\r\n" % self._left
        else:
            rest = self._line
        return b"".join((b"%x\r\n" % len(payload), payload, end, rest)) if payload else rest

    def _pass_data(self, data: bytes, pos: int, size: int) -> int:
        """Step over chunk data and the line end behind it, as far as they are there."""
        if self._left:
            stop = min(size, pos + self._left)
            if self.payload is not None and stop > pos:
                self.payload.append(data[pos:stop])
            self._left -= stop - pos
            if self._left:
                return stop
            pos, self._line_end = stop, 2
        if self._line_end == 2 and data[pos : pos + 2] == b"\r\n":
            self._line_end = 0
            return pos + 2
        return self._after_data(data, pos, size)

    def _after_data(self, data: bytes, pos: int, size: int) -> int:
        while self._line_end and pos < size:
            if data[pos] != (_CR if self._line_end == 2 else _LF):
                raise FramingError("chunk data is not followed by a line end")
            self._line_end -= 1
            pos += 1
        return pos

    def _gather(self, data: bytes, pos: int) -> tuple[int, bytes | None]:
        """Join a line that came in parts; (next position, line or None while it goes on)."""
        had = len(self._line)
        joined = self._line + data[pos : pos + LINE_BYTES_MAX + 2]
        end = joined.find(b"\r\n")
        if end >= 0:
            self._line = b""
            return pos + end + 2 - had, joined[:end]
        if len(joined) > LINE_BYTES_MAX:
            raise FramingError("a chunk line is too long")
        self._line = joined
        return len(data), None

    def _count_trailer(self, line: bytes) -> None:
        self._trailer += len(line) + 2
        found = _TRAILER.fullmatch(line)
        if found is None or self._trailer > TRAILER_BYTES_MAX:
            raise FramingError("bad trailer")
        name = found[1].lower()
        if name in _NO_TRAILERS or name.startswith(_NO_TRAILERS_OF):
            raise FramingError("a trailer that belongs in the head")


def _chunk_size(line: bytes) -> int:
    digits, _, extension = line.partition(b";")
    if extension:
        digits = digits.rstrip(b" \t")
        if b"\n" in extension or b"\r" in extension or len(line) > LINE_BYTES_MAX:
            raise FramingError("bad chunk extension")
    # int() alone would accept signs, underscores, spaces and 0x, on which two parsers may disagree.
    if not digits or len(digits) > _HEX_DIGITS_MAX or not _HEX.issuperset(digits):
        raise FramingError("bad chunk size")
    return int(digits, 16)
