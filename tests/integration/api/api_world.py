"""A whole API over a real store: recording control rooms, a clock moved by hand, an ASGI client that streams."""

import asyncio
import heapq
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import FastAPI

from moorage.api.auth import StaticTokens
from moorage.api.deps import ApiDeps
from moorage.domain.changes import Change, Create, Remove, Step, Update
from moorage.domain.nouns import Deployment, Machine, Noun, Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.ports import Store
from moorage.wire.agent import (
    Heartbeat,
    HeartbeatAnswer,
    Join,
    Joined,
    Reconcile,
    ReconcileAnswer,
    Report,
    ReportAnswer,
    Work,
)
from moorage.wire.routing import GatewayReport, GatewayReportAnswer, RoutingTable

DEADLINE_S = 90.0
TOKENS = StaticTokens(admin="the-admin-token", agent_join="the-join-token", gateway="the-gateway-token")


class HandClock:
    """Time that moves only when told."""

    def __init__(self) -> None:
        self.at = 1_800_000_000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self.at + seconds, self._count, wake))
        await wake

    def advance(self, seconds: float) -> None:
        self.at += seconds
        while self._sleepers and self._sleepers[0][0] <= self.at:
            wake = heapq.heappop(self._sleepers)[2]
            if not wake.done():
                wake.set_result(None)

    @property
    def sleeping(self) -> int:
        return sum(not s[2].done() for s in self._sleepers)


async def poll_pause() -> None:
    """Let the loop run on between two steps of a clock that the test moves."""
    await asyncio.sleep(0.002)


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition, with a deadline that only a broken test meets."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.002)


@dataclass
class FakeCommands:
    """Records every order; raises `fails` instead where set."""

    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    fails: Exception | None = None

    @property
    def runs(self) -> "FakeCommands":
        """Orders about runs are recorded with the others."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        async def order(*args: Any, **kw: Any) -> dict[str, Any]:
            self.calls.append((name, args, kw))
            if self.fails is not None:
                raise self.fails
            return {"order": name}

        return order


@dataclass
class FakeMachines:
    """Records messages; `work` waits until `release` is set, and counts how many of its waits were cancelled."""

    seen: list[Any] = field(default_factory=list)
    principals: list[Any] = field(default_factory=list)
    answer: Work | None = None
    release: asyncio.Event = field(default_factory=asyncio.Event)
    waits: Counter[str] = field(default_factory=Counter)

    async def join(self, message: Join, principal: Any) -> Joined:
        self.seen.append(message)
        self.principals.append(principal)
        return Joined(machine=f"mch-{message.name}")

    async def reconcile(self, message: Reconcile) -> ReconcileAnswer:
        self.seen.append(message)
        return ReconcileAnswer(keep=tuple(h.worker for h in message.held), next_seq=7)

    async def heartbeat(self, message: Heartbeat) -> HeartbeatAnswer:
        self.seen.append(message)
        return HeartbeatAnswer(lease_s=12.0)

    async def report(self, message: Report) -> ReportAnswer:
        self.seen.append(message)
        return ReportAnswer(seq=max((r.seq for r in message.reports), default=0))

    async def work(self, machine: str, incarnation: str, after: int, wait_s: float) -> Work | None:
        self.seen.append((machine, incarnation, after, wait_s))
        self.waits["begun"] += 1
        if wait_s == 0:
            return self.answer
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.waits["cancelled"] += 1
            raise
        return self.answer


@dataclass
class FakeGateways:
    seen: list[GatewayReport] = field(default_factory=list)
    answer: RoutingTable | None = None

    async def table(self, incarnation: str | None, after: int, wait_s: float, access: int = 0) -> RoutingTable | None:
        return self.answer

    async def report(self, message: GatewayReport) -> GatewayReportAnswer:
        self.seen.append(message)
        return GatewayReportAnswer(number=9)


@dataclass
class FakeExplain:
    async def why(self, ns: str, name: str) -> dict[str, Any]:
        return {"subject": f"{ns}/{name}", "changes": []}


class CountingStore:
    """A store that counts reads by noun; everything else is the real one's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads: Counter[str] = Counter()

    async def find(self, kind: type[Noun], **kw: Any) -> list[Any]:
        self.reads[kind.kind] += 1
        return await self._store.find(kind, **kw)

    async def get(self, kind: type[Noun], uid: str) -> Any:
        self.reads[kind.kind] += 1
        return await self._store.get(kind, uid)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Rows:
    """Writes rows as the control rooms would."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def create(self, row: Noun, why: Reason | None = None) -> Noun:
        await self.store.commit(Change((Create(row, why or reason("deploy.created")),), actor="person:test"))
        return await self.load(row)

    async def load(self, row: Noun) -> Any:
        found = await self.store.get(type(row), row.uid)
        assert found is not None
        return found

    async def step(self, row: Noun, *edges: tuple[str, str], why: Reason | None = None, **fields: Any) -> Any:
        current = await self.load(row)
        given = why or reason("deploy.created")
        update = Update(
            row.kind,
            row.uid,
            current.version,
            tuple(Step(to, trigger, given) for to, trigger in edges),
            fields,
        )
        await self.store.commit(Change((update,), actor="controller:test"))
        return await self.load(row)

    async def remove(self, row: Noun) -> None:
        current = await self.load(row)
        why = reason("deploy.deleted")
        await self.store.commit(Change((Remove(row.kind, row.uid, current.version, why),), actor="person:test"))

    async def machine(self, name: str) -> Machine:
        made = await self.create(Machine(uid=f"mch-{name}", name=name, host="10.0.0.1"), reason("machine.joined"))
        assert isinstance(made, Machine)
        return made

    async def running_worker(self, uid: str, deployment: Deployment, machine: str) -> Worker:
        run = Run(uid=f"run-{uid}", name=f"{uid}-run", deployment=deployment.uid)
        await self.create(run)
        worker = Worker(uid=uid, name=uid, run=run.uid, deployment=deployment.uid, machine=machine, epoch=1)
        await self.create(worker)
        made = await self.step(
            worker, ("Preparing", "picked_up"), ("Starting", "started"), ("Running", "running"), ready=True
        )
        assert isinstance(made, Worker)
        return made


@dataclass
class Answer:
    """A finished answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Exchange:
    """One request in progress."""

    def __init__(self, app: FastAPI, scope: dict[str, Any], body: list[bytes]) -> None:
        self._body = body
        self._gone = asyncio.Event()
        self.started = asyncio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            piece = self._body.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._body)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
            self.started.set()
        else:
            self.pieces.append(message.get("body", b""))

    @property
    def text(self) -> str:
        return b"".join(self.pieces).decode()

    async def hang_up(self) -> None:
        """The client closes its connection."""
        self._gone.set()
        async with asyncio.timeout(DEADLINE_S):
            await self.task

    async def answer(self) -> Answer:
        """The whole answer."""
        async with asyncio.timeout(DEADLINE_S):
            await self.task
        return Answer(self.status, self.headers, b"".join(self.pieces))


