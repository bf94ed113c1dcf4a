"""Names, uids and digests: how things are called, told apart and compared.

A name is what a person chose, unique in its namespace and kind; a uid is never used twice. Randomness is an argument,
so that a caller (a controller, a test, the simulator) decides where it comes from.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from moorage.domain.errors import InvalidSpec

NAME_MAX = 63
"""Characters: what one DNS label holds, so that a name can become a host name."""

UID_RANDOM_BYTES = 10
"""80 bits, and base32 of it needs no padding."""

UID_TICKS_PER_S = 8
UID_TIME_BYTES = 4
"""The time at the head of a uid, in eighths of a second: it begins anew after 17 years."""

UID_PREFIX: Mapping[str, str] = MappingProxyType(
    {
        "Deployment": "dep",
        "Revision": "rev",
        "Replica": "rep",
        "Run": "run",
        "Worker": "wrk",
        "Machine": "mch",
        "Operation": "op",
        "Namespace": "ns",
        "Key": "key",
        "Endpoint": "ep",
    }
)
"""Kind word → what its uids begin with."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

SECRET_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""What a key inside a secret may be called."""


def check_name(name: str, what: str = "name") -> str:
    """The name itself when it is a good one.

    Args:
        name: what a person chose.
        what: what the message calls it (`namespace`).

    Raises:
        InvalidSpec: it is empty, too long, or has other characters.
    """
    if len(name) <= NAME_MAX and _NAME.fullmatch(name):
        return name
    problem = f"has {len(name)} characters" if len(name) > NAME_MAX else "has characters that are not allowed"
    raise InvalidSpec(
        f"{name!r} cannot be a {what}: it {problem if name else 'is empty'}",
        remedy=f"Use 1 to {NAME_MAX} small letters, digits and '-', beginning and ending with a letter or digit.",
    )


def namespace_uid(name: str) -> str:
    """The uid of the row about a namespace: there is one for each name, made when something is first set about it."""
    return f"{UID_PREFIX['Namespace']}-{name}"


def new_uid(kind: str, random_bytes: bytes) -> str:
    """A uid such as `wrk-mfrggzdfmztwq2lk`.

    Args:
        kind: the noun's kind word.
        random_bytes: exactly `UID_RANDOM_BYTES` bytes that were not given before (`uid_bytes`).

    Raises:
        KeyError: no noun of that kind.
        ValueError: the wrong number of bytes.
    """
    if len(random_bytes) != UID_RANDOM_BYTES:
        raise ValueError(f"a uid takes {UID_RANDOM_BYTES} random bytes, not {len(random_bytes)}")
    return f"{UID_PREFIX[kind]}-{base64.b32encode(random_bytes).decode().lower()}"


def uid_bytes(now: float, random_bytes: bytes) -> bytes:
    """What `new_uid` is given in production: the time, then randomness.

    What was made together lies together in every index then. With uids that are random throughout, each of 500 rows
    that one transaction writes dirties pages of its own, and a burst of placements spends most of its time on them. 48
    bits stay random within an eighth of a second; the store refuses a uid that was ever used.

    Args:
        now: seconds since the epoch.
        random_bytes: of the caller's source of randomness, at least 6.
    """
    ticks = int(now * UID_TICKS_PER_S) % (1 << 8 * UID_TIME_BYTES)
    return ticks.to_bytes(UID_TIME_BYTES, "big") + random_bytes[: UID_RANDOM_BYTES - UID_TIME_BYTES]


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces and no escapes of non-ASCII letters: equal values give equal text.

    Raises:
        TypeError: something in it is no JSON value.
        ValueError: a number in it is not finite.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)


def digest(value: Any) -> str:
    """`sha256:…` over the canonical JSON of a value. Errors as in `canonical_json`."""
    return "sha256:" + hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")
