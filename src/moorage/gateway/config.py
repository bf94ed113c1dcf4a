"""Settings of one gateway process, as its supervisor writes them. No environment is read here."""

import ipaddress
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from moorage.domain.errors import InvalidSpec
from moorage.domain.silence import HANG_AFTER_S

PROCESSES_MAX = 256
ID_MAX = 100
ACCELERATORS: Final = ("auto", "require", "off")


@dataclass(frozen=True, slots=True)
class Span:
    """From where to where a number of the settings may go; `whole` ones are counts or bytes, the others seconds."""

    least: float
    most: float
    whole: bool = True

    def holds(self, value: object) -> bool:
        """Whether this is such a number."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return math.isfinite(value) and self.least <= value <= self.most


_KIB, _MIB, _GIB = 1024, 1024**2, 1024**3
_DAY_S: Final = 86_400
SPANS: Final[Mapping[str, Span]] = MappingProxyType(
    {
        "processes": Span(1, PROCESSES_MAX),
        "hang_after_s": Span(0, _DAY_S, whole=False),
        "head_bytes_max": Span(_KIB, 16 * _MIB),
        "body_bytes_max": Span(1, 1024 * _GIB),
        "skim_bytes_max": Span(1, _GIB),
        "head_timeout_s": Span(0.05, _DAY_S, whole=False),
        "body_timeout_s": Span(0.05, _DAY_S, whole=False),
        "keepalive_s": Span(0.05, _DAY_S, whole=False),
        "upstream_idle_s": Span(0, _DAY_S, whole=False),
        "write_timeout_s": Span(0.05, _DAY_S, whole=False),
        "tunnel_idle_s": Span(0.05, 30 * _DAY_S, whole=False),
        "drain_s": Span(0, _DAY_S, whole=False),
        "records_max": Span(1, 1_000_000),
        "access_log_bytes": Span(1, 1024 * _GIB),
        "access_log_keep": Span(0, 1000),
        "tls_handshake_timeout_s": Span(0.05, _DAY_S, whole=False),
    }
)
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(\[[0-9A-Fa-f:.]+\]|[^\[\]:/?#@\s]+)(:[0-9]{1,5})?/?")
_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{ID_MAX - 1}}}")
_ANY = "*"
_PATHS = ("state_dir", "access_log", "tls_certificate", "tls_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """What a gateway needs to know.

    Args:
        host, port: where it listens; port 0 takes a free one.
        server_url: base of the control plane (`http://127.0.0.1:7420`).
        token: bearer token, sent to the control plane and asked for at `/moorage/…`.
        state_dir: where the routing table is kept.
        gateway_id: kept across restarts; each worker process has its own, which begins with this one.
        processes: how many worker processes share the address.
        hang_after_s: a worker process that answers its master nothing for so long is ended and started again; 0: never.
        upstream_idle_s: kept below 5 s, after which common model servers close idle connections, so that a request
            is not written to a connection that is being closed.
        write_timeout_s: how long a client may read nothing of an answer that waits for it.
        tunnel_idle_s: how long nothing may pass through an upgraded connection, either way.
        forwarded: requests go on with X-Forwarded-For and X-Forwarded-Proto, after those that they came with.
        allowed_origins: web pages that may use it besides those of this machine and of its own host: an origin
            (`https://chat.example`) or a host (`chat.example`); `*` allows all.
        allowed_hosts: names it goes by besides its addresses, localhost and that of `advertise`; `*` is any name.
            Empty: any when it listens beyond this machine, none when it does not.
        access_log: file of one JSON line a request; None: none. At `access_log_bytes` it is put aside under a number,
            of which `access_log_keep` are kept.
        tls_certificate, tls_key: PEM files; with them clients speak TLS, and nothing else, at this address.
        tls_handshake_timeout_s: how long a client may take to agree on it.
        accelerators: whether compiled forms of the hot path are used: `auto` those that are usable, `require` all or
            the gateway does not start, `off` none.
    """

    host: str = "127.0.0.1"
    port: int = 7421
    server_url: str
    token: str
    state_dir: Path
    gateway_id: str
    processes: int = 1
    hang_after_s: float = HANG_AFTER_S
    advertise: str | None = None
    head_bytes_max: int = 64 * 1024
    body_bytes_max: int = 1024 * 1024 * 1024
    skim_bytes_max: int = 32 * 1024 * 1024
    head_timeout_s: float = 30.0
    body_timeout_s: float = 60.0
    keepalive_s: float = 75.0
    upstream_idle_s: float = 4.0
    write_timeout_s: float = 60.0
    tunnel_idle_s: float = 600.0
    forwarded: bool = False
    drain_s: float = 60.0
    records_max: int = 10_000
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    access_log: Path | None = None
    access_log_bytes: int = 64 * 1024 * 1024
    access_log_keep: int = 5
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_handshake_timeout_s: float = 10.0
    accelerators: str = "auto"

    def __post_init__(self) -> None:
        if not self.server_url.startswith(("http://", "https://")):
            raise InvalidSpec(
                f"gateway: server_url {self.server_url!r} is not an http(s) address",
                remedy="give the control plane's address, for example http://127.0.0.1:7420",
            )
        for name, span in SPANS.items():
            if not span.holds(getattr(self, name)):
                what = f"a {'whole number' if span.whole else 'number of seconds'}"
                raise InvalidSpec(
                    f"gateway: {name} is {getattr(self, name)!r}, not {what} from {span.least:g} to {span.most:,.0f}",
                    remedy=f"give another {name}, or leave it out",
                )
        if not isinstance(self.forwarded, bool):
            raise InvalidSpec(
                f"gateway: forwarded is {self.forwarded!r}, neither true nor false", remedy="write true or false"
            )
        if self.accelerators not in ACCELERATORS:
            raise InvalidSpec(
                f"gateway: accelerators is {self.accelerators!r}", remedy=f"write {', '.join(ACCELERATORS)}"
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise InvalidSpec(
                "gateway: of tls_certificate and tls_key only one is set", remedy="set both for TLS, or none"
            )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "GatewayConfig":
        """From decoded JSON. Unknown and missing keys are errors (`InvalidSpec`)."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InvalidSpec(f"gateway: unknown setting {unknown[0]!r}", remedy=f"known: {', '.join(sorted(known))}")
        missing = sorted({"server_url", "token", "state_dir", "gateway_id"} - set(values))
        if missing:
            raise InvalidSpec(f"gateway: setting {missing[0]!r} is missing", remedy="add it to the configuration file")
        if not isinstance(values["gateway_id"], str) or not is_id(values["gateway_id"]):
            raise InvalidSpec(
                f"gateway: gateway_id {values['gateway_id']!r} must be a plain name",
                remedy="use letters, digits and dashes",
            )
        lists = {name: _words(name, values[name]) for name in _WORDS if name in values}
        paths = {name: Path(values[name]) for name in _PATHS if values.get(name)}
        if "access_log" in paths and paths["access_log"].is_dir():
            raise InvalidSpec(f"gateway: access_log {paths['access_log']} is a folder", remedy="name a file in it")
        return cls(**{**values, **lists, **paths})

    @classmethod
    def from_file(cls, path: Path) -> "GatewayConfig":
        """From a JSON file (`InvalidSpec` when it cannot be read)."""
        return cls.from_mapping(values_of(path))

    @property
    def scheme(self) -> str:
        """How the address begins: `http` or `https`."""
        return "http" if self.tls_certificate is None else "https"


