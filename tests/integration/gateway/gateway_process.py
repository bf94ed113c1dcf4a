"""A gateway as it runs: a master and worker processes, with what they log and tell."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway_rig import DEADLINE_S, Client, ModelServer, until

from moorage.wire.routing import EndpointRoute, GatewayLimits, RoutingTable, Target


@dataclass
class GatewayProcess:
    """One gateway."""

    process: asyncio.subprocess.Process
    home: Path
    settings: dict[str, object]
    events: list[dict[str, Any]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """what it wrote besides its log"""

    @property
    def port(self) -> int:
        return int(self.named("gateway.listening")[0]["address"].rpartition(":")[2])

    def named(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == event]

    def status(self) -> dict[str, Any]:
        """What the master tells."""
        try:
            told: dict[str, Any] = json.loads((self.home / "master.json").read_text())
        except FileNotFoundError:
            return {"state": "", "workers": [], "reloads": 0, "retiring": [], "error": None}
        return told

    async def serving(self) -> None:
        await until(lambda: self.status()["state"] == "serving" or self.process.returncode is not None, "it serves")

    def configure(self, **settings: object) -> None:
        self.settings |= settings
        (self.home / "gateway.json").write_text(json.dumps(self.settings))

    async def reload(self) -> dict[str, Any]:
        """SIGHUP, and what came of it once all is done."""
        before = self.status()["reloads"]
        self.process.send_signal(signal.SIGHUP)

        def done() -> bool:
            told = self.status()
            return told["reloads"] > before and told["state"] == "serving" and not told["retiring"]

        await until(done, "the reload is done")
        return self.status()

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    async def read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.said.append(line.decode())


@asynccontextmanager
async def gateway_process(home: Path, **settings: object) -> AsyncIterator[GatewayProcess]:
    """Start one on a free port; without `server_url` its control plane does not answer. Waits until it serves."""
    values = {"server_url": "http://127.0.0.1:9", "token": "tok", "gateway_id": "g", "state_dir": str(home)}
    running = GatewayProcess(None, home, {**values, "port": 0, "allowed_hosts": ["g"]})  # type: ignore[arg-type]
    running.configure(**settings)
    running.process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "moorage.gateway.main",
        "--config",
        str(home / "gateway.json"),
        stderr=asyncio.subprocess.PIPE,
    )
    reading = asyncio.create_task(running.read())
    try:
        await running.serving()
        await until(lambda: running.named("gateway.listening") or running.process.returncode is not None)
        yield running
    finally:
        if running.process.returncode is None:
            running.process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            await running.process.wait()
            await reading


def keep_table(home: Path, *servers: ModelServer, number: int = 1, model: str | None = None, **limits: Any) -> None:
    """A table as a gateway keeps it, with the endpoint `m`."""
    targets = tuple(Target(replica=f"r{n}", revision="1", host="127.0.0.1", port=s.port) for n, s in enumerate(servers))
    route = EndpointRoute(
        name="m",
        deployment="m",
        mode="serve",
        model=model,
        targets=targets,
        limits=GatewayLimits(max_in_flight=256, **limits),
    )
    table = RoutingTable(incarnation="s-1", number=number, endpoints=(route,))
    (home / "routing-table.json").write_text(table.model_dump_json())


def is_alive(pid: int) -> bool:
    """Whether a process runs, and does not only wait to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)
