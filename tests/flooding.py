"""A thousand clients at once, each with a connection of its own; and one that asks at an even pace. For benchmarks too.

    python -m tests.flooding --port PORT --model cold --count 1000 [--streams 500] [--leave 500] [--retry]

As a command it is a flood in a process of its own, so that it takes no time from who measures beside it; what came of
it is one line of JSON. Every client connects before anybody asks; then all ask in one go.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from tests.asking import Client, chat, once, percentile

TRIES_MAX = 100
STRIDE = 7
"""By which the lengths of answers follow each other: a batch of which all end in one step has a rhythm that no real one
has."""


@dataclass
class Flooded:
    """What came of a flood; seconds.

    Args:
        right: clients that got their own whole answer.
        wrong: what the others got, some of them.
        refused: connections that were not made, or broke before an answer.
        left: clients that closed while they waited.
        first: how many first answers had which status.
        told: each Retry-After of a first answer.
        tries: how many requests each client sent that was answered rightly, as number -> clients.
        waits: from each first request to the right answer: p50, p99, the longest.
    """

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: int = 0
    left: int = 0
    comments: int = 0
    first: dict[str, int] = field(default_factory=dict)
    told: list[float] = field(default_factory=list)
    tries: dict[str, int] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    sent_within_s: float = 0.0


class Flood:
    """The clients of one flood."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._came: Flooded = Flooded()
        self._first: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()
        self._waits: list[float] = []
        self._go = asyncio.Event()
        self._commented: list[Client] = []

    async def run(self) -> Flooded:
        """Connect, ask, wait for everybody."""
        options, came = self._options, self._came
        clients = [asyncio.create_task(self._connected()) for _ in range(options.count)]
        ready = [client for client in await asyncio.gather(*clients) if client is not None]
        loop = asyncio.get_running_loop()
        began = loop.time()
        tasks = [asyncio.create_task(self._client(number, client)) for number, client in enumerate(ready)]
        came.sent_within_s = loop.time() - began
        await asyncio.gather(*tasks)
        came.first, came.tries = dict(self._first), dict(self._tries)
        came.waits = [percentile(self._waits, share) for share in (0.5, 0.99, 1.0)]
        return came

    async def _connected(self) -> Client | None:
        try:
            return await Client.connected(self._options.port)
        except OSError as error:
            self._came.refused += 1
            self._came.wrong.append(repr(error))
            return None

    async def _client(self, number: int, client: Client) -> None:
        options, came = self._options, self._came
        loop = asyncio.get_running_loop()
        leaves = number < options.leave
        user = f"{'leaver' if leaves else 'user'}-{number}"
        tokens = options.tokens // 2 + number * STRIDE % (options.tokens + 1)
        request = chat(options.model, user, tokens=tokens, stream=leaves or number < options.streams)
        began = loop.time()
        if leaves:
            return await self._leave(client, request)
        answer = await client.ask(request)
        self._first[str(answer.status)] += 1
        came.refused += answer.error is not None
        came.comments += answer.comments
        if answer.status != 200 and answer.retry_after_s is not None:
            came.told.append(answer.retry_after_s)
        tries = 1
        while options.retry and answer.status in (429, 503) and answer.retry_after_s and tries < TRIES_MAX:
            await _wait_for(answer.retry_after_s)
            answer = await once(options.port, request)
            tries += 1
        self._judge(answer.wrong(user, tokens), tries, loop.time() - began)
        client.close()
        return None

    async def _leave(self, client: Client, request: bytes) -> None:
        """Ask for a stream, and go away once it is known that it waits; all in one moment."""
        asked = asyncio.create_task(client.ask(request))
        said = asyncio.create_task(client.commented.wait())
        await asyncio.wait((asked, said), return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            said.cancel()
            self._came.wrong.append(f"one that wanted to leave was answered: {asked.result().body[:100]!r}")
            return
        self._commented.append(client)
        if len(self._commented) == self._options.leave:
            for each in self._commented:
                each.close()
        await asked
        self._came.left += 1

    def _judge(self, wrong: str | None, tries: int, took_s: float) -> None:
        if wrong is not None:
            self._came.wrong.append(wrong)
            return
        self._came.right += 1
        self._tries[str(tries)] += 1
        self._waits.append(took_s)


class Flooding:
    """A flood that runs in a process of its own.

    Args:
        options: of the command, such as `"--leave", "500"`.
    """

    def __init__(self, port: int, model: str, count: int, *options: str) -> None:
        command = [sys.executable, "-m", "tests.flooding", "--port", str(port), "--model", model]
        self._process = subprocess.Popen(
            [*command, "--count", str(count), *options],
            cwd=Path(__file__).resolve().parent.parent,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def over(self) -> bool:
        """Whether everybody has an answer."""
        return self._process.poll() is not None

    def came(self, timeout_s: float = 300.0) -> Flooded:
        """Wait for its end: what came of it."""
        out, _ = self._process.communicate(timeout=timeout_s)
        assert self._process.returncode == 0, f"the flood ended with {self._process.returncode}"
        return Flooded(**json.loads(out))

    def end(self) -> None:
        """End it now, if it still runs."""
        if not self.over:
            self._process.kill()
            self._process.communicate()


@dataclass
class Paced:
    """What one paced client met; seconds each request took."""

    took_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


async def paced(port: int, model: str, every_s: float, over: Callable[[], Any]) -> Paced:
    """One short request each so often, until it is over; one that is slow does not put off the next.

    Args:
        port: of the gateway, or of the model server itself.
    """
    loop = asyncio.get_running_loop()
    out, idle, running = Paced(), list[Client](), set[asyncio.Task[None]]()
    request = chat(model, "pace", tokens=1)

    async def ask() -> None:
        client = idle.pop() if idle else await Client.connected(port)
        answer = await client.ask(request)
        wrong = answer.wrong("pace", 1)
        if wrong is not None:
            out.wrong.append(wrong)
            return
        out.took_s.append(answer.total_s)
        if client.usable:
            idle.append(client)

    at = loop.time()
    while not over():
        task = loop.create_task(ask())
        running.add(task)
        task.add_done_callback(running.discard)
        at = max(at + every_s, loop.time())
        await _wait_for(at - loop.time())
    await asyncio.gather(*running)
    for client in idle:
        client.close()
    return out


async def _wait_for(seconds: float) -> None:
    await asyncio.sleep(seconds)


def main() -> None:
    """Flood, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=4, help="of an answer in the mean; half as many to half more")
    parser.add_argument("--streams", type=int, default=0, help="so many of them ask for a stream")
    parser.add_argument("--leave", type=int, default=0, help="so many close when the first comment of all has come")
    parser.add_argument("--retry", action="store_true", help="who is told Retry-After asks again after it")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        print(json.dumps(asdict(uvloop.run(Flood(options).run()))))


if __name__ == "__main__":
    main()
