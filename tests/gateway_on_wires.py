"""A gateway between wires in place of sockets: bytes go in at any cut, and what comes out is read by h11.

Here: clients' and replicas' ends of connections, and the reading of what reaches a replica by a strict parser that is
not ours. Used by the hostile cases, the published cases and the fuzzer. A replica's end answers what it was asked by a
function, and notes as `violations` whatever is not exactly one request after the other.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import h11

from moorage.decide.serving.routes import Generation, Limits, RouteSpec, TargetSpec
from moorage.gateway.config import GatewayConfig
from moorage.gateway.frontend import ClientConnection
from moorage.gateway.hub import Hub
from moorage.gateway.upstream import UpstreamConnection

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TURNS = 6
"""of the loop, after which nothing is left to do that was begun by one part"""


@dataclass(frozen=True)
class Request:
    """One request as the replica's parser saw it."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def value(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


Answer = Callable[[Request], Iterable[bytes] | None]
"""Parts of the answer; None: none comes. An empty part is the end of the connection."""


class QuietLog:
    def info(self, event: str, /, **fields: object) -> None: ...

    def warning(self, event: str, /, **fields: object) -> None: ...


@cache
def _spare_socket() -> socket.socket:
    """One that is never readable, for those who look at a transport's socket."""
    ends = socket.socketpair()
    _kept.append(ends[1])
    return ends[0]


_kept: list[socket.socket] = []


