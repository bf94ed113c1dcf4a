"""A process host under test, in this process or in one that can be killed, and waits with a deadline."""

import asyncio
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage.clock import SystemClock
from moorage.runners.hosted import HostedProcess
from moorage.runners.identity import Exit
from moorage.runners.process import LaunchIntent, ProcessHost

PATIENCE_S = 90.0
FAKE_MODEL = str(Path(__file__).parents[2] / "servers" / "fake_model.py")

OWNER = """
import asyncio, sys
from pathlib import Path
from moorage.clock import SystemClock
from moorage.runners.process import LaunchIntent, ProcessHost

async def main():
    host = ProcessHost(SystemClock(), spare=False)
    folder, cookie, *argv = sys.argv[1:]
    process = await host.start(LaunchIntent(Path(folder), cookie, argv, {"PATH": "/usr/bin:/bin"}))
    await process.running
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
"""A program that owns a worker, to be killed."""


class World:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.host = ProcessHost(SystemClock())
        self.hosted: list[HostedProcess] = []
        self.cookies: dict[Path, str] = {}
        self._count = 0

    def folder(self) -> tuple[Path, str]:
        self._count += 1
        folder, cookie = self.base / f"w{self._count}", secrets.token_hex(16)
        self.cookies[folder] = cookie
        return folder, cookie

    async def start(self, *argv: str, **given: Any) -> HostedProcess:
        folder, cookie = self.folder()
        env = {"PATH": os.environ["PATH"], **given.pop("env", {})}
        process = await self.host.start(LaunchIntent(folder, cookie, argv, env, **given))
        self.hosted.append(process)
        await within(process.running)
        return process

    async def python(self, code: str, **given: Any) -> HostedProcess:
        return await self.start(sys.executable, "-u", "-c", code, **given)

    async def owned_by_another(self, *argv: str) -> tuple[Path, asyncio.subprocess.Process]:
        """A worker that another program started; kill that program as you like."""
        folder, cookie = self.folder()
        owner = await asyncio.create_subprocess_exec(
            sys.executable, "-c", OWNER, str(folder), cookie, *argv, stdout=asyncio.subprocess.PIPE
        )
        assert owner.stdout is not None
        assert await asyncio.wait_for(owner.stdout.readline(), PATIENCE_S) == b"up\n"
        return folder, owner

    async def adopt(self, folder: Path) -> HostedProcess | None:
        process = await self.host.adopt(folder, self.cookies[folder])
        if process is not None:
            self.hosted.append(process)
        return process

    async def close(self) -> None:
        for process in self.hosted:
            await process.stop(9, 0.0)
            await within(process.gone)
            process.close()
        self.host.close()


async def within(future: "asyncio.Future[Any]") -> Any:
    done, _ = await asyncio.wait({future}, timeout=PATIENCE_S)
    assert done, "did not happen in time"
    return future.result()


async def end_of(process: HostedProcess) -> Exit:
    """How it ended, after its tree was proven gone."""
    how: Exit = await within(process.exited)
    await within(process.gone)
    return how


async def until(true: Callable[[], Any]) -> None:
    """Poll a fact of the system that has no event."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not true():
        assert asyncio.get_running_loop().time() < deadline, "did not come true"
        await asyncio.sleep(0.01)
