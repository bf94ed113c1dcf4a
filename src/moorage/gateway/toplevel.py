"""Values at the top level of a JSON body, as the bytes in which they stand.

Here: one pass that steps over what is not asked for. Not here: checking the JSON, which is the model server's business;
a body that is none has no values. Called by `frontend` only for endpoints whose settings need to know (affinity,
comments to held streams).
"""

import re
from collections.abc import Collection
from hashlib import blake2b
from typing import Final

from moorage.gateway.heads import RequestHead

_KEY_BYTES_MAX: Final = 64
"""What is longer goes on as its digest: keys are kept while requests wait, and by those that choose replicas."""
PREFIX_BYTES: Final = 1024
"""Of a prompt, by which requests with one beginning are known: a system prompt and the first question."""
_SESSION_KEYS: Final = (b"prompt_cache_key", b"user")
_PROMPT_KEYS: Final = (b"messages", b"prompt", b"input")
_KEY = re.compile(rb'[ \t\r\n,]*"([^"\\]*+(?:\\.[^"\\]*+)*+)"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_OPEN = re.compile(rb"[ \t\r\n]*\{")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_PLAIN = re.compile(rb"[^,}\]\s]*+")
_NESTED = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
_OPENING, _CLOSING = b"{[", b"}]"


def top_level(body: bytes | bytearray, wanted: Collection[bytes], most: int | None = None) -> dict[bytes, bytes]:
    """The values of these keys, the last of each; one that the end of the bytes cuts is told as far as it came.

    Args:
        most: bytes of each value that are told; None: all.
    """
    found: dict[bytes, bytes] = {}
    opened = _OPEN.match(body)
    at = opened.end() if opened else len(body)
    while at < len(body):
        key = _KEY.match(body, at)
        if key is None:
            break
        begin = key.end()
        at = _after(body, begin)
        if key[1] in wanted:
            found[bytes(key[1])] = bytes(body[begin : at if most is None else min(at, begin + most)])
    return found


def asks_for_stream(body: bytes | bytearray) -> bool:
    """Whether the answer is wanted as events."""
    return top_level(body, (b"stream",)).get(b"stream") == b"true"


def affinity_of(rule: str, head: RequestHead, body: bytes | bytearray) -> bytes | None:
    """What requests that belong together have in common; None where this one tells nothing.

    Args:
        rule: `session` or `prefix`, as in the spec.
        body: what there is of it.
    """
    if rule == "session":
        said = head.session or _first(top_level(body, _SESSION_KEYS), _SESSION_KEYS)
    else:
        said = _first(top_level(body, _PROMPT_KEYS, PREFIX_BYTES), _PROMPT_KEYS)
    if not said:
        return None
    return said if len(said) <= _KEY_BYTES_MAX else blake2b(said, digest_size=16).digest()


def _first(values: dict[bytes, bytes], keys: tuple[bytes, ...]) -> bytes:
    return next((values[key] for key in keys if values.get(key, b"null") not in (b"null", b'""', b"[]")), b"")


def _after(body: bytes | bytearray, at: int) -> int:
    """Where the value that begins there ends."""
    first = body[at : at + 1]
    if first == b'"':
        return _end(_STRING.match(body, at), at)
    if first not in (b"{", b"["):
        return _end(_PLAIN.match(body, at), at)
    depth = 0
    while at < len(body):
        byte = body[at]
        if byte in _OPENING:
            depth += 1
        elif byte in _CLOSING:
            depth -= 1
        else:
            return len(body)  # a string that goes on beyond the bytes
        at += 1
        if not depth:
            return at
        at = _end(_NESTED.match(body, at), at)
    return len(body)


def _end(found: re.Match[bytes] | None, at: int) -> int:
    return found.end() if found else at
