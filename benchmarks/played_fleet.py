"""A control plane of its own process, and machines that are played over HTTP: what a benchmark of runs needs.

The machines speak the agent protocol as `moorage.agent` does (join, reconcile, long-poll, heartbeat, report) and run
nothing: a worker that they are given is reported Running at once, and ends when the benchmark says so.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

PICKED_UP = [
    {"to": "Preparing", "trigger": "picked_up", "code": "prepare.started"},
    {"to": "Starting", "trigger": "started", "code": "container.started"},
    {"to": "Running", "trigger": "running", "code": "container.running"},
]
COMPLETED = {"to": "Completed", "trigger": "exited_zero", "code": "exited", "params": {"code": 0}}
TICKS = os.sysconf("SC_CLK_TCK")
Json = dict[str, Any]


class Server:
    """`python -m moorage.app.server` on a home of its own."""

    def __init__(self, home: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        config = home / "server.json"
        tokens = {"admin": "admin", "agent_join": "join", "gateway": "gateway"}
        document = {"database_url": f"sqlite:///{home}/moorage.db", "home": str(home), "tokens": tokens}
        config.write_text(json.dumps({**document, "port": port, "log": "warning"}))
        self.url = f"http://127.0.0.1:{port}"
        self.log = (home / "server.log").open("w")
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        command = [sys.executable, "-m", "moorage.app.server", "--config", str(config)]
        self.process = subprocess.Popen(command, stderr=self.log, env=env)
        self.http = httpx.AsyncClient(
            base_url=f"{self.url}/api/v1",
            headers={"Authorization": "Bearer admin"},
            timeout=120,
            limits=httpx.Limits(max_connections=64),
        )

    async def ready(self) -> None:
        """Wait until it leads."""
        while True:
            try:
                if (await self.http.get(f"{self.url}/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            if self.process.poll() is not None:
                raise SystemExit("the server ended: see its log")
            await asyncio.sleep(0.05)

    def cpu_s(self) -> float:
        """CPU seconds that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mib(self) -> float:
        """Resident memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    async def submit(self, name: str, **spec: Any) -> None:
        """Submit a run."""
        answer = await self.http.put(
            f"/namespaces/default/runs/{name}",
            json={"kind": "Run", "name": name, **spec},
        )
        if answer.is_error:
            raise SystemExit(f"{name} was not accepted: {answer.text}")

    async def close(self) -> None:
        """End it."""
        await self.http.aclose()
        self.process.terminate()
        self.process.wait()
        self.log.close()


class PlayedMachine:
    """One machine.

    Args:
        server: whose.
        name: of the machine.
        slots: how many workers of one core it can take.
    """

    def __init__(self, server: Server, name: str, slots: int) -> None:
        self.name, self.slots = name, slots
        self.running: dict[str, int] = {}
        """worker -> epoch"""
        self._seq = 0
        self._http = httpx.AsyncClient(base_url=f"{server.url}/api/v1/agent", timeout=120)
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        """Join, reconcile, and play from then on."""
        capacity = {"cpu_milli": self.slots * 1000, "memory_bytes": 1 << 40, "gpus": []}
        who = {"name": self.name, "incarnation": f"i-{self.name}", "boot_id": f"b-{self.name}", "capacity": capacity}
        joined = await self._post("join", who, "join")
        self.uid = joined["machine"]
        self._http.headers["Authorization"] = f"Bearer {joined['credential']}"
        self._me = {"machine": self.uid, "incarnation": f"i-{self.name}"}
        told = await self._post("reconcile", {**self._me, "boot_id": f"b-{self.name}", "held": []})
        self._seq = int(told["next_seq"])
        self._tasks = [asyncio.create_task(self._work()), asyncio.create_task(self._beat(joined["heartbeat_s"]))]

    async def complete(self) -> None:
        """Everything that runs here ends with 0, in one report."""
        ended, self.running = self.running, {}
        steps = [COMPLETED]
        await self._report(
            [{"worker": w, "epoch": e, "steps": steps, "exit_code": 0, "gone": True} for w, e in ended.items()]
        )

    async def close(self) -> None:
        """Stop playing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    async def _work(self) -> None:
        after = 0
        seen: dict[str, int] = {}
        while True:
            answer = await self._http.get("/work", params={**self._me, "after": after, "wait_s": 25})
            if answer.status_code != 200:
                continue
            work = answer.json()
            after = work["version"]
            new = [a for a in work["assignments"] if seen.get(a["worker"]) != a["epoch"] and a["desired"] == "run"]
            if new:
                seen |= {a["worker"]: a["epoch"] for a in new}
                await self._report([{"worker": a["worker"], "epoch": a["epoch"], "steps": PICKED_UP} for a in new])
                self.running |= {a["worker"]: a["epoch"] for a in new}

    async def _beat(self, every_s: float) -> None:
        while True:
            await self._post("heartbeat", {**self._me, "workers": self.running})
            await asyncio.sleep(every_s)

    async def _report(self, reports: list[Json]) -> None:
        if not reports:
            return
        numbered = []
        for report in reports:
            numbered.append({"seq": self._seq, **report})
            self._seq += 1
        await self._post("report", {**self._me, "reports": numbered})

    async def _post(self, path: str, body: Json, bearer: str | None = None) -> Any:
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        answer = await self._http.post(f"/{path}", json=body, headers=headers)
        if answer.is_error:
            raise SystemExit(f"{self.name}: {path}: {answer.status_code} {answer.text}")
        return answer.json()
