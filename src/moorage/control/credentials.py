"""Tokens that the control plane gives out: what it keeps of them, and who the bearer of one is.

A token is `moor-ROLE.ID.SECRET`. The store keeps, under its role and id, a SHA-256 of the whole token; the token itself
is shown once and kept nowhere. Looking a token up by its public id and comparing the hash in constant time tells an
attacker nothing through timing. Called by the API's door (`moorage.api.auth`) and where agents join.
"""

import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from moorage.domain.errors import InvalidSpec
from moorage.ports import Clock, Store

CACHE_S = 30.0
"""How long a verified credential is believed without asking the store: agents send several requests a second while
something happens, and a replaced credential may live on this long."""

CACHE_MAX = 4096

JOIN_TTL_S_DEFAULT = 24 * 3600.0
JOIN_TTL_S_MAX = 30 * 24 * 3600.0
SECRET_BYTES = 32


class Role(StrEnum):
    """What a bearer may do: the people's API, the agent protocol, the gateway protocol, or only to join."""

    ADMIN = "admin"
    AGENT = "agent"
    GATEWAY = "gateway"
    JOIN = "join"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who speaks.

    Args:
        role: what it may do.
        name: shown as the actor: a person's or a machine's name.
        machine: uid of the machine that an agent speaks for.
    """

    role: Role
    name: str
    machine: str | None = None


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A token with which agents may join until `expires_at` (seconds since the epoch)."""

    id: str
    token: str
    expires_at: float


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


class Credentials:
    """Issues tokens and recognises them.

    Args:
        store: keeps the hashes.
        clock: expiry of join tokens, and age of the cache.
        random_token: a source of unguessable text without dots; the operating system's by default.
    """

    def __init__(self, store: Store, clock: Clock, random_token: Callable[[int], str] = secrets.token_urlsafe) -> None:
        self._store = store
        self._clock = clock
        self._random = random_token
        self._cache: OrderedDict[str, tuple[Principal, float]] = OrderedDict()

    async def issue_agent(self, machine: str, name: str) -> str:
        """The credential of one machine's agent; an earlier one of that machine stops working.

        Args:
            machine: uid.
            name: the machine's name.
        """
        token = f"moor-{Role.AGENT}.{machine}.{self._random(SECRET_BYTES)}"
        await self._keep(Role.AGENT, machine, {"hash": digest(token), "name": name})
        return token

    async def issue_join(self, ttl_s: float = JOIN_TTL_S_DEFAULT) -> JoinToken:
        """A token for agents that join within `ttl_s` seconds.

        Raises:
            InvalidSpec: the time is not positive or above 30 days.
        """
        if not 0 < ttl_s <= JOIN_TTL_S_MAX:
            raise InvalidSpec(
                f"a join token cannot live for {ttl_s:g} s",
                remedy=f"ask for more than 0 and at most {JOIN_TTL_S_MAX:g} seconds",
                errors=[{"path": "ttl_s", "message": "out of range"}],
            )
        uid, expires_at = self._random(9), self._clock.now() + ttl_s
        token = f"moor-{Role.JOIN}.{uid}.{self._random(SECRET_BYTES)}"
        await self._keep(Role.JOIN, uid, {"hash": digest(token), "name": f"join:{uid}", "expires_at": expires_at})
        return JoinToken(uid, token, expires_at)

    async def recognise(self, token: str) -> Principal | None:
        """Who bears it, or None when it is unknown, replaced or over."""
        key = digest(token)
        cached = self._cache.get(key)
        if cached and self._clock.monotonic() < cached[1]:
            return cached[0]
        self._cache.pop(key, None)
        principal = await self._look_up(token, key)
        if principal and principal.role is Role.AGENT:
            self._remember(key, principal)
        return principal

    async def _look_up(self, token: str, key: str) -> Principal | None:
        parsed = _parse(token)
        if parsed is None:
            return None
        role, uid = parsed
        kept = await self._store.secret(_place(role, uid))
        if kept is None:
            return None
        record = json.loads(kept)
        if not hmac.compare_digest(record["hash"], key):
            return None
        if self._clock.now() >= record.get("expires_at", float("inf")):
            return None
        return Principal(role, record["name"], uid if role is Role.AGENT else None)

    async def _keep(self, role: Role, uid: str, record: dict[str, Any]) -> None:
        self._cache.clear()
        await self._store.put_secret(_place(role, uid), json.dumps(record))

    def _remember(self, key: str, principal: Principal) -> None:
        self._cache[key] = (principal, self._clock.monotonic() + CACHE_S)
        while len(self._cache) > CACHE_MAX:
            self._cache.popitem(last=False)


def _parse(token: str) -> tuple[Role, str] | None:
    kind, dot, rest = token.partition(".")
    uid, dot2, secret = rest.rpartition(".")
    if not (dot and dot2 and uid and secret and token.isascii()):
        return None
    for role in (Role.AGENT, Role.JOIN):
        if kind == f"moor-{role}":
            return role, uid
    return None


def _place(role: Role, uid: str) -> str:
    return f"token/{role}/{uid}"
