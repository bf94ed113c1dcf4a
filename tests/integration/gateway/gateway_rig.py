"""Real sockets around a gateway in this process: scripted model servers, a control plane, raw clients."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from moorage.decide.serving.routes import Generation, Limits, RouteSpec, TargetSpec
from moorage.gateway.config import GatewayConfig
from moorage.gateway.serving import Gateway

DEADLINE_S = 90.0


class QuietLog:
    """Keeps what was logged."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, /, **fields: object) -> None:
        self.events.append(event)

    def warning(self, event: str, /, **fields: object) -> None:
        self.events.append(event)


async def until(condition: Callable[[], object], what: str = "condition") -> None:
    """Wait for a condition, with a deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.002)
    assert condition(), what


@dataclass
class Seen:
    """One request as a model server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    raw_head: bytes
    body: bytes


Handler = Callable[[Seen, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool | None]]


def reply(body: bytes = b"ok", status: int = 200, extra: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body


async def answer_ok(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(reply())


@dataclass
class ModelServer:
    """A scripted upstream. A handler that returns False closes the connection."""

    handler: Handler = answer_ok
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    closed: int = 0
    port: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self, port: int = 0) -> "ModelServer":
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        self.server.close()
        for writer in list(self.writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                seen = await self._read(head, reader)
                self.seen.append(seen)
                go_on = await self.handler(seen, reader, writer)
                await writer.drain()
                if go_on is False:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed += 1
            self.writers.discard(writer)
            writer.close()

    async def _read(self, head: bytes, reader: asyncio.StreamReader) -> Seen:
        lines = head.decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ", 2)
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:] if line)}
        body = b""
        if "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding") == "chunked":
            while True:
                size = int((await reader.readline()).strip(), 16)
                body += await reader.readexactly(size)
                await reader.readline()
                if size == 0:
                    break
        return Seen(method, path, headers, head, body)

    def target(self, replica: str = "r-1", revision: str = "rev-1", **kw: object) -> TargetSpec:
        return TargetSpec(replica=replica, revision=revision, host="127.0.0.1", port=self.port, **kw)  # type: ignore[arg-type]


@dataclass
class Rig:
    """A gateway and what tests need of it."""

    gateway: Gateway
    host: str
    port: int
    number: int = 0

    @property
    def router(self):  # type: ignore[no-untyped-def]
        return self.gateway.hub.router

    def apply(self, *routes: RouteSpec) -> bool:
        self.number += 1
        return self.gateway.hub.apply(Generation("store-1", self.number), routes)

    def serve(self, *servers: ModelServer, name: str = "m", mode: str = "serve", **limits: object) -> None:
        targets = tuple(server.target(f"r-{i}") for i, server in enumerate(servers))
        self.apply(RouteSpec(name=name, mode=mode, targets=targets, limits=Limits(**limits)))  # type: ignore[arg-type]

    async def connect(self) -> "Client":
        return Client(*await asyncio.open_connection(self.host, self.port))

    async def ask(self, request: bytes) -> "Answer":
        client = await self.connect()
        try:
            client.send(request)
            return await client.answer()
        finally:
            client.close()


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, str]:
        return json.loads(self.body)["error"]


class Client:
    """A raw HTTP/1.1 client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def close(self) -> None:
        self.writer.transport.abort()

    async def head(self) -> Answer:
        async with asyncio.timeout(DEADLINE_S):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        lines = raw.decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:] if line)}
        return Answer(int(lines[0].split(" ")[1]), headers, b"")

    async def answer(self) -> Answer:
        head = await self.head()
        async with asyncio.timeout(DEADLINE_S):
            if "content-length" in head.headers:
                head.body = await self.reader.readexactly(int(head.headers["content-length"]))
            elif head.headers.get("transfer-encoding") == "chunked":
                while True:
                    size = int((await self.reader.readuntil(b"\r\n")).strip(), 16)
                    head.body += await self.reader.readexactly(size)
                    await self.reader.readexactly(2)
                    if size == 0:
                        break
            elif head.status not in (100, 204, 304):
                head.body = await self.reader.read()
        return head

    async def rest(self) -> bytes:
        """Everything until the gateway closes."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()


def post(model: str = "m", path: str = "/v1/chat/completions", extra: str = "", **fields: object) -> bytes:
    body = json.dumps({"model": model, **fields}).encode()
    return f"POST {path} HTTP/1.1\r\nHost: g\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body


def get(path: str, extra: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: g\r\n{extra}\r\n".encode()


@asynccontextmanager
async def running_gateway(state_dir: Path, **settings: object):  # type: ignore[no-untyped-def]
    """A gateway on a free port. Without `server_url` its control plane does not answer."""
    values = {"server_url": "http://127.0.0.1:9", "token": "tok", "gateway_id": "g-1", "port": 0}
    values |= {"allowed_hosts": ("g", "h", "any"), **settings}
    gateway = Gateway(GatewayConfig(state_dir=state_dir, **values), QuietLog())  # type: ignore[arg-type]
    await gateway.start()
    gateway.hub.leased_until = float("inf")  # but where a test is about the end of the lease
    host, _, port = gateway.address.rpartition(":")
    rig = Rig(gateway, host, int(port))
    try:
        yield rig
    finally:
        gateway.hub.stop()
        await gateway.stop()
