"""Settings: read once, from the environment and `$MOORAGE_HOME/config.toml`, each with the place it came from.

The one room that looks at environment variables, and it gets them as a mapping: the caller passes `os.environ`.
A variable wins over the file, the file over the addresses of the last time, those over the default; a flag of
`moor up` wins over all. Nothing here starts or connects anything. Called by `app.commands` and by tests.
"""

import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage.app import gateway_settings, parsing
from moorage.app.parsing import LOG_LEVELS, Address, GpuGroup
from moorage.domain.errors import InvalidSpec
from moorage.domain.silence import HANG_AFTER_S
from moorage.domain.units import format_size, parse_duration
from moorage.gateway.config import PROCESSES_MAX

_SECRET = frozenset({"token"})
REMEMBERED: Mapping[str, str] = {"api": "run/server.json", "gateway": "run/gateway.json"}
"""Addresses that stay as they were the last time, until somebody names others; and who knows them, under the home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every effective setting. `sources` says where each came from: `default`, `flag`, a variable or the file."""

    home: Path
    database_url: str
    api: Address
    gateway: Address
    gateway_allowed_origins: tuple[str, ...]
    gateway_allowed_hosts: tuple[str, ...]
    gateway_processes: int
    gateway_tls_certificate: Path | None
    gateway_tls_key: Path | None
    gateway_access_log: Path | None
    gateway_own: Mapping[str, Any]
    """by their names: those of `gateway_settings`"""
    token: str | None
    url: str
    machine_ttl_s: float
    machine_heartbeat_s: float
    hang_after_s: float
    """0: off"""
    agent_gpus: tuple[GpuGroup, ...]
    agent_labels: Mapping[str, str]
    agent_accepts: tuple[str, ...]
    agent_reserve: Mapping[str, int]
    agent_ports: tuple[int, int]
    agent_engines: Mapping[str, str]
    agent_data: Path
    agent_env_pass: tuple[str, ...]
    agent_logs_bytes: int | None
    agent_logs_age_s: float
    agent_models_bytes: int | None
    log: str
    sources: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self) -> list[dict[str, Any]]:
        """Rows of `moor config show`: {name, value, source}; secrets are masked."""
        rows = []
        for key in _READERS:
            value = "(set, not shown)" if key in _SECRET and getattr(self, key) else self.show(key)
            rows.append({"name": variable(key), "value": value, "source": self.sources.get(key, "default")})
        return rows

    @property
    def gateway_url(self) -> str:
        """How a client on this machine reaches the gateway."""
        url = self.gateway.url
        return url if self.gateway_tls_certificate is None else url.replace("http://", "https://", 1)

    @property
    def gateway_advertised(self) -> str:
        """How clients elsewhere reach the gateway."""
        return self.gateway_own["gateway_advertise"] or self.gateway_url

    @property
    def remembered(self) -> bool:
        """Whether an address is another than the usual one only because it was so the last time."""
        return any(not self.asked(key) and self.show(key) != _READERS[key][0]({}) for key in REMEMBERED)

    def asked(self, key: str) -> bool:
        """Whether somebody named this address: a flag, a variable or the file."""
        return self.sources[key] not in ("default", str(self.home / REMEMBERED[key]))

    def show(self, key: str) -> Any:
        """A value in the form in which it is written in a variable."""
        own = gateway_settings.OWN.get(key)
        return _show(key, getattr(self, key)) if own is None else own.show(self.gateway_own[key])


def variable(key: str) -> str:
    """The environment variable of a setting."""
    return f"MOORAGE_{key.upper()}"


def load(env: Mapping[str, str], flags: Mapping[str, Any] | None = None) -> Settings:
    """The effective settings.

    Args:
        env: the environment, as a mapping.
        flags: values given on the command line, by setting name; None values count as absent.

    Raises:
        InvalidSpec: a value cannot be read, or the file has an unknown key; names the variable and what is allowed.
    """
    given = {k: str(v) for k, v in (flags or {}).items() if v is not None}
    home = _home(env, given)
    file = _read_file(home / "config.toml")
    values: dict[str, Any] = {"home": home}
    sources = {"home": "flag" if "home" in given else variable("home") if env.get("MOORAGE_HOME") else "default"}
    for key, (default, read) in _READERS.items():
        if key == "home":
            continue
        raw, sources[key] = _raw(key, env, given, file, home)
        if raw is None and key in REMEMBERED:
            raw, sources[key] = _remembered(key, home)
        values[key] = _parse(key, read, default(values) if raw is None else raw, sources[key])
    if values["gateway_access_log"] is not None:  # a relative one lies in the home, wherever a command is given
        values["gateway_access_log"] = home / values["gateway_access_log"]
    if (values["gateway_tls_certificate"] is None) != (values["gateway_tls_key"] is None):
        raise InvalidSpec(
            "of MOORAGE_GATEWAY_TLS_CERTIFICATE and MOORAGE_GATEWAY_TLS_KEY only one is set",
            remedy="set both for TLS at the gateway, or none",
        )
    own = {key: values.pop(key) for key in gateway_settings.OWN}
    return Settings(**values, gateway_own=own, sources=sources)


