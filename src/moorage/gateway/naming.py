"""Names of endpoints that stand elsewhere than in a JSON body: in the query of a request line, in a form.

Here: finding them. Not here: JSON (`skim`), forms of parts (`multipart`), what is written in their place (`rewriting`).
Called by `frontend` for requests that say so, which are few.
"""

from typing import Final, Protocol
from urllib.parse import quote, quote_plus, unquote_plus

from moorage.gateway.multipart import PartFinder, boundary_of
from moorage.gateway.skim import Skimmed

_KEY: Final = "model"
HOW: Final = (
    "say which endpoint it is for: a top-level string `model` in a JSON body, a field `model` in a form, "
    "?model=NAME in the query, or the path /endpoints/NAME/v1/…"
)


class Finder(Protocol):
    """Looks for the name in a body; `start` and `end` tell where it stood."""

    start: int
    end: int

    def feed(self, body: bytes | bytearray, complete: bool) -> str | Skimmed:
        """The name, MORE when the bytes end first, ABSENT when there is none."""
        ...

    def twice(self, body: bytes | bytearray) -> bool:
        """Whether a whole body, of which a name was found, names another one after it."""
        ...

    def written(self, model: str) -> bytes:
        """Another model, as it has to stand between `start` and `end`."""
        ...


def form_finder(content_type: bytes) -> Finder | None:
    """For a body of this type; None when its parts cannot be told apart."""
    if not content_type.lower().startswith(b"multipart/"):
        return PairFinder()
    boundary = boundary_of(content_type)
    return PartFinder(boundary) if boundary is not None else None


class PairFinder:
    """A form of pairs (`a=1&model=NAME`), looked at once it is whole."""

    __slots__ = ("end", "start")

    def __init__(self) -> None:
        self.start = self.end = 0

    def feed(self, body: bytes | bytearray, complete: bool) -> str | Skimmed:
        """See `Finder`."""
        if not complete:
            return Skimmed.MORE
        spans = _spans(bytes(body), 0)
        if not spans:
            return Skimmed.ABSENT
        self.start, self.end = spans[0]
        return _text(bytes(body[self.start : self.end]))

    def twice(self, body: bytes | bytearray) -> bool:
        """See `Finder`."""
        return len(_spans(bytes(body), 0)) > 1

    def written(self, model: str) -> bytes:
        """See `Finder`."""
        return quote_plus(model).encode()


class WholeFinder:
    """Names nothing; waits until the body is whole, or longer than what is looked at for other reasons."""

    __slots__ = ("_enough", "end", "start")

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self.start = self.end = 0

    def feed(self, body: bytes | bytearray, complete: bool) -> str | Skimmed:
        """See `Finder`."""
        return Skimmed.ABSENT if complete or len(body) >= self._enough else Skimmed.MORE

    def twice(self, body: bytes | bytearray) -> bool:
        """See `Finder`."""
        return False

    def written(self, model: str) -> bytes:
        """See `Finder`."""
        return b""


def in_query(line: bytes) -> list[str]:
    """The values of `model` in the query of a request line."""
    return [_text(line[start:end]) for start, end in _spans(line, *_query(line))]


def with_query(line: bytes, model: str) -> bytes:
    """The request line with another value of `model`, which it has once."""
    ((start, end),) = _spans(line, *_query(line))
    return line[:start] + quote(model, safe="/:").encode() + line[end:]


def _query(line: bytes) -> tuple[int, int]:
    """Where the query of `METHOD /path?query HTTP/1.1` begins and ends; empty where there is none."""
    end = line.rindex(b" ")
    mark = line.find(b"?", 0, end)
    return (mark + 1, end) if mark >= 0 else (end, end)


def _spans(pairs: bytes, begin: int, end: int | None = None) -> list[tuple[int, int]]:
    """Where the values of `model` stand."""
    spans = []
    stop = len(pairs) if end is None else end
    while begin < stop:
        after = pairs.find(b"&", begin, stop)
        after = stop if after < 0 else after
        key, mark, _ = pairs[begin:after].partition(b"=")
        if mark and _text(key) == _KEY:
            spans.append((begin + len(key) + 1, after))
        begin = after + 1
    return spans


def _text(raw: bytes) -> str:
    return unquote_plus(raw.decode("latin-1"), "utf-8", "replace")