class Wire:
    """One end of a connection, as the gateway holds it: an asyncio transport."""

    def __init__(self, world: "World", sink: Callable[[bytes], None]) -> None:
        self._world = world
        self._sink = sink
        self._paused = False
        self._queued: list[bytes] = []
        self.protocol: Any = None
        self.closing = False
        self.lost = False
        self.ended = False
        self.aborted = False

    # --- what the gateway calls ----------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self.closing and not self.ended:
            self._sink(bytes(data))

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self._lose(None)

    def abort(self) -> None:
        self.aborted = self.aborted or not self.closing
        self._lose(None)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        queued, self._queued = self._queued, []
        for data in queued:
            self._world.loop.call_soon(self.give, data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _spare_socket() if name == "socket" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    # --- what the other side does --------------------------------------------------------------------------------

    def give(self, data: bytes) -> None:
        """Bytes arrive."""
        if self.closing:
            return
        if self._paused:
            self._queued.append(data)
        else:
            self.protocol.data_received(data)

    def end(self) -> None:
        """The other side sends no more."""
        if not self.closing and not self.protocol.eof_received():
            self._lose(None)

    def cut(self, error: Exception | None = None) -> None:
        """The connection is lost."""
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if self.closing:
            return
        self.closing = True
        self._world.loop.call_soon(self._tell_lost, error)

    def _tell_lost(self, error: Exception | None) -> None:
        self.lost = True
        self.protocol.connection_lost(error)


class Client:
    """The client's end of one connection."""

    def __init__(self, world: "World") -> None:
        self.got = b""
        self.wire = Wire(world, self._take)
        self.wire.protocol = ClientConnection(world.hub)
        self.wire.protocol.connection_made(self.wire)
        self._world = world

    def send(self, *parts: bytes) -> None:
        for part in parts:
            if part:
                self.wire.give(part)
            self._world.turn()

    def _take(self, data: bytes) -> None:
        self.got += data

    @property
    def statuses(self) -> list[int]:
        """Of the answers that are the gateway's or passed on whole; read by h11."""
        return [status for status, _ in answers(self.got)]


class Replica:
    """The replica's end of one connection."""

    def __init__(self, world: "World", connection: UpstreamConnection) -> None:
        self._world = world
        self._parser = h11.Connection(h11.SERVER)
        self._request: h11.Request | None = None
        self._body = b""
        self.raw = b""
        self.wire = Wire(world, self._take)
        self.wire.protocol = connection
        connection.connection_made(self.wire)  # type: ignore[arg-type]  # a transport in all that is used of it

    @property
    def whole(self) -> bool:
        """Whether nothing of a request lies there of which the rest is missing."""
        return self._request is None and not self._parser.trailing_data[0]

    def _take(self, data: bytes) -> None:
        self.raw += data
        try:
            self._parser.receive_data(data)
            self._read()
        except h11.RemoteProtocolError as error:
            self._world.violations.append(f"not a request: {error}: {self.raw!r}")
            self.wire.cut()

    def _read(self) -> None:
        while True:
            event = self._parser.next_event()
            if isinstance(event, h11.Request):
                self._request, self._body = event, b""
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._arrived()
                return
            else:
                return

    def _arrived(self) -> None:
        assert self._request is not None
        if self._parser.trailing_data[0]:
            self._world.violations.append(f"bytes after the request: {self.raw!r}")
        told, self._request = self._request, None
        headers = tuple((key.decode(), value.decode("latin-1")) for key, value in told.headers)
        request = Request(told.method.decode(), told.target.decode("latin-1"), headers, self._body)
        self._parser = h11.Connection(h11.SERVER)
        self._world.arrived.append(request)
        parts = self._world.answer(request)
        for part in parts if parts is not None else ():
            if part:
                self._world.loop.call_soon(self.give, part)
            else:
                self._world.loop.call_soon(self.wire.cut)

    def give(self, part: bytes) -> None:
        self.wire.give(part)


class _WiredLoop(asyncio.SelectorEventLoop):
    """Connects to wires."""

    world: "World"

    async def create_connection(self, protocol_factory: Callable[[], Any], *where: Any, **how: Any) -> Any:
        connection = protocol_factory()
        replica = Replica(self.world, connection)
        self.world.replicas.append(replica)
        return replica.wire, connection


@dataclass
class World:
    """A gateway with the endpoint `m` of one replica, and everything that happened."""

    answer: Answer = lambda request: [OK]
    settings: dict[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=lambda: Limits(max_in_flight=1000))
    arrived: list[Request] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loop = _WiredLoop()
        self.loop.world = self
        self.loop.set_exception_handler(lambda loop, context: self.errors.append(repr(context)))
        values = {"server_url": "http://c", "token": "tok", "gateway_id": "g", "allowed_hosts": ("*",)}
        config = GatewayConfig(state_dir=Path("/nowhere"), **{**values, **self.settings})  # type: ignore[arg-type]
        self.hub = Hub(config, self.loop, seed=1, id_prefix="req-1", log=QuietLog())
        target = TargetSpec(replica="r-0", revision="rev-1", host="wire", port=1)
        self.hub.apply(Generation("s", 1), [RouteSpec(name="m", mode="serve", targets=(target,), limits=self.limits)])

    def client(self) -> Client:
        return Client(self)

    def turn(self) -> None:
        """Let everything happen that was begun."""
        self.loop.run_until_complete(_turns())

    def close(self) -> None:
        """Everybody goes; afterwards nothing may be left."""
        for replica in self.replicas:
            replica.wire.cut()
        self.turn()
        for client in list(self.hub.clients):
            client.transport.abort()
        self.turn()
        self.loop.close()

    def left_over(self) -> list[str]:
        """What should have gone with the connections."""
        found = [*self.violations, *self.errors]
        for endpoint in self.hub.router.endpoints():
            counts = {"in_flight": endpoint.in_flight, "copies": endpoint.copies, "waiting": len(endpoint.waiting)}
            counts |= {f"at {t.spec.replica}": t.in_flight for t in (*endpoint.targets, *endpoint.leaving)}
            found += [f"{name}: {count}" for name, count in counts.items() if count]
        if self.hub.clients:
            found.append(f"{len(self.hub.clients)} clients")
        return found


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def answers(data: bytes, methods: Iterable[str] = (), *, ended: bool = False) -> list[tuple[int, bytes]]:
    """The answers in what a client got: status and body of each that is whole. Interim ones are left out.

    Args:
        ended: the connection ended after these bytes, as it does after an answer that says no length.

    Raises:
        h11.RemoteProtocolError: these are no answers.
    """
    found: list[tuple[int, bytes]] = []
    asked = iter(methods)
    while data:
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method=next(asked, "GET"), target="/", headers=[("Host", "h")]))
        reader.send(h11.EndOfMessage())
        reader.receive_data(data)
        answer = _answer(reader, ended)
        if answer is None:
            break
        found.append(answer)
        data = bytes(reader.trailing_data[0])
    return found


def _answer(reader: h11.Connection, ended: bool) -> tuple[int, bytes] | None:
    status, body = 0, b""
    while not isinstance(event := reader.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
        elif event is h11.NEED_DATA and ended:
            ended = False
            try:
                reader.receive_data(b"")
                reader.next_event()
            except h11.RemoteProtocolError:
                return None  # ended, but not whole
            return status, body
        elif not isinstance(event, h11.InformationalResponse):
            return None
    return status, body


def read_strictly(raw: bytes) -> list[tuple[str, bytes]]:
    """Method and body of each whole request that h11 reads before the first that it does not take."""
    found: list[tuple[str, bytes]] = []
    raw = raw.lstrip(b"\r\n")
    while raw:
        reader = h11.Connection(h11.SERVER)
        reader.receive_data(raw)
        method, body = "", b""
        try:
            while not isinstance(event := reader.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Request):
                    method = event.method.decode()
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    return found
        except h11.RemoteProtocolError:
            return found
        found.append((method, body))
        raw = bytes(reader.trailing_data[0]).lstrip(b"\r\n")
    return found
