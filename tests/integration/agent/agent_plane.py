"""A recording control plane for agent tests: speaks the agent protocol over real HTTP and keeps all that it was told.

It holds the sequence numbers it has, ignores what it has, and can be taken away and brought back on the same port,
lose its answers, or ask for a new join.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from moorage.wire.agent import (
    Assignment,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    Joined,
    LogLines,
    LogRequest,
    Reconcile,
    ReconcileAnswer,
    Report,
    ReportAnswer,
    Work,
    WorkerReport,
)
from moorage.wire.giving import IdentityAnswer, SecretsAnswer, SecretsRequest

TOKEN, CREDENTIAL, MACHINE = "join-token", "the-credential", "mch-test"
PATIENCE_S = 90.0


async def until_true(true: Callable[[], Any]) -> None:
    """Wait for a fact of the system that has no event."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not true():
        assert asyncio.get_running_loop().time() < deadline, "did not come true"
        await asyncio.sleep(0.01)


class FakePlane:
    def __init__(self) -> None:
        self.joins: list[Join] = []
        self.bearers: list[str] = []
        self.reconciles: list[Reconcile] = []
        self.heartbeats: list[Heartbeat] = []
        self.reports: list[WorkerReport] = []
        self.arrivals: list[float] = []
        self.duplicates = 0
        self.log_answers: dict[str, LogLines] = {}
        self.assignments: dict[str, Assignment] = {}
        self.log_requests: list[LogRequest] = []
        self.version = 1
        self.removed = False
        self.rejoin = False
        self.stop_at_reconcile: set[str] = set()
        self.on_reconcile: Callable[[], None] = lambda: None
        self.lose_answers = 0
        self.secrets = SecretsAnswer()
        self.identity = IdentityAnswer(why="not set up")
        self.asked: list[SecretsRequest] = []
        self.heartbeat_s = 0.2
        self.held_seq = 0
        self.port = 0
        self._changed = asyncio.Condition()
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # Being there and being away

    async def up(self) -> None:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", self.port))
        self.port = sock.getsockname()[1]
        config = uvicorn.Config(self._app(), log_level="critical", lifespan="off", timeout_graceful_shutdown=0)
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[method-assign]
        self._task = asyncio.create_task(self._server.serve(sockets=[sock]))
        await until_true(lambda: self._server is not None and self._server.started)

    async def away(self) -> None:
        assert self._server is not None
        assert self._task is not None
        self._server.should_exit = self._server.force_exit = True
        await self._task

    # What the control plane wants

    async def want(self, *assignments: Assignment) -> None:
        for assignment in assignments:
            self.assignments[assignment.worker] = assignment
        await self.bump()

    async def drop(self, worker: str) -> None:
        del self.assignments[worker]
        await self.bump()

    async def ask_log(self, request: LogRequest) -> LogLines:
        self.log_requests = [request]
        await self.bump()
        await self.until(lambda: request.id in self.log_answers)
        self.log_requests = []
        return self.log_answers[request.id]

    async def bump(self) -> None:
        self.version += 1
        await self._notify()

    # What it was told

    def of(self, worker: str) -> list[WorkerReport]:
        return [r for r in self.reports if r.worker == worker]

    def path(self, worker: str) -> list[str]:
        return [s.to for r in self.of(worker) for s in r.steps]

    def codes(self, worker: str) -> list[str]:
        return [s.code for r in self.of(worker) for s in r.steps]

    def ready(self, worker: str) -> bool | None:
        said = [r.ready for r in self.of(worker) if r.ready is not None]
        return said[-1] if said else None

    def why_not_ready(self, worker: str) -> list[str]:
        return [r.ready_why["code"] for r in self.of(worker) if r.ready_why is not None]

    def gone(self, worker: str) -> bool:
        return any(r.gone for r in self.of(worker))

    def pid(self, worker: str) -> int:
        return next(int(r.process["pid"]) for r in self.of(worker) if r.process is not None)

    def last(self, worker: str) -> WorkerReport:
        """The report with the newest step."""
        return [r for r in self.of(worker) if r.steps][-1]

    async def until(self, true: Callable[[], Any], timeout_s: float = PATIENCE_S) -> None:
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(true), timeout_s)
            except TimeoutError:
                told = [r.model_dump(exclude_defaults=True) for r in self.reports]
                raise AssertionError(f"did not come true; told so far: {told}") from None

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # The protocol

    def _app(self) -> Starlette:
        base = "/api/v1/agent"
        return Starlette(
            routes=[
                Route(f"{base}/join", self._join, methods=["POST"]),
                Route(f"{base}/reconcile", self._reconcile, methods=["POST"]),
                Route(f"{base}/heartbeat", self._heartbeat, methods=["POST"]),
                Route(f"{base}/report", self._report, methods=["POST"]),
                Route(f"{base}/work", self._work, methods=["GET"]),
                Route(f"{base}/logs/{{id}}", self._logs, methods=["POST"]),
                Route(f"{base}/secrets", self._secrets, methods=["POST"]),
                Route(f"{base}/identity", self._identity, methods=["POST"]),
            ]
        )

    async def _join(self, request: Request) -> Response:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if bearer not in (TOKEN, CREDENTIAL):
            return Response("denied", 401)
        self.bearers.append(bearer)
        self.joins.append(Join.model_validate_json(await request.body()))
        credential = CREDENTIAL if bearer == TOKEN else None
        return await self._answer(Joined(machine=MACHINE, credential=credential, heartbeat_s=self.heartbeat_s))

    async def _reconcile(self, request: Request) -> Response:
        told = Reconcile.model_validate_json(await request.body())
        self.on_reconcile()
        self.reconciles.append(told)
        stop = tuple(h.worker for h in told.held if h.worker in self.stop_at_reconcile)
        keep = tuple(h.worker for h in told.held if h.worker not in stop)
        return await self._answer(ReconcileAnswer(keep=keep, stop=stop, next_seq=self.held_seq + 1))

    async def _heartbeat(self, request: Request) -> Response:
        self.heartbeats.append(Heartbeat.model_validate_json(await request.body()))
        rejoin, self.rejoin = self.rejoin, False
        return await self._answer(HeartbeatAnswer(rejoin=rejoin, removed=self.removed))

    async def _report(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {CREDENTIAL}":
            return Response("denied", 401)
        arrived = asyncio.get_running_loop().time()
        for report in Report.model_validate_json(await request.body()).reports:
            if report.seq <= self.held_seq:
                self.duplicates += 1
                continue
            self.held_seq = report.seq
            self.reports.append(report)
            self.arrivals.append(arrived)
        if self.lose_answers > 0:
            self.lose_answers -= 1
            await self._notify()
            return Response("lost", 500)
        return await self._answer(ReportAnswer(seq=self.held_seq))

    async def _work(self, request: Request) -> Response:
        after, wait_s = int(request.query_params["after"]), float(request.query_params["wait_s"])
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(lambda: self.version > after), wait_s)
            except TimeoutError:
                return Response(status_code=204)
        work = Work(
            version=self.version,
            assignments=tuple(self.assignments.values()),
            logs=tuple(self.log_requests),
            removed=self.removed,
        )
        return await self._answer(work)

    async def _logs(self, request: Request) -> Response:
        self.log_answers[request.path_params["id"]] = LogLines.model_validate_json(await request.body())
        await self._notify()
        return JSONResponse({})

    async def _secrets(self, request: Request) -> Response:
        self.asked.append(SecretsRequest.model_validate_json(await request.body()))
        return await self._answer(self.secrets)

    async def _identity(self, request: Request) -> Response:
        self.asked.append(SecretsRequest.model_validate_json(await request.body()))
        return await self._answer(self.identity)

    async def _answer(self, message: Any) -> Response:
        await self._notify()
        return Response(message.model_dump_json(), media_type="application/json")
