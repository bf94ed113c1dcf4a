"""What executes models, made when it is first asked for: the process host, and one container host an engine in use."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from moorage.domain.errors import RunnerError
from moorage.ports import Clock
from moorage.runners.library.settings import RunnerSettings, signal_number
from moorage.runners.library.spec import RunnerKind
from moorage.runners.port import Host
from moorage.runners.process import Leash, ProcessHost

GUARDIAN = Path(__file__).with_name("guardian.py")
OWNER_LABEL = "moorage.owner"


class Engines:
    """Hosts by the name of the runner; what they start ends with this program.

    Args:
        settings: sockets, signal and grace.
        clock: for the hosts.
        owner: unique for this runner; containers carry it.
        given: hosts to use instead of those made here (a test's).
    """

    def __init__(
        self, settings: RunnerSettings, clock: Clock, owner: str, given: dict[RunnerKind, Host] | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._owner = owner
        self._hosts: dict[RunnerKind, Host] = dict(given or {})
        self._guardians: list[subprocess.Popen[bytes]] = []
        self._making = asyncio.Lock()

    async def get(self, kind: RunnerKind) -> Host:
        """The host of a runner.

        Raises:
            RunnerError: no such engine answers on this machine (code `engine_unavailable`).
        """
        found = self._hosts.get(kind)
        if found is None:
            async with self._making:
                found = self._hosts.get(kind) or await self._make(kind)
                self._hosts[kind] = found
        return found

    async def aclose(self) -> None:
        """Let go of all of them; guardians take a last look first."""
        for guardian in self._guardians:
            assert guardian.stdin is not None
            try:
                guardian.stdin.write(b"q")
                guardian.stdin.close()
            except BrokenPipeError:
                pass  # it has ended before us; what it was for has been stopped by now
            await asyncio.to_thread(guardian.wait)
        for host in self._hosts.values():
            await host.aclose()
        self._hosts.clear()

    async def _make(self, kind: RunnerKind) -> Host:
        if kind == "process":
            leash = Leash(signal_number(self._settings.stop_signal), self._settings.shutdown_timeout)
            return ProcessHost(self._clock, leash=leash)
        from moorage.runners.containers.discovery import find_engine, sockets_for
        from moorage.runners.containers.host import ContainerHost

        given = {"podman": self._settings.podman_socket, "docker": self._settings.docker_socket}
        places = sockets_for(kind, given, f"/run/user/{os.getuid()}")
        api = await find_engine(kind, places)
        if api is None:
            looked = ", ".join(str(place) for place in places) or "nowhere"
            raise RunnerError(
                f"{kind} does not answer on this machine (looked at {looked})",
                remedy=f"start its service, or give its socket in {kind}_socket",
                code="engine_unavailable",
            )
        self._guard(api.socket)
        return ContainerHost(api, self._clock)

    def _guard(self, socket: Path) -> None:
        label = f"{OWNER_LABEL}={self._owner}"
        self._guardians.append(
            subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARDIAN), str(socket), label, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                bufsize=0,
            )
        )
