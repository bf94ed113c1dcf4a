"""What all models of one runner share, and the intent of one start made from a spec.

Ports are leased here, so that the error of a spent pool can say who holds what.
"""

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from moorage.domain.errors import PortUnavailable
from moorage.ports import Clock
from moorage.runners.holders import holder_of
from moorage.runners.library.engines import Engines
from moorage.runners.library.environment import inherited
from moorage.runners.library.feed import Feed
from moorage.runners.library.settings import RunnerSettings
from moorage.runners.library.spec import ModelSpec
from moorage.runners.port import ContainerIntent, Labels, LaunchIntent
from moorage.runners.ports import PortPool, port_is_free


class LeasedPorts:
    """The runner's pool; a model keeps its port until it is forgotten.

    Args:
        ports: the pool.
        free: tells whether nobody uses a port now.
    """

    def __init__(self, ports: tuple[int, ...], free: Callable[[int], bool] = port_is_free) -> None:
        self._ports = ports
        self._pool = PortPool(ports, free)
        self.free = free

    def lease(self, model: str, fixed: int | None) -> int:
        """The port of a model: the fixed one, the one it has, or a free one of the pool.

        Raises:
            PortUnavailable: the pool is spent; says who holds what.
        """
        if fixed is not None:
            self._pool.hold(fixed, model)
            return fixed
        try:
            return self._pool.lease(model)
        except PortUnavailable as cause:
            held = self._pool.held
            told = [f"{p}: {held.get(p) or holder_of(p) or 'a program this user cannot see'}" for p in self._ports]
            raise PortUnavailable(
                f"no free port for {model}; {'; '.join(told) or 'the pool is empty'}",
                remedy="give the runner more ports, or stop what else listens there",
                target=model,
            ) from cause

    def move(self, model: str) -> int:
        """Another port for a model whose own was taken by a stranger.

        Raises:
            PortUnavailable: the pool is spent.
        """
        self._pool.give_back(model)
        return self.lease(model, None)

    def give_back(self, model: str) -> None:
        """The model is forgotten."""
        self._pool.give_back(model)


@dataclass(slots=True)
class Parts:
    """Shared by the models of one runner."""

    settings: RunnerSettings
    clock: Clock
    ports: LeasedPorts
    engines: Engines
    feed: Feed
    http: httpx.AsyncClient
    probes: httpx.AsyncClient
    """keeps no connection: the server at the other end may be the next one"""
    home: Path
    owner: str
    seq: int = 0
    closed: bool = field(default=False)


def intent(parts: Parts, name: str, spec: ModelSpec, port: int, start: int) -> LaunchIntent:
    """What the host is asked for.

    Args:
        parts: of the runner.
        name: of the model.
        spec: what is wanted.
        port: where it is going to listen.
        start: number of this start, from 1.
    """

    def fill(text: str) -> str:
        return spec.filled(text, name=name, host=parts.settings.host, port=port)

    env = {key: fill(value) for key, value in spec.env.items()}
    if spec.gpus:
        env.setdefault("CUDA_VISIBLE_DEVICES", fill("{gpus}"))
    container = None
    if spec.runner != "process":
        container = ContainerIntent(
            image=str(spec.image),
            pull=spec.pull,
            mounts=spec.mounts,
            gpus=spec.gpus,
            memory_bytes=spec.memory_bytes,
            cpu_milli=spec.cpu_milli,
            auth=spec.registry,
            stop_signal=spec.stop_signal or "SIGTERM",
        )
        if spec.gpus:
            env.pop("CUDA_VISIBLE_DEVICES", None)  # inside, the devices that were given are numbered from 0
    elif spec.inherit_env:
        env = {**inherited(), **env}
    return LaunchIntent(
        folder=parts.home / _folder_name(name) / f"{start:06}",
        cookie=secrets.token_hex(16),
        argv=[fill(word) for word in spec.command],
        env=env,
        workdir=spec.workdir,
        port=port,
        labels=Labels(parts.owner, f"{_folder_name(name)}-{parts.owner[-8:]}", start, _digest(spec)),
        container=container,
    )


def _folder_name(name: str) -> str:
    """A model's name may hold anything (`org/model:tag`); a directory's may not."""
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".")[:60]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _digest(spec: ModelSpec) -> str:
    """Of everything but secrets."""
    shown = {key: value for key, value in asdict(spec).items() if key not in ("registry", "env")}
    return hashlib.sha256(json.dumps(shown, sort_keys=True, default=str).encode()).hexdigest()[:16]
