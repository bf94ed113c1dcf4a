"""Values of settings as they are written, one reader each.

Here: text in, a value or `ValueError` out. Not here: which setting has which reader (`settings`, the only caller).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.domain.units import parse_cpu, parse_duration, parse_size
from moorage.gateway.config import PROCESSES_MAX, is_host, is_origin

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Address:
    """A host and port to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """How a client on this machine reaches it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(
            self.host, f"[{self.host}]" if ":" in self.host else self.host
        )
        return f"http://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """GPUs declared for a machine without a driver: `8xH100:80GiB`."""

    count: int
    model: str
    memory_bytes: int


def address(raw: str) -> Address:
    """`HOST:PORT`; an IPv6 host in brackets."""
    host, colon, port = raw.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ValueError("not an address")
    if not 1 <= int(port) <= 65535:
        raise ValueError("the port is not between 1 and 65535")
    return Address(host.strip("[]"), int(port))


def seconds(raw: str) -> float:
    """A duration that a lease or a heartbeat may have."""
    value = parse_duration(raw)
    if not 0.05 <= value <= 86400:
        raise ValueError("not between 0.05 and 86400 seconds")
    return value


def patience(raw: str) -> float:
    """Seconds of silence that are a hang; 0 for `off`."""
    if raw == "off":
        return 0.0
    value = parse_duration(raw)
    if not 1 <= value <= 86400:
        raise ValueError("not between 1 and 86400 seconds")
    return value


def room(raw: str) -> int | None:
    """Bytes; None where the agent is to tell by its disk."""
    return None if raw == "auto" else parse_size(raw)


def gpus(raw: str) -> tuple[GpuGroup, ...]:
    """`8xH100:80GiB,…`"""
    groups = []
    for part in filter(None, (p.strip() for p in raw.split(","))):
        count, x, rest = part.partition("x")
        model, colon, memory = rest.partition(":")
        if not (x and colon and model and count.isdigit() and int(count) > 0):
            raise ValueError(f"{part!r} is not COUNTxMODEL:MEMORY")
        groups.append(GpuGroup(int(count), model, parse_size(memory)))
    return tuple(groups)


def pairs(raw: str) -> dict[str, str]:
    """`KEY=VALUE,…`"""
    found = {}
    for part in filter(None, (p.strip() for p in raw.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise ValueError(f"{part!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def names(raw: str) -> tuple[str, ...]:
    """`a,b`; empty ones are left out."""
    return tuple(p.strip() for p in raw.split(",") if p.strip())


def hosts(raw: str) -> tuple[str, ...]:
    """Names that a gateway goes by, with commas between."""
    for word in names(raw):
        if not is_host(word):
            raise ValueError(f"{word!r} is no host name")
    return names(raw)


def origins(raw: str) -> tuple[str, ...]:
    """Origins of web pages, or their hosts, with commas between."""
    for word in names(raw):
        if not is_origin(word):
            raise ValueError(f"{word!r} is no origin")
    return names(raw)


def reserve(raw: str) -> dict[str, int]:
    """`cpu=1,memory=2GiB`, in thousandths of a core and bytes."""
    out = {}
    for key, value in pairs(raw).items():
        if key == "cpu":
            out["cpu_milli"] = parse_cpu(value)
        elif key == "memory":
            out["memory_bytes"] = parse_size(value)
        else:
            raise ValueError(f"{key!r} cannot be reserved")
    return out


def ports(raw: str) -> tuple[int, int]:
    """`LOW-HIGH`"""
    low, dash, high = raw.partition("-")
    if not (dash and low.isdigit() and high.isdigit() and 1 <= int(low) <= int(high) <= 65535):
        raise ValueError("not LOW-HIGH with 1 <= LOW <= HIGH <= 65535")
    return int(low), int(high)


def level(raw: str) -> str:
    """One of `LOG_LEVELS`."""
    if raw.lower() not in LOG_LEVELS:
        raise ValueError("no such level")
    return raw.lower()


def database(raw: str) -> str:
    """The URL of a database of a kind that we know."""
    if not raw.startswith(("sqlite:", "sqlite+", "postgresql:", "postgresql+", "postgres:")):
        raise ValueError("neither SQLite nor PostgreSQL")
    return raw


def engines(raw: str) -> Mapping[str, str]:
    """`podman=SOCKET,docker=SOCKET`"""
    found = pairs(raw)
    if found.keys() - {"podman", "docker"}:
        raise ValueError("not an engine that is known")
    return found


def url(raw: str) -> str:
    """An http(s) address, without slashes at its end."""
    if not raw.startswith(("http://", "https://")):
        raise ValueError("not an http(s) address")
    return raw.rstrip("/")


def path(raw: str) -> Path:
    """A path, absolute; `~` is the home folder."""
    return Path(raw).expanduser().absolute()


def log_file(raw: str) -> Path | None:
    """A path, `~` being the home folder; `off` is no file."""
    return None if raw in ("", "off") else Path(raw).expanduser()


def file(raw: str) -> Path | None:
    """As `path`; nothing is no file."""
    return path(raw) if raw else None


def count(raw: str) -> int:
    """A number of worker processes."""
    if not raw.isdigit() or not 1 <= int(raw) <= PROCESSES_MAX:
        raise ValueError(f"not a number from 1 to {PROCESSES_MAX}")
    return int(raw)
