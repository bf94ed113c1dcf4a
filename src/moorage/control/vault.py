"""Secrets of namespaces: written by people, read by nobody but the machine that a worker is placed on.

Kept encrypted in the store's secret table under `secret/NAMESPACE/NAME`. What people may see of one (its keys, its
version, when it was set) is beside the sealed values, so that a list decrypts nothing. Called by the API's routes and
by `provisions`, which alone asks for values.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from moorage.control.sealing import Sealer
from moorage.control.views import JsonObject, iso
from moorage.domain.errors import InvalidSpec, NotFound, StaleVersion
from moorage.domain.ids import SECRET_KEY, check_name
from moorage.ports import Clock, Store

VALUE_BYTES_MAX = 64 << 10
SECRET_BYTES_MAX = 256 << 10
"""A secret is a token, a login or a certificate; the kernel takes 128 KiB at most for one variable of a process."""

TRIES = 20


class Vault:
    """The secrets.

    Args:
        store: keeps them.
        clock: when they were set.
        sealer: encrypts them.
    """

    def __init__(self, store: Store, clock: Clock, sealer: Sealer) -> None:
        self._store = store
        self._clock = clock
        self._sealer = sealer
        self.on_change: Callable[[str], None] = lambda namespace: None
        """called with the namespace after a secret of it was set"""

    async def put(self, ns: str, name: str, values: Mapping[str, str]) -> JsonObject:
        """Set a secret, replacing every key that it had; the same values again change nothing.

        Raises:
            InvalidSpec: a name, key or value cannot be kept. Values are never part of the message.
        """
        place = _place(ns, name)
        _check(values)
        text = json.dumps(dict(sorted(values.items())))
        for _ in range(TRIES):
            before = await self._store.secret(place)
            known = json.loads(before) if before is not None else None
            if known is not None and self._opened(known, place) == json.loads(text):
                return _shown(ns, name, known)
            record = self._record(known, values, self._sealer.seal(text, place))
            if await self._store.swap_secret(place, before, json.dumps(record)):
                self.on_change(ns)
                return _shown(ns, name, record)
        raise StaleVersion(f"the secret {ns}/{name} kept changing", remedy="send it again")

    async def list(self, ns: str) -> list[JsonObject]:
        """Every secret of a namespace, without values."""
        prefix = _place(ns, "")
        found = await self._store.secrets(prefix)
        return [_shown(ns, place.removeprefix(prefix), json.loads(kept)) for place, kept in found.items()]

    async def describe(self, ns: str, name: str) -> JsonObject:
        """One of them, without values.

        Raises:
            NotFound: there is none.
        """
        kept = await self._store.secret(_place(ns, name))
        if kept is None:
            raise _missing(ns, name)
        return _shown(ns, name, json.loads(kept))

    async def remove(self, ns: str, name: str) -> None:
        """Remove it. Workers that have its values already keep them until they end.

        Raises:
            NotFound: there is none.
        """
        place = _place(ns, name)
        for _ in range(TRIES):
            before = await self._store.secret(place)
            if before is None:
                raise _missing(ns, name)
            if await self._store.swap_secret(place, before, None):
                return
        raise StaleVersion(f"the secret {ns}/{name} kept changing", remedy="send it again")

    async def values(self, ns: str, name: str) -> Mapping[str, str] | None:
        """Its values, for the machine that a worker needs them on; None when there is no such secret.

        Raises:
            Unavailable: it cannot be decrypted here.
        """
        place = _place(ns, name)
        kept = await self._store.secret(place)
        return None if kept is None else self._opened(json.loads(kept), place)

    def _opened(self, record: Mapping[str, Any], place: str) -> dict[str, str]:
        values: dict[str, str] = json.loads(self._sealer.open(record["sealed"], place))
        return values

    def _record(self, known: Mapping[str, Any] | None, values: Mapping[str, str], sealed: str) -> dict[str, Any]:
        now = self._clock.now()
        return {
            "keys": sorted(values),
            "version": known["version"] + 1 if known else 1,
            "created_at": known["created_at"] if known else now,
            "updated_at": now,
            "sealed": sealed,
        }


def resolve(reference: str, values: Mapping[str, str]) -> tuple[str | None, str]:
    """The value that `NAME` or `NAME/KEY` of a spec means, and the key it was looked for under.

    Without a key it is that of `value`, or of the only key there is.
    """
    _, slash, key = reference.partition("/")
    if not slash:
        key = "value" if "value" in values or len(values) != 1 else next(iter(values))
    return values.get(key), key


def _place(ns: str, name: str) -> str:
    return f"secret/{ns}/{name}"


def _check(values: Mapping[str, str]) -> None:
    problems = [{"path": f"values.{key}", "message": said} for key in values for said in _said(key, values[key])]
    if not values:
        problems.append({"path": "values", "message": "a secret has one key at least"})
    if sum(len(value.encode()) for value in values.values()) > SECRET_BYTES_MAX:
        problems.append({"path": "values", "message": f"more than {SECRET_BYTES_MAX} bytes in all"})
    if problems:
        text = "; ".join(f"{p['path']}: {p['message']}" for p in problems)
        raise InvalidSpec(f"the secret cannot be kept: {text}", errors=problems, remedy="correct the keys named")


def _said(key: str, value: str) -> list[str]:
    named = bool(SECRET_KEY.fullmatch(key))
    said = [] if named else ["a key has letters, digits, '.', '_' and '-', the first of them a letter or digit"]
    if "\0" in value:
        said.append("its value has a NUL byte in it, which no variable can hold")
    if len(value.encode()) > VALUE_BYTES_MAX:
        said.append(f"its value has more than {VALUE_BYTES_MAX} bytes")
    return said


def _shown(ns: str, name: str, record: Mapping[str, Any]) -> JsonObject:
    return {
        "kind": "Secret",
        "id": f"{ns}/{name}",
        "name": name,
        "namespace": ns,
        "keys": list(record["keys"]),
        "version": record["version"],
        "created_at": iso(record["created_at"]),
        "updated_at": iso(record["updated_at"]),
    }


def _missing(ns: str, name: str) -> NotFound:
    check_name(name)
    return NotFound(
        f"there is no secret {ns}/{name}",
        remedy="`moor secrets ls` shows those there are",
        target=f"Secret {ns}/{name}",
    )
