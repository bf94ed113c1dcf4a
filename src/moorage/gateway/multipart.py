"""Finds the part `model` of a form of parts (`multipart/form-data`), wherever it stands among the files.

Here: a resumable look for the lines that divide the parts, and the value of the one part that names the endpoint. Not
here: what the parts hold otherwise, which is the model server's business. Called by `frontend`, which bounds the bytes.
"""

import re
from typing import Final

from moorage.gateway.skim import Skimmed

_BOUNDARY = re.compile(
    rb'(?i);[ \t]*boundary=(?:"([^"\x00-\x1f\\]{1,70})"|([!#$%&\'*+.^_`|~0-9A-Za-z/:=?-]{1,70}))[ \t]*(?=;|$)'
)
_DISPOSITION = re.compile(rb"(?i)content-disposition:[ \t]*form-data[ \t]*;([^\r\n]*)")
_NAME_IS_MODEL = re.compile(rb'(?i)(?:^|;)[ \t]*name=(?:"model"|model)[ \t]*(?=;|$)')
_PART_HEAD_BYTES_MAX: Final = 8192
_NAME_BYTES_MAX: Final = 1024


def boundary_of(content_type: bytes) -> bytes | None:
    """What divides the parts; None where the type does not say it, or says it twice."""
    found = _BOUNDARY.findall(content_type)
    return found[0][0] or found[0][1] if len(found) == 1 else None


class PartFinder:
    """One form. Feed the whole of what came so far each time; the look resumes where it stopped.

    Args:
        boundary: as `boundary_of` told it.

    Attributes:
        start, end: where the value stands in the bytes, once it was found.
    """

    __slots__ = ("_delimiter", "_pos", "end", "start")

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._pos = -2  # the line end before the first delimiter is not sent
        self.start = self.end = 0

    def feed(self, body: bytes | bytearray, complete: bool) -> str | Skimmed:
        """The value of the part `model`, MORE when the bytes end first, ABSENT when there is none.

        Args:
            body: everything received so far.
            complete: nothing more will come.
        """
        result = self._look(body)
        return Skimmed.ABSENT if complete and result is Skimmed.MORE else result

    def twice(self, body: bytes | bytearray) -> bool:
        """Whether there is a second such part after the one that was found."""
        return type(self._look(body, keep=True)) is str

    def written(self, model: str) -> bytes:
        """Another model as this form writes it."""
        return model.encode()

    def _look(self, body: bytes | bytearray, *, keep: bool = False) -> str | Skimmed:
        while True:
            at = self._delimiter_at(body)
            if at == -1:
                return Skimmed.MORE
            begin = at + len(self._delimiter)
            line_end = body.find(b"\r\n", begin, begin + _PART_HEAD_BYTES_MAX)
            if body[begin : begin + 2] == b"--":
                return Skimmed.ABSENT
            if line_end < 0:
                return Skimmed.MORE if len(body) < begin + _PART_HEAD_BYTES_MAX else Skimmed.ABSENT
            if body[begin:line_end].strip(b" \t"):
                self._pos = begin  # a longer word that only begins as the boundary does
                continue
            found = self._part(body, line_end, keep)
            if found is not None:
                return found

    def _delimiter_at(self, body: bytes | bytearray) -> int:
        if self._pos < 0:
            first = self._delimiter[2:]
            if body[: len(first)] == first:
                return -2
            if len(body) < len(first) and first.startswith(bytes(body)):
                return -1
            self._pos = 0
        at = body.find(self._delimiter, self._pos)
        self._pos = at if at >= 0 else max(self._pos, len(body) - len(self._delimiter))
        return at

    def _part(self, body: bytes | bytearray, line_end: int, keep: bool) -> str | Skimmed | None:
        """Look at the part behind a delimiter; None when it is another one."""
        head_end = body.find(b"\r\n\r\n", line_end, line_end + _PART_HEAD_BYTES_MAX)
        if head_end < 0:
            return Skimmed.MORE if len(body) < line_end + _PART_HEAD_BYTES_MAX else Skimmed.ABSENT
        told = _DISPOSITION.search(body, line_end, head_end)
        if told is None or not _NAME_IS_MODEL.search(told[1]):
            self._pos = head_end + 2  # an empty part ends with the very line end that ends its head
            return None
        start = head_end + 4
        end = body.find(self._delimiter, start)
        if end < 0:
            return Skimmed.MORE if len(body) - start <= _NAME_BYTES_MAX + len(self._delimiter) else Skimmed.ABSENT
        self._pos = end
        if end - start > _NAME_BYTES_MAX:
            return Skimmed.ABSENT
        if not keep:
            self.start, self.end = start, end
        return bytes(body[start:end]).decode("utf-8", "replace")
