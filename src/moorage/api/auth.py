"""Who may do what: bearer tokens become principals, and paths ask for roles.

The table below is the whole of it and fails closed: a path that is in none of its lines is the people's API. Called by
`door` for every request.
"""

import hmac
from dataclasses import dataclass

from moorage.control.credentials import Credentials, Principal, Role, digest
from moorage.domain.errors import Forbidden, Unauthorized

API = "/api/v1"

OPEN = frozenset({"/livez", "/readyz", f"{API}/openapi.json", f"{API}/identity/ca"})
"""Answered to anybody: they tell nothing that a port scan, or the certificate of any worker, would not."""

METRICS = "/metrics"
"""Admin, or anybody on this very machine: a scraper beside the server needs no token."""


@dataclass(frozen=True, slots=True, repr=False)
class StaticTokens:
    """Tokens of the installation's configuration; None switches a role's token off."""

    admin: str | None = None
    agent_join: str | None = None
    gateway: str | None = None


class Auth:
    """Turns an `Authorization` header into a principal.

    Args:
        tokens: those of the configuration.
        credentials: those given out since.
    """

    def __init__(self, tokens: StaticTokens, credentials: Credentials) -> None:
        pairs = (
            (tokens.admin, Principal(Role.ADMIN, "admin")),
            (tokens.agent_join, Principal(Role.JOIN, "join")),
            (tokens.gateway, Principal(Role.GATEWAY, "gateway")),
        )
        self._static = tuple((digest(token), who) for token, who in pairs if token)
        self._credentials = credentials

    async def principal(self, header: str | None) -> Principal:
        """Who asks.

        Raises:
            Unauthorized: no token, or one that is unknown, replaced or over.
        """
        token = _bearer(header)
        hashed = digest(token)
        # Every static token is compared, so that the time taken tells nothing about which one came near.
        found = [who for kept, who in self._static if hmac.compare_digest(kept, hashed)]
        who = found[0] if found else await self._credentials.recognise(token)
        if who is None:
            raise Unauthorized(
                "the token is not known here",
                remedy="use the one of this server: `moor config show` shows which is used",
            )
        return who


def roles_for(path: str) -> frozenset[Role]:
    """Which roles may use a path that is not open."""
    if path == f"{API}/agent/join":
        return frozenset({Role.JOIN, Role.AGENT})
    if path.startswith(f"{API}/agent/"):
        return frozenset({Role.AGENT})
    if path.startswith(f"{API}/routing/"):
        return frozenset({Role.GATEWAY})
    return frozenset({Role.ADMIN})


def require(who: Principal, path: str) -> None:
    """Raise `Forbidden` unless the principal's role may use the path."""
    roles = roles_for(path)
    if who.role not in roles:
        wanted = " or ".join(sorted(roles))
        raise Forbidden(
            f"a token of role {who.role} may not use {path}",
            remedy=f"this path takes a token of role {wanted}",
            target=path,
        )


def require_machine(who: Principal, machine: str) -> None:
    """Raise `Forbidden` unless the agent speaks for its own machine."""
    if who.machine != machine:
        raise Forbidden(
            f"the agent of {who.name} may not speak for machine {machine}",
            remedy="an agent reports for the machine it joined as; join again with a join token",
            target=f"Machine {machine}",
        )


def _bearer(header: str | None) -> str:
    scheme, _, token = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized(
            "this needs a token",
            remedy="send `Authorization: Bearer TOKEN`; `moor config show` shows which token is used",
        )
    return token.strip()
