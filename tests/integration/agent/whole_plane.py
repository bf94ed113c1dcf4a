"""A whole control plane in this process, real agents beside it, and a clock whose waits can be cut short.

Nothing is played: the production graph answers over HTTP, agents are processes of their own with separate homes. Only
the server's clock can be put forward, so that a return window of a minute costs no minute.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvicorn
from agent_process import AgentProcess, end_leftovers

from moorage.api.app import create_app
from moorage.app import server as app_server
from moorage.app.server import ServerConfig, build
from moorage.clock import SystemClock
from moorage.domain.nouns import Machine, Run, Worker
from tests.ports import free_range

T = TypeVar("T")
LIMIT_S = 90.0
TOKENS = {"admin": "a-token", "agent_join": "j-token", "gateway": "g-token"}
TTL_S, HEARTBEAT_S = 4.0, 0.5

PROGRAM = """
import os, pathlib, sys, time
here = pathlib.Path(sys.argv[1])
def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
beside = [p.name for p in here.glob("started-*") if alive(int(p.name.split("-")[2]))]
name = f"{os.environ['MOORAGE_EPOCH']}-{os.getpid()}"
if beside:
    (here / f"beside-{name}").write_text(" ".join(beside))
(here / f"started-{name}").write_text("")
while not (here / f"exit-{os.environ['MOORAGE_EPOCH']}").exists():
    time.sleep(0.05)
"""
"""Says that it started, and which earlier copies were still alive then; ends with 0 once it is told to."""


class ShiftedClock(SystemClock):
    """The real clock plus what it was put forward by; a wait ends when this clock says so."""

    ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_s

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        while (left_s := until - self.monotonic()) > 0:
            await asyncio.sleep(min(left_s, 0.05))


class WholePlane:
    """Server and agents; `close` ends all of it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = ShiftedClock()
        self.agents: dict[str, AgentProcess] = {}
        self.marks = home / "marks"
        self.marks.mkdir(parents=True)
        self.program = home / "program.py"
        self.program.write_text(PROGRAM)

    async def open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(app_server, "SystemClock", lambda: self.clock)
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        config = ServerConfig(
            database_url=f"sqlite:///{self.home}/m.db",
            home=self.home,
            tokens=TOKENS,
            machine_ttl_s=TTL_S,
            heartbeat_s=HEARTBEAT_S,
        )
        self.graph = await build(config)
        self.store = self.graph.store
        self._server = uvicorn.Server(
            uvicorn.Config(create_app(self.graph.deps), log_level="critical", lifespan="off", ws="none")
        )
        self._server.install_signal_handlers = lambda: None  # type: ignore[method-assign]  # pytest has its own
        self._tasks = [
            asyncio.create_task(self.graph.leadership.lead(self.graph.loops.run)),
            asyncio.create_task(self._server.serve(sockets=[sock])),
        ]
        await self.until(lambda: self._server.started and self.graph.leadership.fence is not None, "it answers")

    async def close(self) -> None:
        for agent in self.agents.values():
            if agent.running:
                agent.send(signal.SIGCONT)
                await agent.kill()
            end_leftovers(agent.home)
        self.graph.deps.closing.set()
        self._server.should_exit = self._server.force_exit = True
        await self._tasks[1]
        await self.graph.leadership.step_down()
        self._tasks[0].cancel()
        await asyncio.gather(self._tasks[0], return_exceptions=True)
        await self.graph.deps.http.aclose()
        await self.store.close()

    # Agents

    async def agent(self, name: str) -> AgentProcess:
        """One that joined."""
        if name not in self.agents:
            ports = free_range(8)
            self.agents[name] = AgentProcess(
                self.home / name, self.url, name=name, token=TOKENS["agent_join"], ports=ports
            )
        await self.agents[name].start()
        await self.machine_is(name, "Ready")
        return self.agents[name]

    async def machine_is(self, name: str, *states: str) -> Machine:
        async def ask() -> Machine | None:
            rows = await self.store.find(Machine, name=name)
            newest = max(rows, key=lambda m: (m.created_at, m.uid), default=None)
            return newest if newest is not None and newest.state in states else None

        return await self.until(ask, f"machine {name} is {' or '.join(states)}")

    # Runs

    async def submit(self, **parts: Any) -> str:
        """A run of one worker that goes on until it is told to exit; its uid."""
        command = [sys.executable, str(self.program), str(self.marks)]
        group = {"runtime": {"command": command, "stop": {"grace": 5.0}}, **parts.pop("group", {})}
        document = {"kind": "Run", "name": "train", "groups": [group], **parts}
        commands: Any = self.graph.deps.commands
        answer = await commands.runs.apply(
            "default", "train", json.loads(json.dumps(document)), actor="person:p", key=None, create_only=False
        )
        return str(answer["run"])

    async def worker_is(self, *states: str, epoch: int | None = None) -> Worker:
        async def ask() -> Worker | None:
            for row in await self.store.find(Worker):
                if row.state in states and (epoch is None or row.epoch == epoch):
                    return row
            return None

        return await self.until(ask, f"the worker is {' or '.join(states)} (epoch {epoch})")

    async def run_is(self, *states: str) -> Run:
        async def ask() -> Run | None:
            return next((r for r in await self.store.find(Run) if r.state in states), None)

        return await self.until(ask, f"the run is {' or '.join(states)}")

    async def pid_of(self, epoch: int) -> int:
        """Of the copy of that placement, once it has started."""

        def ask() -> int | None:
            found = [int(p.name.split("-")[2]) for p in self.marks.glob(f"started-{epoch}-*")]
            return found[0] if found else None

        return await self.until(ask, f"a copy of epoch {epoch} started")

    def tell_to_exit(self, epoch: int) -> None:
        (self.marks / f"exit-{epoch}").write_text("")

    @property
    def beside(self) -> list[str]:
        """Copies that started while an earlier one was alive."""
        return [f"{p.name}: {p.read_text()}" for p in self.marks.glob("beside-*")]

    async def places(self) -> set[int]:
        """Epochs for which a place is held."""
        return {int(h["epoch"]) for h in await self.store.holdings()}

    async def codes(self) -> list[str]:
        rows = await self.store.history(limit=10_000)
        return [h.reason.code for h in rows if h.object_kind == "Worker"]

    async def until(self, ask: Callable[[], T | Awaitable[T | None] | None], what: str) -> T:
        """The first answer that is true."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    found: Any = ask()
                    if asyncio.iscoroutine(found):
                        found = await found
                    if found:
                        return found  # type: ignore[no-any-return]  # of that type by then
                    await asyncio.sleep(0.02)
        except TimeoutError:
            rows = [(w.state, w.epoch, w.machine_name, w.reason) for w in await self.store.find(Worker)]
            told = "".join(a.log()[-1500:] for a in self.agents.values())
            raise AssertionError(f"not within {LIMIT_S} s: {what}; workers: {rows}; agents: {told}") from None


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def kill_9(pid: int) -> None:
    """As somebody else would."""
    os.kill(pid, signal.SIGKILL)
