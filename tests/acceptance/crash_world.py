"""An installation whose control plane is started by the test and killed at one commit after the other.

The agent and the gateway are those of a `moor up`, whose supervisor is killed (which takes nothing down); the server
is `tests/servers/crashing_server.py`, which starts again after each crash. Used by `test_every_step_crashes`.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from moorage.client import Client
from moorage.runners.shimming import procfs
from tests.acceptance.installation import FAKE, PATIENCE_S, Installation, alive, until

SERVER, SUPERVISOR = "moorage.app.server", "moorage.app.supervisor"
PROGRAM = Path(__file__).parents[1] / "servers" / "crashing_server.py"
LOOK_S = 0.1
"""Looking takes several questions, on the processors that all of it runs on."""
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
        self.previous = ""
        self.number = 0
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), "--config", str(self._config)],
            env={**os.environ, "CRASH_FILE": str(self.order)},
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self.client = Client(home=home)
        self.answers()

    def close(self) -> None:
        """End all: first what reports to the server, then the server itself."""
        self.order.unlink(missing_ok=True)
        try:
            self.installation.down()
        finally:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(PATIENCE_S)
            self._log.close()

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
            ended = self.process.poll()
            assert ended is None, f"the control plane ended by itself with {ended}, see {self._log.name}"
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
        new = self.order.with_suffix(".new")
        new.write_text(f"{when} {number}")
        new.rename(self.order)
        self.tried(lambda: action.begin(self))
        what = f"the action to end, with a crash {when} commit {number}"
        until(lambda: self.tried(lambda: action.over(self)), what, every_s=LOOK_S)
        crashed = not self.order.exists()
        self.order.unlink(missing_ok=True)
        self.answers()
        return crashed

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
            here = any(str(self.installation.home) in v for v in variables)
            if here and FAKE in argv and name in argv and "python" in argv[0] and pid is not None and alive(pid):
                found += [v for v in variables if v.startswith("MOORAGE_IDENTITY=")]
        assert len(set(found)) == len(found), f"a second copy: {found}"
        return found

    def settled(self, name: str, phase: str, servers: int) -> bool:
        """Whether nothing is under way any more and it is there with so many servers."""
        shown = self.deployment(name)
        return (
            shown["phase"] == phase
            and shown["candidate_revision"] is None
            and not self.open_operations()
            and all(r["state"] != "draining" for r in self.client.deployments.revisions(name))
            and len(self.servers(name)) == servers
        )


def _unreached(cause: Exception) -> bool:
    """Whether the control plane could not be reached, rather than refused."""
    return getattr(cause, "category", "") == "unavailable" or isinstance(cause, httpx.HTTPError)