def is_id(word: str) -> bool:
    """Whether a gateway may go by this, which stands in URLs, metrics and file names; ids of workers add `/` or `~`."""
    return _ID.fullmatch(word) is not None


def is_host(word: str) -> bool:
    """Whether it is `*`, a host name as browsers send it (ASCII, no port), or an address."""
    if word == _ANY or (_NAME.fullmatch(word) is not None and len(word) <= 253):
        return True
    try:
        ipaddress.ip_address(word.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def is_origin(word: str) -> bool:
    """Whether it is an origin, `https://chat.example:8443`, or what `is_host` is."""
    found = _ORIGIN.fullmatch(word)
    return is_host(word) if found is None else found.group(1) != _ANY and is_host(found.group(1))


def values_of(path: Path) -> dict[str, Any]:
    """The settings in a JSON file, as they are written (`InvalidSpec` when it cannot be read)."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidSpec(f"gateway: cannot read {path}: {error}", remedy="give a readable JSON file") from error
    if not isinstance(values, dict):
        raise InvalidSpec(f"gateway: {path} does not hold a JSON object", remedy="write one object of settings")
    return values


_WORDS: Final[Mapping[str, tuple[Callable[[str], bool], str]]] = {
    "allowed_origins": (is_origin, "neither an origin, such as https://chat.example, nor a host name nor *"),
    "allowed_hosts": (is_host, "neither a host name without scheme, port and path nor *"),
}
"""Which words they may have, and what others are."""


def _words(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise InvalidSpec(f"gateway: {name} must be a list of names, not {value!r}", remedy='such as ["chat.example"]')
    allowed, not_so = _WORDS[name]
    for word in value:
        if not allowed(word):
            raise InvalidSpec(f"gateway: {name} has {word!r}, {not_so}", remedy='such as ["chat.example"]')
    return tuple(value)
