"""A runner under test with ports of its own, a clock that tests move, small servers, and waits with a deadline."""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage.runners import ModelRunner, ModelSpec, StateChange
from moorage.runners.shimming.kernel import stat_fields
from tests.ports import free_ports

PATIENCE_S = 90.0
FAKE_MODEL = str(Path(__file__).parents[2] / "servers" / "fake_model.py")

SERVER = """
import http.server, os, signal, sys, time
port, state, *options = sys.argv[1:]
def end(*_):
    print("asked to end", flush=True)
    while "holds-its-stop" in options and not os.path.exists(state + ".let-go"):
        time.sleep(0.01)
    os._exit(9 if "crash-in-stop" in options else 0)
if "deaf" in options:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGHUP, end)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            status, body = open(state).read().split(" ", 1)
        except FileNotFoundError:
            status, body = "200", '{"status": "ok"}'
        self.send_response(int(status))
        self.end_headers()
        self.wfile.write(body.encode())
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    allow_reuse_address = True
print("serving", flush=True)
Server(("127.0.0.1", int(port)), Handler).serve_forever()
"""
"""Answers every GET with what a file says now (`STATUS BODY`), else as healthy; may hold its stop until let go."""


class SteppedClock:
    """Short sleeps are real, since real servers need them; a sleep of a second or more ends when the test says so."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return time.time() + self._ahead

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead

    async def sleep(self, seconds: float) -> None:
        if seconds < 1:
            await asyncio.sleep(seconds)
            return
        future = asyncio.get_running_loop().create_future()
        entry = (self.monotonic() + seconds, future)
        self._waiting.append(entry)
        try:
            await future
        finally:
            self._waiting.remove(entry)

    def asleep(self) -> bool:
        """Whether somebody waits for the clock to be moved."""
        return any(not future.done() for _, future in self._waiting)

    def advance(self, seconds: float) -> None:
        self._ahead += seconds
        for due, future in self._waiting:
            if due <= self.monotonic() and not future.done():
                future.set_result(None)


class World:
    """Makes runners and remembers what they told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SteppedClock()
        self.runners: list[ModelRunner] = []
        self.told: list[StateChange] = []
        self._listeners: list[asyncio.Task[None]] = []

    def runner(self, **settings: Any) -> ModelRunner:
        settings = {"ports": free_ports(6), "clock": self.clock, "shutdown_timeout": 5.0, **settings}
        made = ModelRunner(**settings)
        self.runners.append(made)
        events = made.events()

        async def listen() -> None:
            async for change in events:
                self.told.append(change)

        self._listeners.append(asyncio.create_task(listen()))
        return made

    async def close(self) -> None:
        for runner in self.runners:
            end = asyncio.ensure_future(runner.shutdown())
            await asyncio.wait({end}, timeout=PATIENCE_S)
            assert end.done(), [(model.name, model.info(), asyncio.all_tasks()) for model in runner._models.values()]
        for listener in self._listeners:
            await asyncio.wait_for(listener, PATIENCE_S)

    def fake(self, *options: str, **spec: Any) -> ModelSpec:
        """The fake OpenAI server."""
        return ModelSpec([sys.executable, "-u", FAKE_MODEL, "--port", "{port}", *options], **{"model": "fake", **spec})

    def server(self, *options: str, **spec: Any) -> ModelSpec:
        """A server whose health the test sets with `health`."""
        return ModelSpec([sys.executable, "-u", "-c", SERVER, "{port}", str(self.folder / "health"), *options], **spec)

    def health(self, text: str | None) -> None:
        path = self.folder / "health"
        if text is None:
            path.unlink()
        else:
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").rename(path)

    def let_go(self) -> None:
        """Those servers that hold their stop end now."""
        (self.folder / "health.let-go").touch()

    def shell(self, script: str, **spec: Any) -> ModelSpec:
        """No server at all: it runs as soon as it executes. Each start adds a line to `starts`."""
        line = f"echo $$ {{port}} >> {self.folder / 'starts'}; {script}"
        return ModelSpec(["/bin/sh", "-c", line], **{"ready_path": None, **spec})

    def starts(self) -> list[tuple[int, int]]:
        """(pid, port) of each start of a `shell` model."""
        path = self.folder / "starts"
        if not path.exists():
            return []
        rows = [line.split() for line in path.read_text().splitlines()]
        return [(int(pid), int(port)) for pid, port in rows]

    def path_of(self, model: str) -> list[str]:
        """The states that a model was told to be in, in order."""
        return [str(change.target) for change in self.told if change.model == model]


async def until(true: Callable[[], Any]) -> Any:
    """Poll a fact of the system that has no event."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not (found := true()):
        assert asyncio.get_running_loop().time() < deadline, "did not come true"
        await asyncio.sleep(0.005)
    return found


def living(pid: int) -> bool:
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in b"ZX" if fields else False
