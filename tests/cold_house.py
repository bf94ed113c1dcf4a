"""An installation with a deployment that sleeps and another that serves, and the words of who floods the first.

Used by the acceptance tests of cold deployments and by `benchmarks/bench_cold.py`.
"""

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from moorage.client import Client
from tests.acceptance.installation import PATIENCE_S, Installation, until

MODEL = str(Path(__file__).parent / "servers" / "batching_model.py")
AT_ONCE = ("--base-ms", "0", "--per-seq-ms", "0", "--prefill-us", "0", "--load-s", "0")
"""A model that takes no time."""


@dataclass(frozen=True)
class Holds:
    """What a gateway has open."""

    files: int
    clients: int
    held: int
    in_flight: int
    gone: int
    """requests whose clients left, since its start"""


class ColdHouse:
    """One installation; its two deployments are `cold` and `other`."""

    cold, other = "cold", "other"

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self.client = Client(home=installation.home)
        self._options: tuple[str, ...] = ()

    @classmethod
    @contextlib.contextmanager
    def up(cls, folder: Path) -> "Iterator[ColdHouse]":
        """`moor up` and, at the end, `moor down`."""
        installation = Installation(folder / "home")
        installation.up()
        house = cls(installation)
        try:
            yield house
        finally:
            house.client.close()
            installation.down()

    @property
    def port(self) -> int:
        """The gateway's."""
        return self._installation.gateway

    def apply_other(self) -> None:
        """The one that serves all the time."""
        self.client.deployments.apply(self._spec(self.other, AT_ONCE)).wait("live", timeout_s=PATIENCE_S)

    def apply(self, *options: str, max_queue: int, comments: str = "1s") -> None:
        """The one that sleeps; one replica at most, which answers 64 at once.

        Args:
            options: of the model server; none: as they were.
            comments: how often a held stream is told that it waits.
        """
        self._options = options or self._options
        gateway = {"max_queue": max_queue, "queue_timeout": "120s", "max_in_flight": 64, "hold_comments": comments}
        spec = self._spec(self.cold, self._options, gateway=gateway, replicas={"min": 0, "max": 1, "initial": 0})
        self.client.deployments.apply(spec)
        until(self._gateway_knows_it, "the gateway to know it")

    def _spec(self, name: str, options: tuple[str, ...], **parts: Any) -> Path:
        command = [sys.executable, MODEL, "--model", name, "--port", "{port}", *options]
        return self._installation.spec(name, runtime={"command": command}, **parts)

    def _gateway_knows_it(self) -> bool:
        listed = httpx.get(f"http://127.0.0.1:{self.port}/v1/models", timeout=PATIENCE_S, verify=False).json()["data"]
        return self.cold in [model["id"] for model in listed]

    def to_sleep(self) -> None:
        """Put it to sleep, unless it sleeps; its model server is gone then."""
        if self._phase() == "SCALED_TO_ZERO":
            return
        until(lambda: self._phase() == "ACTIVE", "it to be awake")
        until(self._sleeps, "it to sleep")
        until(lambda: not self._replicas(), "its model server to be gone")

    def _sleeps(self) -> bool:
        """Pause it; what gateways told before the pause may still undo one, as a request that came in would."""
        before = self.counted()["deploy.pause_aborted"]
        self.client.deployments.pause(self.cold)
        until(
            lambda: self._phase() == "SCALED_TO_ZERO" or self.counted()["deploy.pause_aborted"] > before,
            "the pause to be carried out or undone",
        )
        return self._phase() == "SCALED_TO_ZERO"

    def _phase(self) -> str:
        return str(self.client.deployments.get(self.cold)["phase"])

    def _replicas(self) -> list[str]:
        shown = [str(r["status"]) for r in self.client.deployments.replicas(self.cold)]
        return [state for state in shown if state not in ("stopped", "failed")]

    def counted(self) -> Counter[str]:
        """How often each thing happened to it and under it since it was made, by reason code."""
        return Counter(str(e["reason"]["code"]) for e in self.client.deployments.history(self.cold))

    def stats(self, name: str = cold) -> dict[str, Any]:
        """What a model server saw."""
        url = f"http://127.0.0.1:{self.port}/endpoints/{name}/stats"
        return dict(httpx.get(url, timeout=PATIENCE_S, verify=False).json())

    def direct_port(self) -> int:
        """Of the other's model server itself."""
        argv = Path(f"/proc/{self.stats(self.other)['pid']}/cmdline").read_bytes().decode().split("\0")
        return int(argv[argv.index("--port") + 1])

    # --- the gateway's process -------------------------------------------------------------------------------------

    def _pid(self) -> int:
        """Of the worker process that serves."""
        master = self._installation.part_pid("moorage.gateway.main")
        children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
        return int(children[0]) if children else master

    def gateway_cpu_s(self) -> float:
        """CPU seconds of the process that serves, since its start."""
        fields = Path(f"/proc/{self._pid()}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def gateway_holds(self) -> Holds:
        """What it has open now."""
        text = httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE_S, verify=False).text
        of = f'endpoint="{self.cold}"'
        files = len(list(Path(f"/proc/{self._pid()}/fd").iterdir()))
        clients = _value(text, "moorage_gateway_clients", "")
        held, in_flight, gone = (
            _value(text, f"moorage_gateway_{name}{{", of) for name in ("held", "in_flight", "client_gone_total")
        )
        return Holds(files, clients, held, in_flight, gone)

    def settled(self, files_most: int | None = None) -> None:
        """Wait until no client is connected but the one that asks, and at most so many files are open."""
        until(lambda: self.gateway_holds().clients <= 1, "every client to be gone")
        if files_most is not None:
            until(lambda: self.gateway_holds().files <= files_most, "the gateway to close what it does not need")


def _value(metrics: str, name: str, label: str) -> int:
    lines = [line for line in metrics.splitlines() if line.startswith(name) and label in line]
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))
