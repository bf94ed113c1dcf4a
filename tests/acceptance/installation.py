"""One `moor up` in a temporary home: commands, requests through the gateway, pids of its parts, traffic that counts.

Used by the acceptance tests only. Every wait is for a condition, bounded by `until`. Nothing here is TLS, and each
client of httpx that may be told otherwise reads all authorities of the system first (a twentieth of a second).
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import stat_fields
from tests.ports import free_ports, free_range

MOOR = str(Path(sys.executable).parent / "moor")
FAKE = str(Path(__file__).parents[1] / "servers" / "fake_model.py")
PATIENCE_S = 120.0


def until(condition: Callable[[], Any], what: str, limit_s: float = PATIENCE_S, every_s: float = 0.02) -> Any:
    """Wait until the condition is true and return its value; AssertionError after `limit_s`."""
    end = time.monotonic() + limit_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"gave up after {limit_s:g} s waiting for {what}"
        time.sleep(every_s)


@dataclass
class Installation:
    """A running installation.

    Args:
        home: its MOORAGE_HOME.
        ports: first and last port of the pool its model servers take.
    """

    home: Path
    ports: list[int] = field(default_factory=lambda: free_range(40))
    api: int = 0
    gateway: int = 0
    extra_env: dict[str, str] = field(default_factory=dict)

    def up(self) -> None:
        """`moor up`, waiting until every part answers."""
        if not self.api:
            self.api, self.gateway = free_ports(2)
        self.moor("up", "--port", str(self.api), "--gateway-port", str(self.gateway))

    def down(self) -> None:
        """`moor down`."""
        self.moor("down")

    @property
    def env(self) -> dict[str, str]:
        """Environment of every command."""
        pool = "{}-{}".format(*self.ports)
        return {**os.environ, "MOORAGE_HOME": str(self.home), "MOORAGE_AGENT_PORTS": pool, **self.extra_env}

    def run(self, *args: str, timeout_s: float = 180) -> subprocess.CompletedProcess[str]:
        """A `moor` command, whatever it answers."""
        command = [MOOR, *args]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False)

    def moor(self, *args: str, timeout_s: float = 180) -> str:
        """A `moor` command that must succeed; its standard output."""
        done = self.run(*args, timeout_s=timeout_s)
        assert done.returncode == 0, f"moor {' '.join(args)} ended {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *args: str) -> Any:
        """A `moor` command with `--output json`, parsed."""
        return json.loads(self.moor(*args, "--output", "json"))

    def spec(self, name: str, *options: str, **parts: Any) -> Path:
        """A spec file for a fake model server with these options; `parts` are merged over the document."""
        document: dict[str, Any] = {
            "kind": "Deployment",
            "name": name,
            "model": {"id": name},
            "runtime": {
                "command": [sys.executable, FAKE, "--model", name, "--port", "{port}", *options],
                "stop": {"grace": "5s"},
            },
            "resources": {"cpu": "10m"},
        }
        for key, value in parts.items():
            document[key] = {**document[key], **value} if isinstance(document.get(key), dict) else value
        path = self.home.parent / f"{name}.json"
        path.write_text(json.dumps(document))
        return path

    def apply(self, name: str, *options: str, **parts: Any) -> None:
        """Apply a fake model and wait until it serves."""
        self.moor("apply", "-f", str(self.spec(name, *options, **parts)), "--wait", "--for", "live")

    def asked(self, path: str) -> Any:
        """What the control API answers, without the start of a command: for whoever asks again and again."""
        known = json.loads((self.home / "client.json").read_text())
        headers = {"Authorization": f"Bearer {known['token']}"}
        answer = httpx.get(f"{known['url']}/api/v1/{path}", headers=headers, timeout=PATIENCE_S, verify=False)
        return answer.raise_for_status().json()

    def deployment(self, name: str) -> dict[str, Any]:
        """The deployment object."""
        return dict(self.asked(f"namespaces/default/deployments/{name}"))

    def phase(self, name: str) -> str:
        """Its phase."""
        return str(self.deployment(name)["phase"])

    def request(self, name: str, **more: Any) -> httpx.Response:
        """One chat completion through the gateway, on a connection of its own."""
        body = {"model": name, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, **more}
        return httpx.post(
            f"http://127.0.0.1:{self.gateway}/v1/chat/completions", json=body, timeout=PATIENCE_S, verify=False
        )

    def server_pid(self, name: str) -> int:
        """Pid of the model server that answers now."""
        url = f"http://127.0.0.1:{self.gateway}/endpoints/{name}/stats"
        return int(httpx.get(url, timeout=PATIENCE_S, verify=False).json()["pid"])

    def part_pid(self, module: str) -> int:
        """Pid of one part of this installation (`moorage.app.server`, `moorage.agent.main`, `moorage.gateway.main`)."""
        return until(lambda: self._find(module), f"a process of {module}")

    def _find(self, module: str) -> int | None:
        for number in procfs.numbers():
            try:
                argv = Path(f"/proc/{number}/cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if module in argv and any(str(self.home) in a for a in argv):
                return procfs.ours(number)
        return None

    def kill_part(self, module: str) -> int:
        """kill -9 one part; returns the pid that it had."""
        pid = self.part_pid(module)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid), f"{module} to be gone")
        return pid

    def events(self, name: str) -> list[dict[str, Any]]:
        """Everything that happened to a deployment and under it, oldest first."""
        return list(self.json("history", name, "--all"))

    def codes(self, name: str) -> list[str]:
        """The reason codes of its events."""
        return [e["reason"]["code"] for e in self.events(name)]


def alive(pid: int) -> bool:
    """Whether a process of that pid runs (a zombie does not)."""
    fields = stat_fields(pid)
    return fields is not None and fields[0] not in (b"Z", b"X")


class Traffic(threading.Thread):
    """One client that asks again and again, on one connection, and counts what it got.

    Args:
        rest_s: before it asks again.
    """

    def __init__(self, installation: Installation, name: str, rest_s: float = 0.0) -> None:
        super().__init__(daemon=True)
        self._url = f"http://127.0.0.1:{installation.gateway}/v1/chat/completions"
        self._body = {"model": name, "messages": [], "max_tokens": 2}
        self._over = threading.Event()
        self._rest_s = rest_s
        self.answered = 0
        self.failures: list[str] = []

    def __enter__(self) -> "Traffic":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def run(self) -> None:
        """Ask until told to end."""
        with httpx.Client(timeout=PATIENCE_S, verify=False) as http:
            while not self._over.wait(self._rest_s):
                try:
                    answer = http.post(self._url, json=self._body)
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                    continue
                if answer.status_code == 200:
                    self.answered += 1
                else:
                    self.failures.append(f"{answer.status_code} {answer.text}")

    def more(self, count: int) -> None:
        """Wait until that many further requests were answered."""
        wanted = self.answered + count
        until(lambda: self.answered >= wanted or self.failures, f"{count} more answers")

    def end(self) -> None:
        """Stop asking."""
        self._over.set()
        self.join(PATIENCE_S)
