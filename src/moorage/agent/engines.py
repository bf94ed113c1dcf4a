"""What executes workers on this machine: the process host, and a container host for each engine that answers.

An engine is looked for when it is needed and not yet known, so that one that comes up later, or comes back, is found.
Before it is used for the first time, what earlier agents left on it is looked at.
Called by the held workers and, for what a join reports, by the session.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from moorage.agent.config import AgentConfig
from moorage.domain.errors import RunnerError
from moorage.ports import Clock
from moorage.runners.containers.api import EngineName
from moorage.runners.containers.discovery import find_engine, sockets_for
from moorage.runners.containers.host import ContainerHost
from moorage.runners.port import Host
from moorage.runners.process import ProcessHost

CONTAINER_ENGINES: tuple[EngineName, ...] = ("podman", "docker")


class Engines:
    """Hosts by the name of a spec's `runner`.

    Args:
        config: where the engines' sockets are.
        clock: for the hosts.
        on_found: awaited before an engine is used for the first time; a `RunnerError` of it means: not found yet.
    """

    def __init__(self, config: AgentConfig, clock: Clock, on_found: Callable[[ContainerHost], Awaitable[None]]) -> None:
        self._config = config
        self._on_found = on_found
        self._finding = {name: asyncio.Lock() for name in CONTAINER_ENGINES}
        self._clock = clock
        self._hosts: dict[str, Host] = {"process": ProcessHost(clock, python=config.python)}

    async def get(self, runner: str) -> Host:
        """The host for a runner.

        Raises:
            RunnerError: no such engine answers here (code `engine_unavailable`).
        """
        found = self._hosts.get(runner) or await self._find(runner)
        if found is None:
            places = ", ".join(str(s) for s in self._sockets(runner)) or "none is configured"
            raise RunnerError(
                f"{runner} does not answer on this machine (sockets: {places})",
                code="engine_unavailable",
                retryable=True,
                remedy=f"start the {runner} service, or give its socket in the agent's configuration (engines)",
            )
        return found

    async def answering(self) -> tuple[str, ...]:
        """Names of those that can be used now."""
        names = ["process"]
        for name in CONTAINER_ENGINES:
            host = self._hosts.get(name)
            if host is None:
                if await self._find(name) is not None:
                    names.append(name)
            elif not isinstance(host, ContainerHost) or await host.answers():
                names.append(name)
        return tuple(names)

    def containers(self) -> tuple[ContainerHost, ...]:
        """Container engines that were found."""
        return tuple(host for host in self._hosts.values() if isinstance(host, ContainerHost))

    async def aclose(self) -> None:
        """Let go of all of them. What runs goes on running."""
        for host in self._hosts.values():
            await host.aclose()

    async def _find(self, runner: str) -> Host | None:
        if runner not in CONTAINER_ENGINES:
            return None
        async with self._finding[runner]:
            if runner not in self._hosts:  # nobody has found it meanwhile
                host = await self._look_for(runner)
                if host is None:
                    return None
                self._hosts[runner] = host
            return self._hosts[runner]

    async def _look_for(self, runner: EngineName) -> ContainerHost | None:
        api = await find_engine(runner, self._sockets(runner))
        if api is None:
            return None
        host = ContainerHost(api, self._clock)
        try:
            await self._on_found(host)
        except RunnerError:
            await host.aclose()
            return None
        return host

    def _sockets(self, runner: str) -> tuple[Path, ...]:
        if runner not in CONTAINER_ENGINES:
            return ()
        return sockets_for(runner, self._config.engines, self._config.runtime_dir)