def _home(env: Mapping[str, str], given: Mapping[str, str]) -> Path:
    raw = given.get("home") or env.get("MOORAGE_HOME")
    if raw:
        return Path(raw).expanduser().absolute()
    base = env.get("HOME")
    if not base:
        raise InvalidSpec(
            "cannot tell where to keep state: neither MOORAGE_HOME nor HOME is set",
            remedy="set MOORAGE_HOME to a folder",
        )
    return Path(base) / ".moorage"


def _read_file(path: Path) -> dict[str, str]:
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise InvalidSpec(f"cannot read {path}: {cause}", remedy="mend or remove the file") from cause
    for key in data:
        if key not in _READERS or key == "home":
            near = difflib.get_close_matches(key, _READERS, n=1)
            hint = (
                f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(k for k in _READERS if k != 'home')}"
            )
            raise InvalidSpec(
                f"unknown setting `{key}` in {path}", remedy=hint, errors=[{"path": key, "message": hint}]
            )
    return {key: _flat(key, value, path) for key, value in data.items()}


def _flat(key: str, value: Any, path: Path) -> str:
    """TOML lists and tables may be used where a variable has `a,b` or `k=v,k=v`, and nowhere else.

    Raises:
        InvalidSpec: it is one, and the setting has one value; or what is in it is a list or table again.
    """
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    if inner is not None:
        reader = _READERS[key][1]
        free = reader in _TABLES or (reader in _LISTS and isinstance(value, list))
        if not free or any(isinstance(each, list | dict) for each in inner):
            what = "a table" if isinstance(value, dict) else "a list"
            why = "which it cannot be" if not free else "with lists or tables in it"
            hint = f"allowed: {_ALLOWED[key]}"
            raise InvalidSpec(
                f"`{key}` in {path} is {what}, {why}", remedy=hint, errors=[{"path": key, "message": hint}]
            )
    if isinstance(value, dict):
        return ",".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, list):
        return ",".join(str(v) for v in value)
    return str(value)


def _raw(
    key: str, env: Mapping[str, str], given: Mapping[str, str], file: Mapping[str, str], home: Path
) -> tuple[str | None, str]:
    name = variable(key)
    if key in given:
        return given[key], "flag"
    if env.get(name):
        return env[name], name
    if key in file:
        return file[key], str(home / "config.toml")
    return None, "default"


def _remembered(key: str, home: Path) -> tuple[str | None, str]:
    """The address that a part of this home was last started on, and the file that says so."""
    path = home / REMEMBERED[key]
    try:
        found = json.loads(path.read_text())
        listens = found.get("api", found)
        address = str(Address(str(listens["host"]), int(listens["port"])))
        parsing.address(address)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None, "default"  # none of ours: `moor up` writes it anew
    return address, str(path)


def _parse(key: str, read: Callable[[str], Any], raw: str, source: str) -> Any:
    try:
        return read(raw)
    except (ValueError, InvalidSpec) as cause:
        where = (
            variable(key) if source in ("default", "flag") or source.startswith("MOORAGE_") else f"`{key}` in {source}"
        )
        raise InvalidSpec(
            f"{where} is {raw!r}: {cause}",
            remedy=f"allowed: {_ALLOWED[key]}",
            errors=[{"path": key, "message": str(cause)}],
        ) from cause


