"""An installation whose control plane is started by the test and killed at one commit after the other.

The agent and the gateway are those of a `moor up`, whose supervisor is killed (which takes nothing down); the server
is `tests/servers/crashing_server.py`, started again by the test after each crash. Used by `test_every_step_crashes`.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from moorage.client import Client
from moorage.runners.shimming import procfs
from tests.acceptance.installation import FAKE, Installation, alive, until

SERVER, SUPERVISOR = "moorage.app.server", "moorage.app.supervisor"
PROGRAM = Path(__file__).parents[1] / "servers" / "crashing_server.py"
COMMITS_MAX = 200
"""More than any one action takes."""


@dataclass(frozen=True)
class Action:
    """What is done to a deployment, from where, and where it ends.

    Args:
        begin: asks for it; may be asked again, and is when the answer was lost in a crash.
        over: whether it has had its effect and nothing is under way any more.
        before: brings the deployment to where the action begins.
    """

    begin: Callable[["CrashWorld"], object]
    over: Callable[["CrashWorld"], bool]
    before: Callable[["CrashWorld"], object]


class CrashWorld:
    """One of them. `close` ends all of it."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        home = installation.home
        self.order = home.parent / "crash"
        os.kill(installation.part_pid(SUPERVISOR), signal.SIGKILL)
        installation.kill_part(SERVER)
        self._config = home / "run" / "server.json"
        self._log = (home.parent / "server.log").open("ab")
        self.crashes = 0
        self.previous = ""
        self.number = 0
        self.process = self._start()
        self._closing = False
        self.died: list[int] = []
        """exit codes other than of a crash that was ordered"""
        self._keeper = threading.Thread(target=self._keep_up, daemon=True)
        self._keeper.start()
        self.client = Client(home=home)
        self.answers()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), "--config", str(self._config)],
            env={**os.environ, "CRASH_FILE": str(self.order)},
            stdout=self._log,
            stderr=self._log,
        )

    def close(self) -> None:
        """End all: first what reports to the server, then the server itself."""
        self.order.unlink(missing_ok=True)
        self.installation.down()
        self._closing = True
        self.process.terminate()
        self._keeper.join()
        self._log.close()

    def _keep_up(self) -> None:
        """Start it again each time it has crashed, at once, as a supervisor would."""
        while True:
            code = self.process.wait()
            if self._closing:
                return
            if code != -signal.SIGKILL:
                self.died.append(code)
                return
            self.crashes += 1
            self.process = self._start()

    def answers(self) -> None:
        """Wait until it does."""

        def ask() -> bool:
            try:
                return bool(self.installation.asked("machines"))
            except httpx.HTTPError:
                return False

        until(ask, "the control plane to answer")

    def tried(self, what: Callable[[], Any]) -> Any:
        """An answer, asked for again for as long as the control plane cannot be reached."""

        def ask() -> Any:
            assert not self.died, f"the control plane ended by itself: {self.died}, see {self._log.name}"
            try:
                return (what(),)
            except Exception as cause:
                if not _unreached(cause):
                    raise
                return None

        return until(ask, "an answer")[0]

    def crash_at(self, when: str, number: int, action: Action) -> bool:
        """Do the action with one crash at that commit; whether there was one."""
        self.order.unlink(missing_ok=True)
        before = self.crashes
        new = self.order.with_suffix(".new")
        new.write_text(f"{when} {number}")
        new.rename(self.order)
        self.tried(lambda: action.begin(self))
        until(lambda: self.tried(lambda: action.over(self)), f"the action to end, with a crash {when} commit {number}")
        crashed = not self.order.exists()
        self.order.unlink(missing_ok=True)
        self.answers()
        return crashed and self.crashes > before

    def spec(self, name: str, number: int) -> dict[str, Any]:
        """A fake model whose revisions differ in one variable."""
        return {
            "kind": "Deployment",
            "name": name,
            "model": {"id": name},
            "runtime": {
                "command": [sys.executable, FAKE, "--model", name, "--port", "{port}"],
                "env": {"NUMBER": str(number)},
                "stop": {"grace": "5s"},
            },
            "resources": {"cpu": "10m"},
            "replicas": {"min": 0, "max": 1, "initial": 1},
            "scaling": {"idle_timeout": "1h"},
            "rollout": {"rollback_window": "0s", "guard": {"minimum_requests": 5}},
            "gateway": {"drain": "5s"},
        }

    def deployment(self, name: str) -> dict[str, Any]:
        """As the API shows it."""
        return self.client.deployments.get(name)

    def open_operations(self) -> list[str]:
        """Those that are not over."""
        over = ("succeeded", "failed", "cancelled")
        return [f"{o['operation']} {o['state']}" for o in self.client.operations.list() if o["state"] not in over]

    def servers(self, name: str) -> list[str]:
        """Identities of a deployment's model servers that run on this machine; the same one twice is a second copy."""
        found = []
        for number in procfs.numbers():
            try:
                argv = Path(f"/proc/{number}/cmdline").read_bytes().decode().split("\0")
                variables = Path(f"/proc/{number}/environ").read_bytes().decode().split("\0")
            except OSError:
                continue
            pid = procfs.ours(number)
            if FAKE in argv and name in argv and "python" in argv[0] and pid is not None and alive(pid):
                found += [v for v in variables if v.startswith("MOORAGE_IDENTITY=")]
        assert len(set(found)) == len(found), f"a second copy: {found}"
        return found

    def settled(self, name: str, phase: str, servers: int) -> bool:
        """Whether nothing is under way any more and it is there with so many servers."""
        shown = self.deployment(name)
        return (
            shown["phase"] == phase
            and len(self.servers(name)) == servers
            and shown["candidate_revision"] is None
            and not self.open_operations()
            and all(r["state"] != "draining" for r in self.client.deployments.revisions(name))
        )


def _unreached(cause: Exception) -> bool:
    """Whether the control plane could not be reached, rather than refused."""
    return getattr(cause, "category", "") == "unavailable" or isinstance(cause, httpx.HTTPError)
