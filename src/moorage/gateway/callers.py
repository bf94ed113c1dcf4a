"""Whom the gateway answers: the rule on `Origin` and `Host`, which keeps foreign web pages out.

A gateway has no login, so whatever runs in a browser on its machine could use it: a page of any site by a request
that needs no permission of ours (the browser says the page's `Origin`), or a page whose own name was pointed at this
address after it was loaded (then `Host` is that name). Programs send no `Origin`, and name an address or localhost.

Not here: reading heads. Called by `fields` for heads that are new; a head whose Origin and Host were judged before
costs nothing (they are never holes of a shape).
"""

import ipaddress
import re
from collections.abc import Sequence

from moorage.gateway.config import GatewayConfig
from moorage.gateway.fields import BadHead

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/?#@\s]+)(?::[0-9]*)?")
_ANY = "*"


class Callers:
    """The rule of one gateway.

    Args:
        config: `allowed_origins`, `allowed_hosts`, and where it listens.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._origins = frozenset(word.lower().rstrip("/") for word in config.allowed_origins)
        advertised = _host((config.advertise or "").partition("://")[2])
        self._hosts = frozenset(word.lower() for word in config.allowed_hosts) | {advertised or "localhost"}
        free = not config.allowed_hosts and not _is_loopback(config.host.lower())
        self._any_host = free or _ANY in config.allowed_hosts

    def judge(self, hosts: Sequence[bytes], origins: Sequence[bytes]) -> None:
        """Accept a head by the values of its Host and Origin lines.

        Raises:
            BadHead: 403 for a page of another site, 421 for a name that is not this gateway's.
        """
        named = [_host(value.decode("latin-1").lower()) for value in hosts if value]
        if not self._any_host:
            for value, host in zip([value for value in hosts if value], named, strict=True):
                if host is None or not self._is_ours(host):
                    raise _misdirected(value)
        if _ANY in self._origins:
            return
        for value in origins:
            if not self._may_ask(value.decode("latin-1").lower(), named):
                raise _foreign(value)

    def _is_ours(self, host: str) -> bool:
        return host in self._hosts or _is_local(host) or _address(host) is not None

    def _may_ask(self, origin: str, named: Sequence[str | None]) -> bool:
        host = _host(origin.partition("://")[2])
        if origin in self._origins or (host is not None and host in self._origins):
            return True
        return host is not None and (_is_loopback(host) or host in named)


def _host(authority: str) -> str | None:
    """`name`, or an address without its brackets, of `name:port`; None where it is neither."""
    found = _AUTHORITY.fullmatch(authority)
    return found.group(1).strip("[]") if found else None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_local(host: str) -> bool:
    """The names that browsers and resolvers keep for this machine."""
    return host == "localhost" or host.endswith(".localhost")


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return _is_local(host) if address is None else address.is_loopback


def _misdirected(value: bytes) -> BadHead:
    return BadHead(
        421,
        f"this gateway does not go by the name {_shown(value)}; use its address or localhost, "
        "or add the name to gateway_allowed_hosts (MOORAGE_GATEWAY_ALLOWED_HOSTS)",
        code="host_not_allowed",
    )


def _foreign(value: bytes) -> BadHead:
    return BadHead(
        403,
        f"a web page of {_shown(value)} may not use this gateway; to let it, add its origin to "
        "gateway_allowed_origins (MOORAGE_GATEWAY_ALLOWED_ORIGINS)",
        code="origin_not_allowed",
    )


def _shown(value: bytes) -> str:
    return repr(value[:200].decode("latin-1"))
