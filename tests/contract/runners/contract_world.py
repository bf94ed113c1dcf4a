"""One world for all hosts: a process host, or a container host on a real engine, with the same ways to start things."""

import asyncio
import os
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from host_world import PATIENCE_S, within

from moorage.clock import SystemClock
from moorage.runners.containers.api import EngineApi
from moorage.runners.containers.host import ContainerHost
from moorage.runners.port import ContainerIntent, Host, Hosted, Labels, LaunchIntent
from moorage.runners.process import ProcessHost
from tests.engines import IMAGE, Engine

OWNER = """
import asyncio, sys
from pathlib import Path
from contract_world import ContractWorld, make_host
from host_world import within

async def main():
    name, socket, base, folder, cookie, *argv = sys.argv[1:]
    host = make_host(name, Path(socket))
    world = ContractWorld(name, Path(base), host)
    hosted = await host.start(world.intent(*argv, folder=Path(folder), cookie=cookie))
    await within(hosted.running)
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
"""A program that owns what it started, to be killed."""


def make_host(name: str, socket: Path) -> Host:
    if name == "process":
        return ProcessHost(SystemClock(), spare=False)
    return ContainerHost(EngineApi(name, socket), SystemClock())  # type: ignore[arg-type]


class ContractWorld:
    def __init__(self, name: str, base: Path, host: Host, engine: Engine | None = None) -> None:
        self.name = name
        self.base = base
        self.host = host
        self.engine = engine
        self.socket = engine.socket if engine else Path("none")
        self.hosts = [host]
        self.hosted: list[Hosted] = []
        self.tag = secrets.token_hex(4)
        self._count = 0

    def labels(self, **given: Any) -> Labels:
        self._count += 1
        return replace(Labels("tests", f"{self.tag}-{self._count}", 1, "digest"), **given)

    def intent(self, *argv: str, **given: Any) -> LaunchIntent:
        labels = given.pop("labels", None) or self.labels()
        folder = given.pop("folder", None) or self.base / f"w{self._count}"
        cookie = given.pop("cookie", None) or secrets.token_hex(16)
        env = given.pop("env", {})
        outer = {k: given.pop(k) for k in ("workdir", "port") if k in given}
        container = None if self.name == "process" else ContainerIntent(given.pop("image", IMAGE), **given)
        if container is None:
            env = {"PATH": os.environ["PATH"], **env}
        return LaunchIntent(folder, cookie, argv, env, labels=labels, container=container, **outer)

    async def launch(self, intent: LaunchIntent) -> Hosted:
        await self.host.prepare(intent)
        hosted = await self.host.start(intent)
        self.hosted.append(hosted)
        await within(hosted.running)
        return hosted

    async def start(self, *argv: str, **given: Any) -> Hosted:
        return await self.launch(self.intent(*argv, **given))

    async def shell(self, code: str, **given: Any) -> Hosted:
        return await self.start("/bin/sh", "-c", code, **given)

    async def owned_by_another(self, code: str) -> tuple[LaunchIntent, asyncio.subprocess.Process]:
        """Something that another program started; kill that program as you like."""
        intent = self.intent("/bin/sh", "-c", code)
        given = (self.name, str(self.socket), str(self.base), str(intent.folder), intent.cookie, *intent.argv)
        owner = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            OWNER,
            *given,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[3]}"},
        )
        assert owner.stdout is not None
        assert await asyncio.wait_for(owner.stdout.readline(), PATIENCE_S) == b"up\n"
        return intent, owner

    def new_host(self) -> Host:
        """As a program has one that was started again."""
        self.host = make_host(self.name, self.socket)
        self.hosts.append(self.host)
        return self.host

    async def adopt(self, intent: LaunchIntent) -> Hosted | None:
        hosted = await self.host.adopt(intent.folder, intent.cookie)
        if hosted is not None:
            self.hosted.append(hosted)
        return hosted

    async def close(self) -> None:
        for hosted in self.hosted:
            if not hosted.gone.done():
                await hosted.stop(9, 0.0)
        for hosted in self.hosted:
            await within(hosted.gone)
            hosted.close()
        for host in self.hosts:
            await host.aclose()
