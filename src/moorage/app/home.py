"""The folder under MOORAGE_HOME: where each file lies, who may read it, and the files that `moor up` makes.

Tokens and configurations are files of mode 0600 in a folder of mode 0700, written whole or not at all. Nothing is
started here. Called by `up`, `down` and `supervisor`.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage._version import VERSION
from moorage.app import disk, gateway_settings
from moorage.app.processes import python
from moorage.app.settings import Settings
from moorage.domain.errors import InvalidSpec
from moorage.domain.silence import HANG_AFTER_S

PARTS: Mapping[str, str] = {
    "server": "moorage.app.server",
    "agent": "moorage.agent.main",
    "gateway": "moorage.gateway.main",
}
"""The three parts of one machine and their modules, in starting order."""

REMOVED_MARK = "removed"
"""File in an agent's own folder: its machine was removed from the cluster, and it is not to be started again by itself.
The agent makes it (`moorage.agent.agent`) and takes it away when it starts."""

TOKENS = ("admin", "agent_join", "gateway")


@dataclass(frozen=True, slots=True)
class Home:
    """Paths under MOORAGE_HOME.

    Args:
        root: the folder.
        modules: which module is which part.
    """

    root: Path
    modules: Mapping[str, str] = field(default_factory=lambda: PARTS)

    @property
    def record(self) -> Path:
        """What the supervisor runs, for the next one and for people."""
        return self.root / "supervisor.json"

    @property
    def client(self) -> Path:
        """How a command on this machine reaches the API."""
        return self.root / "client.json"

    @property
    def gateway_state(self) -> Path:
        """What the gateway keeps: its routing table, and what its master tells."""
        return self.root / "gateway"

    def config(self, part: str) -> Path:
        """A part's configuration."""
        return self.root / "run" / f"{part}.json"

    def log(self, part: str) -> Path:
        """A part's output."""
        return self.root / "logs" / f"{part}.log"

    def command(self, part: str) -> list[str]:
        """The command line that runs a part."""
        return python(self.modules[part], "--config", str(self.config(part)))

    def agent_removed(self) -> bool:
        """Whether the agent ended since its machine was removed from the cluster."""
        try:
            folder = json.loads(self.config("agent").read_text())["home"]
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return (Path(folder) / REMOVED_MARK).exists()

    def digest(self, part: str) -> str:
        """Changes when the part's configuration or our version does: then a running one is replaced, not adopted."""
        return hashlib.sha256(VERSION.encode() + self.config(part).read_bytes()).hexdigest()[:16]

    def make(self) -> None:
        """Make the folders.

        Raises:
            InvalidSpec: the folder cannot be made or written.
            Unavailable: the disk is full.
        """
        try:
            with disk.told_when_full(self.root):
                for folder in (self.root, self.root / "run", self.root / "logs", self.root / "tokens"):
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.root.chmod(0o700)
            self._close_to_others()
        except OSError as cause:
            raise InvalidSpec(
                f"cannot keep state in {self.root}: {cause.strerror}",
                remedy="set MOORAGE_HOME to a folder that you own",
            ) from cause

    def require_folder_of(self, access_log: Path | None) -> None:
        """Nothing where an access log can be written: nobody makes folders anywhere else than in the home.

        Raises:
            InvalidSpec: it is a folder itself, or its folder is not there, or this user may not write in it.
        """
        if access_log is not None and access_log.is_dir():
            raise InvalidSpec(
                f"the access log {access_log} cannot be written: it is a folder",
                remedy=f"name a file in it with MOORAGE_GATEWAY_ACCESS_LOG, such as {access_log / 'access.log'}",
            )
        if access_log is None or access_log.parent in (self.root, self.root / "logs"):
            return
        folder = access_log.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            what = "may not be written in by this user" if folder.is_dir() else "is not there"
            raise InvalidSpec(
                f"the access log {access_log} cannot be written: the folder {folder} {what}",
                remedy=f"make the folder, for the user that the gateway runs as (mkdir -p {folder}), or name another "
                "file with MOORAGE_GATEWAY_ACCESS_LOG",
            )

    def _close_to_others(self) -> None:
        """Take from others what releases before this one let them read."""
        state = self.root / "gateway"
        for path in (
            *self.root.glob("moorage.db*"),
            *self.root.glob("ready"),
            *self.root.glob("logs/*"),
            *state.glob("*"),
        ):
            if path.is_file() and not path.is_symlink():
                path.chmod(0o600)
        if state.is_dir():
            state.chmod(0o700)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[bool]:
        """Hold `name`.lock; yields False when another process holds it. The lock ends with the process."""
        fd = os.open(self.root / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(fd)

    def token(self, name: str) -> str:
        """A token of this installation, made at its first use and kept."""
        path = self.root / "tokens" / name
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            write_private(path, secrets.token_urlsafe(32) + "\n")
            return path.read_text().strip()

    def read_record(self) -> dict[str, Any]:
        """The record, or an empty one when there is none that can be read (parts are found without it too)."""
        try:
            data = json.loads(self.record.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, in one step: a reader sees the old or the new one, never half."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # half a file would take the room that is lacking
        raise


def write_configs(home: Home, settings: Settings) -> None:
    """Write what the supervisor, its three parts and the commands of this machine read."""
    for part, config in part_configs(home, settings, settings.api.url).items():
        write_private(home.config(part), json.dumps(config, indent=1) + "\n")
    write_client(home, settings)


def write_client(home: Home, settings: Settings) -> None:
    """Write how commands of this machine reach the API."""
    client = {"url": settings.api.url, "token": home.token("admin"), "gateway_url": settings.gateway_url}
    write_private(home.client, json.dumps(client) + "\n")


def part_configs(home: Home, settings: Settings, server_url: str) -> dict[str, dict[str, Any]]:
    """The configuration of each part, and of the supervisor.

    Args:
        home: the folder.
        settings: effective settings.
        server_url: the control plane that agent and gateway belong to.
    """
    tokens = {name: home.token(name) for name in TOKENS}
    gateway_id = settings.gateway_own["gateway_id"] or _gateway_id(home, settings)
    server = {
        "database_url": settings.database_url,
        "api": {"host": settings.api.host, "port": settings.api.port},
        "home": str(home.root),
        "tokens": tokens,
        "machine_ttl_s": settings.machine_ttl_s,
        "heartbeat_s": settings.machine_heartbeat_s,
        "gateway_url": settings.gateway_advertised,
        "gateway_id": gateway_id,
        "log": settings.log,
    }
    agent = {
        "server_url": server_url,
        "token": tokens["agent_join"],
        "name": machine_name(),
        "home": str(settings.agent_data),
        "ports": list(settings.agent_ports),
        "gpus": settings.show("agent_gpus"),
        "labels": dict(settings.agent_labels),
        "accepts": list(settings.agent_accepts),
        "reserve": dict(settings.agent_reserve),
        "engines": dict(settings.agent_engines),
        "env_pass": list(settings.agent_env_pass),
        "logs_bytes": settings.agent_logs_bytes,
        "logs_age_s": settings.agent_logs_age_s,
        "models_bytes": settings.agent_models_bytes,
        "stop_workers_on_exit": True,  # `moor down` means all of it; what must not stop them kills the agent instead
        "log": settings.log,
    }
    gateway = {
        "host": settings.gateway.host,
        "port": settings.gateway.port,
        "server_url": server_url,
        "token": tokens["gateway"],
        "state_dir": str(home.gateway_state),
        "gateway_id": gateway_id,
        "advertise": settings.gateway_advertised,
        "processes": settings.gateway_processes,
        "allowed_origins": list(settings.gateway_allowed_origins),
        "allowed_hosts": list(settings.gateway_allowed_hosts),
        "access_log": str(settings.gateway_access_log) if settings.gateway_access_log else None,
        **gateway_settings.of_config(settings.gateway_own),
    }
    if settings.hang_after_s != HANG_AFTER_S:
        gateway["hang_after_s"] = settings.hang_after_s
    if settings.gateway_tls_certificate is not None:
        gateway["tls_certificate"] = str(settings.gateway_tls_certificate)
        gateway["tls_key"] = str(settings.gateway_tls_key)
    supervisor = {"hang_after_s": settings.hang_after_s}
    return {"server": server, "agent": agent, "gateway": gateway, "supervisor": supervisor}


def _gateway_id(home: Home, settings: Settings) -> str:
    """The machine's name; of a gateway that belongs to a control plane elsewhere, of which one machine may run
    several, with a mark of its folder: two under one name would be taken for one."""
    own = settings.sources["url"] == "default"
    return machine_name() if own else f"{machine_name()}-{hashlib.sha256(str(home.root).encode()).hexdigest()[:6]}"


def machine_name() -> str:
    """This machine's name, as a name of ours may be written."""
    raw = socket.gethostname().split(".")[0].lower()
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in raw).strip("-")[:63]
    return name or "localhost"
