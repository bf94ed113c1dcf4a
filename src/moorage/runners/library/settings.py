"""Settings of the runner library, with the defaults of the lifecycle contract §1. All durations are in seconds."""

import signal
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from moorage.domain.errors import InvalidSpec
from moorage.runners.ports import DEFAULT_PORTS

RestartOn = Literal["failure", "always"]


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """How a runner treats its models. A `ModelSpec` may say otherwise for one model where it has the same field.

    Args:
        restart_limit: restarts allowed after the first start: 4 means up to 5 starts.
        restart_delay: before a restart; the port stays the same. 0 lets the shim start the next one by itself.
        restart_reset: running this long sets the count of restarts to 0.
        restart_on: `failure`: exit 0 that nobody asked for means stopped; `always`: it is restarted too.
        ready_timeout: after which a server that is not ready counts as failed.
        ready_interval: between two looks at its health.
        warmup_delay: after its health is good, before it counts as running.
        shutdown_timeout: a process gets the stop signal, and this long after it SIGKILL with its whole tree.
        stop_signal: for processes; containers get SIGTERM. A spec may name another for either.
        port_drain_timeout: a container's grace at a stop, and the wait until nobody listens on a model's port any more.
        ports: the pool; a port that anybody listens on is skipped.
        host: address that servers are told to listen on, and are reached at.
        podman_socket, docker_socket: of the engine; `auto`: the usual places.
        home: directory for logs; None: a temporary one, removed at shutdown.
        event_buffer: changes kept for a follower that does not keep up; older ones are dropped, and it is told.
    """

    restart_limit: int = 4
    restart_delay: float = 5.0
    restart_reset: float = 600.0
    restart_on: RestartOn = "failure"
    ready_timeout: float = 120.0
    ready_interval: float = 0.1
    warmup_delay: float = 0.0
    shutdown_timeout: float = 20.0
    stop_signal: str = "SIGHUP"
    port_drain_timeout: float = 20.0
    ports: Iterable[int] = field(default=DEFAULT_PORTS)
    host: str = "127.0.0.1"
    podman_socket: str = "auto"
    docker_socket: str = "auto"
    home: Path | None = None
    event_buffer: int = 1024

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, int | float) and value < 0:
                raise InvalidSpec(f"{one.name} is {value}; it cannot be below 0", remedy=f"set {one.name} to 0 or more")
        if self.ready_interval < 0.01:
            raise InvalidSpec("ready_interval is below 0.01 s", remedy="asking more often only slows the server down")
        if self.restart_on not in ("failure", "always"):
            raise InvalidSpec(f"restart_on is {self.restart_on!r}", remedy="it is `failure` or `always`")
        signal_number(self.stop_signal)
        object.__setattr__(self, "ports", tuple(self.ports))


def signal_number(name: str) -> int:
    """The number of a signal by its name.

    Raises:
        InvalidSpec: there is no such signal.
    """
    try:
        return int(signal.Signals[name])
    except KeyError:
        raise InvalidSpec(f"{name!r} is no signal", remedy="name one as in SIGTERM, SIGHUP or SIGINT") from None
