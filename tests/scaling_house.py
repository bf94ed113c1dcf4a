"""An installation with declared GPUs and one deployment that scales from none, on batching model servers.

Used by the acceptance test of autoscaling and by `benchmarks/bench_azure.py`. Times of a spec are in seconds of the
trace; they are divided by the speed, as the model server's are, so that the whole world but the control plane passes
faster: what that takes of its own (a start of a process, a report, a commit) counts `speed` times.
"""

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvloop

from moorage.client import Client
from tests.acceptance.installation import PATIENCE_S, Installation, until
from tests.replaying import Arrival, Replay, Told, told

MODEL = str(Path(__file__).parent / "servers" / "batching_model.py")
NAME = "served"
GPUS = 8
"""Of one replica."""


@dataclass(frozen=True)
class Rules:
    """How it scales; seconds of the trace.

    Args:
        low, high: replicas.
        target: requests in flight or held that one replica is meant for; it has 64 places in its batch.
        load_s: what a start takes.
        options: further ones of the model server.
    """

    speed: float
    low: int = 0
    high: int = 8
    target: float = 24
    up_after_s: float = 10.0
    down_after_s: float = 120.0
    idle_s: float = 120.0
    load_s: float = 60.0
    options: tuple[str, ...] = ()

    def parts(self) -> dict[str, Any]:
        """Of the spec."""

        def span(seconds: float) -> str:
            return f"{max(1, round(seconds / self.speed * 1000))}ms"

        return {
            "resources": {"gpus": GPUS},
            "replicas": {"min": self.low, "max": self.high, "initial": self.low},
            "scaling": {
                "target_in_flight": self.target,
                "up_after": span(self.up_after_s),
                "down_after": span(self.down_after_s),
                "idle_timeout": span(self.idle_s),
            },
            "gateway": {"max_in_flight": 64, "max_queue": 10_000, "queue_timeout": "300s"},
        }


@dataclass
class Replayed:
    """What came of one replay; times in seconds of the trace."""

    wrong: list[str]
    asked: int
    told: Told
    seconds: float
    queued: list[float] = field(default_factory=list)
    """in the gateway"""
    queued_inside: list[float] = field(default_factory=list)
    """in the model server, until it was let into the batch"""
    ttft: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    """of this machine: by how much steps of the model servers came too late"""
    behind_s: float = 0.0
    """of this machine: how late a request was sent at most"""
    began: float = 0.0
    """of this machine, seconds since the epoch"""


class ScalingHouse:
    """One installation; its deployment is `served`."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.client = Client(home=installation.home)

    @classmethod
    @contextlib.contextmanager
    def up(cls, folder: Path, replicas_most: int) -> "Iterator[ScalingHouse]":
        """`moor up` with GPUs for so many replicas and an access log; at the end, `moor down`."""
        gpus = f"{replicas_most * GPUS}xH100:80GiB"
        env = {"MOORAGE_AGENT_GPUS": gpus, "MOORAGE_GATEWAY_ACCESS_LOG": str(folder / "access.log")}
        installation = Installation(folder / "home", extra_env=env)
        installation.up()
        house = cls(installation)
        try:
            yield house
        finally:
            house.client.close()
            installation.down()

    def make(self, rules: Rules, name: str = NAME) -> None:
        """Have the deployment, at its smallest size."""
        options = ("--speed", str(rules.speed), "--load-s", str(rules.load_s), *rules.options)
        command = [sys.executable, MODEL, "--model", name, "--port", "{port}", *options]
        spec = self.installation.spec(name, runtime={"command": command}, **rules.parts())
        self.client.deployments.apply(spec)
        wanted = "SCALED_TO_ZERO" if rules.low == 0 else "ACTIVE"
        until(lambda: self._is(name, wanted, rules.low), f"{name} to be {wanted}")
        until(lambda: self._listed(name), "the gateway to know it")

    def replay(self, rules: Rules, arrivals: Sequence[Arrival], name: str = NAME) -> Replayed:
        """Ask it all."""
        replay = Replay(self.installation.gateway, name, arrivals, rules.speed)
        began = time.time()
        uvloop.run(replay.run())
        ended = time.time()
        happened = told(self.client.deployments.history(name), ended, since=began)
        out = Replayed(replay.wrong, len(arrivals), happened, (ended - began) * rules.speed, began=began)
        out.behind_s = replay.behind_s
        self._measure(out, replay, rules.speed)
        return out

    def told(self, name: str) -> Told:
        """What its history says up to now."""
        return told(self.client.deployments.history(name), time.time())

    def phase(self, name: str) -> str:
        """Its phase."""
        return str(self.client.deployments.get(name)["phase"])

    def _is(self, name: str, phase: str, ready: int) -> bool:
        found = self.client.deployments.get(name)
        return bool(found["phase"] == phase and found["ready_replicas"] >= ready)

    def _listed(self, name: str) -> bool:
        url = f"http://127.0.0.1:{self.installation.gateway}/v1/models"
        return name in [model["id"] for model in httpx.get(url, timeout=PATIENCE_S, verify=False).json()["data"]]

    def _measure(self, out: Replayed, replay: Replay, speed: float) -> None:
        logged = self._logged([a.request_id for a in replay.answers if a is not None and a.request_id])
        for answer in replay.answers:
            if answer is None or answer.error is not None or answer.status != 200:
                continue
            timings = answer.told()["timings"]
            out.ttft.append(answer.ttft_s * speed)
            out.queued_inside.append(timings["queued_ms"] / 1e3 * speed)
            out.late_ms.append(timings["late_ms"])
            out.queued.append(logged[answer.request_id] / 1e3 * speed)

    def _logged(self, ids: list[str]) -> dict[str, float]:
        """Milliseconds that each request waited in the gateway, of its access log."""
        path, wanted = Path(self.installation.extra_env["MOORAGE_GATEWAY_ACCESS_LOG"]), set(ids)

        def all_there() -> dict[str, float] | None:
            files = [file for file in path.parent.glob("access.log*") if file.is_file()]
            lines = [json.loads(line) for file in files for line in file.read_text().splitlines() if line]
            found = {line["id"]: float(line.get("queued_ms", 0.0)) for line in lines}
            return found if wanted <= found.keys() else None

        found: dict[str, float] = until(all_there, "the access log to have every request", PATIENCE_S, every_s=0.5)
        return found
