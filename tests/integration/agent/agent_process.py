"""The agent under test as a real process, with its home in a temporary directory."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from agent_plane import PATIENCE_S

from moorage.runners.identity import alive, identity_from, read_fields


class AgentProcess:
    def __init__(self, home: Path, url: str, **config: Any) -> None:
        self.home = home
        self._config = {"server_url": url, "name": "box", "home": str(home), "token": "join-token"} | config
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        path = self.home / "config.json"
        path.write_text(json.dumps(self._config))
        with (self.home / "agent.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "moorage.agent.main", "--config", str(path), stderr=log, env=dict(os.environ)
            )

    async def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    def send(self, signum: signal.Signals) -> None:
        """A signal, such as one that halts it."""
        assert self._process is not None
        self._process.send_signal(signum)

    async def terminate(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self._process.wait(), PATIENCE_S)

    async def wait(self) -> int:
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), PATIENCE_S)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def remembers_ready(self, worker: str) -> bool:
        """Whether it is on disk that the worker was reported ready; a report goes out before the disk has it."""
        with contextlib.closing(sqlite3.connect(self.home / "ledger.sqlite")) as db:
            return db.execute("SELECT ready FROM attempts WHERE worker = ?", (worker,)).fetchone() == (1,)

    def remembers_state(self, worker: str) -> str:
        """The last step of the worker that is on disk."""
        with contextlib.closing(sqlite3.connect(self.home / "ledger.sqlite")) as db:
            row = db.execute("SELECT state FROM attempts WHERE worker = ?", (worker,)).fetchone()
        return row[0] if row else ""

    def alter_memory(self, statement: str) -> None:
        """Change what the ledger of a dead agent holds (time that passed for it)."""
        with contextlib.closing(sqlite3.connect(self.home / "ledger.sqlite")) as db:
            changed = db.execute(statement).rowcount
            db.commit()
        assert changed == 1

    def log(self) -> str:
        return (self.home / "agent.log").read_text()


def end_leftovers(home: Path) -> None:
    """Kill what a test left, by the identities that the shims wrote down."""
    for path in home.glob("workers/*/*/identity"):
        known = identity_from(read_fields(path.read_text()))
        for pid, ticks in ((known.pid, known.start_ticks), (known.shim_pid, known.shim_ticks)):
            if alive(pid, ticks):
                os.kill(pid, signal.SIGTERM if pid == known.shim_pid else signal.SIGKILL)
