"""Arrivals of a real day, or drawn ones, asked of a gateway at their times; and what a history tells of the size.

Used by the acceptance test of autoscaling and by `benchmarks/bench_azure.py`. Here: traces, asking at the times that
they say, sums over the history of a deployment. Not here: the installation, what is printed.

A trace is a CSV file with the columns of the Azure LLM inference trace: TIMESTAMP, ContextTokens, GeneratedTokens.
"""

import asyncio
import csv
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.asking import Answer, Client, chat

OVER = frozenset({"Completed", "Failed", "Cancelled"})


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request; `at_s` seconds after the first."""

    at_s: float
    prompt_tokens: int
    tokens: int


def read(path: Path, *, begin_s: float = 0.0, seconds: float = float("inf")) -> list[Arrival]:
    """A part of a trace, its times counted from the part's beginning."""
    with path.open(newline="") as file:
        rows = [
            (_when(r["TIMESTAMP"]), int(r["ContextTokens"]), int(r["GeneratedTokens"])) for r in csv.DictReader(file)
        ]
    first = rows[0][0]
    times = [((when - first).total_seconds() - begin_s, prompt, tokens) for when, prompt, tokens in rows]
    return [Arrival(at, max(1, p), max(1, t)) for at, p, t in sorted(times) if 0.0 <= at <= seconds]


def _when(text: str) -> datetime:
    return datetime.fromisoformat(text[:26])


def drawn(seed: int, seconds: float, *, busy_s: float = 60.0, idle_s: float = 60.0, rate: float = 5.0) -> list[Arrival]:
    """Bursts and silences of exponential lengths, Poisson within a burst whose rate is drawn too; tokens log-normal.

    Args:
        busy_s, idle_s: mean lengths.
        rate: requests a second within a burst, in the mean.
    """
    rng, at, out = random.Random(seed), 0.0, list[Arrival]()
    while at < seconds:
        end, own = at + rng.expovariate(1 / busy_s), rate * rng.uniform(0.3, 1.7)
        while (at := at + rng.expovariate(own)) < min(end, seconds):
            prompt, tokens = rng.lognormvariate(7.2, 1.0), rng.lognormvariate(2.6, 1.0)
            out.append(Arrival(at, int(min(7500, prompt)) + 1, int(min(500, tokens)) + 1))
        at = end + rng.expovariate(1 / idle_s)
    return out


@dataclass
class Replay:
    """Clients that ask as a trace says, over kept connections, each as many as are free.

    Args:
        speed: how many times as fast as in the trace.
    """

    port: int
    model: str
    arrivals: Sequence[Arrival]
    speed: float
    answers: list[Answer | None] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    behind_s: float = 0.0
    """how late a request was sent at most, seconds of this machine"""
    _idle: list[Client] = field(default_factory=list)

    async def run(self) -> None:
        """Ask all, and wait for the last answer."""
        loop = asyncio.get_running_loop()
        self.answers = [None] * len(self.arrivals)
        began = loop.time()
        tasks = []
        for number, arrival in enumerate(self.arrivals):
            due = began + arrival.at_s / self.speed
            if due > loop.time():
                await _wait_for(due - loop.time())
            self.behind_s = max(self.behind_s, loop.time() - due)
            tasks.append(loop.create_task(self._ask(number, arrival)))
        await asyncio.gather(*tasks)
        for client in self._idle:
            client.close()

    async def _ask(self, number: int, arrival: Arrival) -> None:
        user = f"r{number}"
        request = chat(self.model, user, tokens=arrival.tokens, stream=True, prompt_tokens=arrival.prompt_tokens)
        try:
            answer = await self._sent(request)
        except OSError as error:
            self.wrong.append(f"{user}: {error!r}")
            return
        self.answers[number] = answer
        wrong = answer.wrong(user, arrival.tokens)
        if wrong is not None:
            self.wrong.append(f"{user} after {answer.total_s:.1f} s: {wrong}")

    async def _sent(self, request: bytes) -> Answer:
        while self._idle:
            client = self._idle.pop()
            if client.usable:
                break
            client.close()
        else:
            client = await Client.connected(self.port)
        answer = await client.ask(request)
        if client.usable:
            self._idle.append(client)
        return answer


async def _wait_for(seconds: float) -> None:
    await asyncio.sleep(seconds)


@dataclass
class Told:
    """What the history of a deployment says of its size; seconds of this machine.

    Args:
        codes: how often each thing happened.
        sizes: when its size was decided, and what it was then.
        ready: when one more or one less replica was routed to.
        held_s: of each worker that had a place, for how long.
    """

    codes: Counter[str] = field(default_factory=Counter)
    sizes: list[tuple[float, int]] = field(default_factory=list)
    ready: list[tuple[float, int]] = field(default_factory=list)
    held_s: list[float] = field(default_factory=list)
    useless: int = 0
    """workers that were given a place and ended before they served"""

    @property
    def peak(self) -> int:
        """The largest size that was decided."""
        return max((size for _, size in self.sizes), default=0)


def told(events: Iterable[dict[str, Any]], until: float, *, since: float = 0.0) -> Told:
    """Sum up a history.

    Args:
        events: oldest first.
        until: the moment that counts as the end for who is still there, seconds since the epoch.
        since: what happened before does not count, but who had a place then holds it from this moment on.
    """
    out, placed, served = Told(), dict[str, float](), set[str]()
    for event in events:
        at = datetime.fromisoformat(event["at"].replace("Z", "+00:00")).timestamp()
        code = str(event["reason"]["code"])
        if at >= since:
            out.codes[code] += 1
        if code in ("scale.up", "scale.down"):
            out.sizes.append((at, int(event["reason"]["params"]["to"])))
        elif code == "deploy.wake_request":
            out.sizes.append((at, 1))
        elif code in ("deploy.idle", "deploy.paused_by_person"):
            out.sizes.append((at, 0))
        elif code in ("replica.routed", "replica.withdrawn"):
            out.ready.append((at, 1 if code == "replica.routed" else -1))
        if event["object"]["kind"] == "Worker":
            _worker(out, event, at, placed, served)
    out.held_s += [until - max(at, since) for at in placed.values()]
    return out


def _worker(out: Told, event: dict[str, Any], at: float, placed: dict[str, float], served: set[str]) -> None:
    of = str(event["object"]["id"])
    if event["reason"]["code"] == "worker.placed":
        placed[of] = at
    elif event["reason"]["code"] == "ready.passed":
        served.add(of)
    elif event["to"] in OVER and of in placed:
        out.held_s.append(at - placed.pop(of))
        out.useless += of not in served
