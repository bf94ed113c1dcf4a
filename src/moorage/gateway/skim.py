"""Finds the top-level `model` of a JSON body without parsing more than needed.

Here: a resumable scan over bytes as they arrive. Not here: validation of the rest, which is the model server's
business. Called by `frontend` for `/v1/…` requests.
"""

import json
import re
from enum import Enum, auto

from moorage.gateway import native

_LEADING = re.compile(rb'\s*\{\s*"model"\s*:\s*"([^"\\\x00-\x1f]*)"')
_TO_MARK = re.compile(rb'[^"{}\[\],:]*+')
_TO_NESTED_MARK = re.compile(rb'[^"{}\[\]]*+')
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_NAME_BYTES_MAX = 1024


class Skimmed(Enum):
    """Outcomes that are no name."""

    MORE = auto()
    ABSENT = auto()
    """the body is no JSON object, has no such key, or its value is no string"""


def leading_model(body: bytes | bytearray) -> str | None:
    """The name when `model` is the first key, as most clients write it, with no escape in it; else None."""
    found = _LEADING.match(body)
    return str(found[1], "utf-8", "replace") if found else None


def leading_span(body: bytes | bytearray) -> tuple[int, int] | None:
    """Where the name stands that `leading_model` tells."""
    found = _LEADING.match(body)
    return None if found is None else found.span(1)


def within_string(text: str) -> bytes:
    """A text as it stands between the quotes of a JSON string."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text.encode("ascii")
    return json.dumps(text).encode("ascii")[1:-1]


def sole_model(body: bytes | bytearray) -> str | None:
    """The name of a whole body that surely has one top-level `model`; None: `ModelSkimmer` and `names_twice` tell."""
    core = native.core
    if core is not None:
        return core.sole_model(body)
    found = _LEADING.match(body)
    if found is None:
        return None
    # most bodies have the word once and nothing escaped, which one look tells
    if (b"\\" in body or body.find(b'"model"', found.end()) >= 0) and names_twice(body):
        return None
    return found[1].decode("utf-8", "replace")


def names_twice(body: bytes | bytearray) -> bool:
    """Whether a whole body has the top-level key `model` more than once, however it is spelled.

    Such a body is refused: model servers take the last one, so the first would choose the endpoint and its limits while
    the other chooses the model. Taking the last here as well would hold for one kind of parser only.
    """
    # A second look costs a parse, so it is taken only when the key is there twice at any depth, or in escapes.
    if body.count(b'"model"') < 2 and (b"\\" not in body or b"\\u006" not in body):
        return False
    try:
        keys = json.loads(body, object_pairs_hook=_keys, parse_int=str, parse_float=str, parse_constant=str)
    except RecursionError:
        return True  # nested so deeply that nobody can tell
    except ValueError:
        return False  # no JSON: nothing to read twice, and the model server says so
    return isinstance(keys, list) and keys.count("model") > 1


def _keys(pairs: list[tuple[str, object]]) -> list[str]:
    return [key for key, _ in pairs]


class ModelSkimmer:
    """One body. Feed the whole of what came so far each time; the scan resumes where it stopped."""

    __slots__ = ("_depth", "_expect_key", "_key", "_pos", "_string_at", "end", "start")

    def __init__(self) -> None:
        self.start = self.end = 0
        """where the name stands, between its quotes, once it was found"""
        self._pos = 0
        self._depth = 0
        self._expect_key = False
        self._key: str | None = None
        self._string_at = -1  # where the string being read began (its quote), or -1

    def feed(self, body: bytes | bytearray, complete: bool) -> str | Skimmed:
        """The model's name, MORE when the bytes end first, ABSENT when there is none.

        Args:
            body: everything received so far.
            complete: nothing more will come.
        """
        if self._pos == 0:
            found = _LEADING.match(body)
            if found is not None:
                self.start, self.end = found.span(1)
                return str(found[1], "utf-8", "replace")
        result = self._scan(body)
        return Skimmed.ABSENT if complete and result is Skimmed.MORE else result

    def twice(self, body: bytes | bytearray) -> bool:
        """Whether a whole body, of which a name was found, names another one after it."""
        return names_twice(body)

    def written(self, model: str) -> bytes:
        """Another model, as it has to stand between `start` and `end`."""
        return within_string(model)

    def _scan(self, body: bytes | bytearray) -> str | Skimmed:
        size = len(body)
        while True:
            if self._string_at >= 0:
                value = self._string(body, size)
                if value is not None:
                    return value
                continue
            pattern = _TO_MARK if self._depth == 1 else _TO_NESTED_MARK
            start = self._pos
            found = pattern.match(body, start)
            pos = found.end() if found else start
            if self._key == "model" and self._depth == 1 and body[start:pos].strip(b" \t\r\n"):
                return Skimmed.ABSENT  # a number, true, false or null where the name should be
            if self._depth == 0 and body[start:pos].strip(b" \t\r\n"):
                return Skimmed.ABSENT
            if pos >= size:
                self._pos = pos
                return Skimmed.MORE
            self._pos = pos + 1
            if not self._mark(body[pos], pos):
                return Skimmed.ABSENT

    def _mark(self, byte: int, pos: int) -> bool:
        """Take one structural byte; False when no `model` can follow."""
        if byte == 0x22:
            self._string_at = pos
            return self._depth > 0
        if byte in b"{[":
            if self._depth == 0 and byte != 0x7B:
                return False
            if self._key == "model" and self._depth == 1:
                return False
            self._depth += 1
            self._expect_key = self._depth == 1
            return True
        if byte in b"}]":
            self._depth -= 1
            return self._depth > 0
        if byte == 0x2C:
            self._expect_key, self._key = True, None
        return True

    def _string(self, body: bytes | bytearray, size: int) -> str | Skimmed | None:
        """Read on in a string; a name or outcome when that ends the search, None to go on."""
        found = _STRING_REST.match(body, max(self._pos, self._string_at + 1))
        end = found.end() if found else self._pos
        if end >= size or body[end] != 0x22:
            self._pos = min(end, size)  # a lone backslash at the end is read again with what follows
            return Skimmed.MORE
        start, self._string_at, self._pos = self._string_at + 1, -1, end + 1
        if self._depth != 1:
            return None
        if self._expect_key:
            self._key = _text(body[start:end]) if end - start <= 64 else ""
            self._expect_key = False
        elif self._key == "model":
            self.start, self.end = start, end
            return _text(body[start:end]) if end - start <= _NAME_BYTES_MAX else Skimmed.ABSENT
        return None


def _text(raw: bytes | bytearray) -> str:
    if b"\\" in raw:
        try:
            value = json.loads(b'"' + bytes(raw) + b'"', strict=False)
        except ValueError:
            return raw.decode("utf-8", "replace")
        return str(value)
    return raw.decode("utf-8", "replace")