class Client:
    """Speaks ASGI to the app, one piece at a time."""

    def __init__(self, app: FastAPI, token: str | None) -> None:
        self.app = app
        self.token = token

    def open(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        pieces: list[bytes] | None = None,
        headers: dict[str, str] | None = None,
        peer: str = "10.1.1.1",
    ) -> Exchange:
        sent = {"host": "moorage.test:7420", **(headers or {})}
        if self.token is not None:
            sent.setdefault("authorization", f"Bearer {self.token}")
        raw = pieces if pieces is not None else [b"" if body is None else json.dumps(body).encode()]
        if body is not None:
            sent.setdefault("content-type", "application/json")
            sent.setdefault("content-length", str(len(raw[0])))
        route, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": route,
            "raw_path": route.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.lower().encode(), v.encode()) for k, v in sent.items()],
            "client": (peer, 40000),
            "server": ("moorage.test", 7420),
        }
        return Exchange(self.app, scope, list(raw))

    async def ask(self, method: str, path: str, **kw: Any) -> Answer:
        return await self.open(method, path, **kw).answer()

    async def get(self, path: str, **kw: Any) -> Answer:
        return await self.ask("GET", path, **kw)


def events(text: str) -> list[dict[str, Any]]:
    """Data of the server-sent events in a text, in order."""
    out = []
    for block in text.split("\n\n"):
        data = [line[len("data: ") :] for line in block.split("\n") if line.startswith("data: ")]
        if data:
            out.append(json.loads("\n".join(data)))
    return out


def last_id(text: str) -> str:
    """Where a client would go on."""
    return [line[len("id: ") :] for line in text.split("\n") if line.startswith("id: ")][-1]


async def lines_of(source: AsyncIterator[Any], count: int) -> list[Any]:
    """The first items of a stream."""
    out: list[Any] = []
    async with asyncio.timeout(DEADLINE_S):
        async for item in source:
            out.append(item)
            if len(out) == count:
                break
    return out


@dataclass
class World:
    """The API and what it was built of; `conftest` builds it."""

    app: FastAPI
    deps: ApiDeps
    clock: HandClock
    store: CountingStore
    rows: Rows
    commands: FakeCommands
    machines: FakeMachines
    gateways: FakeGateways
    gateway_answers: dict[str, httpx.Response]
    gateway_asked: list[httpx.Request]

    def as_(self, token: str | None) -> Client:
        return Client(self.app, token)

    @property
    def admin(self) -> Client:
        return self.as_(TOKENS.admin)

    async def agent(self, name: str) -> Client:
        return self.as_(await self.deps.credentials.issue_agent(f"mch-{name}", name))