def mistyped(env: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings on variables that look like settings of the gateway and are none: they are not used.

    They are not refused as a key of the file is: what else is in an environment may belong to others.
    """
    own = [variable(key) for key in _READERS if key.startswith(gateway_settings.PREFIX)]
    prefix = variable(gateway_settings.PREFIX)
    found = []
    for name in sorted(env):
        if not name.startswith(prefix) or name in own or not env[name]:
            continue
        near = difflib.get_close_matches(name.removeprefix(prefix), [each.removeprefix(prefix) for each in own], n=1)
        hint = f"did you mean {prefix}{near[0]}?" if near else "`moor config show` lists all settings"
        found.append(f"{name} is no setting and is not used: {hint}")
    return tuple(found)


def address_of(url: str) -> Address:
    """The address in a URL of ours (`http://HOST:PORT` or `https://HOST:PORT`)."""
    return parsing.address(url.removeprefix("http://").removeprefix("https://"))


def _show(key: str, value: Any) -> Any:
    if key == "agent_gpus":
        return ",".join(f"{g.count}x{g.model}:{format_size(g.memory_bytes)}" for g in value)
    if key == "agent_ports":
        return f"{value[0]}-{value[1]}"
    if key in ("agent_logs_bytes", "agent_models_bytes"):
        return "auto" if value is None else format_size(value)
    if key == "hang_after_s":
        return value or "off"
    if isinstance(value, Mapping):
        return ",".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, tuple):
        return ",".join(value)
    if key == "gateway_access_log":
        return str(value or "off")
    return value if isinstance(value, float) else str(value or "")


Values = Mapping[str, Any]


def _always(default: str) -> Callable[[Values], str]:
    return lambda _: default


_READERS: Mapping[str, tuple[Callable[[Values], str], Callable[[str], Any]]] = {
    "home": (lambda v: "", parsing.path),
    "database_url": (lambda v: f"sqlite:///{v['home'] / 'moorage.db'}", parsing.database),
    "api": (lambda v: "127.0.0.1:7420", parsing.address),
    "gateway": (lambda v: "127.0.0.1:7421", parsing.address),
    "gateway_allowed_origins": (lambda v: "", parsing.origins),
    "gateway_allowed_hosts": (lambda v: "", parsing.hosts),
    "gateway_access_log": (lambda v: "off", parsing.log_file),
    "gateway_processes": (lambda v: "1", parsing.count),
    "gateway_tls_certificate": (lambda v: "", parsing.file),
    "gateway_tls_key": (lambda v: "", parsing.file),
    **{key: (_always(own.default), own.read) for key, own in gateway_settings.OWN.items()},
    "token": (lambda v: "", lambda raw: raw or None),
    "url": (lambda v: v["api"].url, parsing.url),
    "machine_ttl_s": (lambda v: "30", parsing.seconds),
    "machine_heartbeat_s": (lambda v: "10", parsing.seconds),
    "hang_after_s": (lambda v: f"{HANG_AFTER_S:g}", parsing.patience),
    "agent_gpus": (lambda v: "", parsing.gpus),
    "agent_labels": (lambda v: "", parsing.pairs),
    "agent_accepts": (lambda v: "", parsing.names),
    "agent_reserve": (lambda v: "", parsing.reserve),
    "agent_ports": (lambda v: "18000-18031", parsing.ports),
    "agent_engines": (lambda v: "", parsing.engines),
    "agent_data": (lambda v: str(v["home"] / "agent"), parsing.path),
    "agent_env_pass": (lambda v: "", parsing.names),
    "agent_logs_bytes": (lambda v: "auto", parsing.room),
    "agent_logs_age_s": (lambda v: "7d", parse_duration),
    "agent_models_bytes": (lambda v: "auto", parsing.room),
    "log": (lambda v: "info", parsing.level),
}
"""Each setting: its default (of those read before it) and its reader, in the order they are read and shown."""

_LISTS = frozenset((parsing.names, parsing.hosts, parsing.origins, parsing.gpus))
_TABLES = frozenset((parsing.pairs, parsing.reserve, parsing.engines))
"""Readers of what the file may write as a list; as a table, or as a list of `k=v`."""

_ALLOWED: Mapping[str, str] = {
    "home": "a folder",
    "database_url": "sqlite:///PATH or postgresql://USER@HOST/DATABASE",
    "api": "HOST:PORT, such as 127.0.0.1:7420",
    "gateway": "HOST:PORT, such as 127.0.0.1:7421",
    "gateway_allowed_origins": "SCHEME://HOST[:PORT] or HOST, such as https://chat.example, with commas; * is any",
    "gateway_allowed_hosts": "host names without scheme, port and path, such as models.example, with commas; * is any",
    "gateway_access_log": "a file (one without / at its beginning lies in MOORAGE_HOME), or off",
    "gateway_processes": f"1 to {PROCESSES_MAX}: one for each CPU core that the gateway may use",
    "gateway_tls_certificate": "a PEM file: the certificate, then those that lead to its root",
    "gateway_tls_key": "a PEM file: the certificate's private key, without a passphrase",
    **{key: own.allowed for key, own in gateway_settings.OWN.items()},
    "token": "a token",
    "url": "http://HOST:PORT or https://HOST:PORT",
    "machine_ttl_s": "seconds, such as 30",
    "machine_heartbeat_s": "seconds, such as 10, and less than MOORAGE_MACHINE_TTL_S",
    "hang_after_s": "off, or a duration from 1s to 24h, such as 60s: who answers nothing for so long is started again",
    "agent_gpus": "COUNTxMODEL:MEMORY[,...], such as 8xH100:80GiB",
    "agent_labels": "KEY=VALUE[,...], such as pool=gpu,moorage/rack=r1",
    "agent_accepts": "names with commas between, such as serving,jobs",
    "agent_reserve": "cpu=AMOUNT[,memory=SIZE], such as cpu=1,memory=2GiB",
    "agent_ports": "LOW-HIGH, such as 18000-18031",
    "agent_engines": "podman=SOCKET[,docker=SOCKET]; `auto` is the usual place, and nothing means not to use it",
    "agent_data": "a folder",
    "agent_env_pass": "names of variables with commas between, such as HF_HOME,HF_TOKEN or HF_*; * is all",
    "agent_logs_bytes": "a size such as 10GiB, or auto: 10 GiB, or 5 % of the disk where that is less",
    "agent_logs_age_s": "a duration such as 7d",
    "agent_models_bytes": "a size such as 500GiB for all cached models, or auto: what the disk has, less a reserve",
    "log": ", ".join(LOG_LEVELS),
}
