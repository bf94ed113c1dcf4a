"""Whole control planes in this process over one real database, with a clock that tests move.

A `Plane` is the production graph: store, leadership, loops, commands, agent protocol and routing. Two planes on one
database are two control planes. Nothing is replaced but the clock.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx

from moorage.app.server import RandomIds
from moorage.control.admit import Admission
from moorage.control.comparing import Comparing
from moorage.control.credentials import Principal, Role
from moorage.control.gateways import Gateways
from moorage.control.leader import Leadership
from moorage.control.logrelay import LogRelay
from moorage.control.loops import Loops
from moorage.control.machines import MachinesStep
from moorage.control.observe import Observation
from moorage.control.routing import Publisher
from moorage.control.running import RunsStep
from moorage.control.scheduling import SchedulingStep
from moorage.control.serving import ServingStep
from moorage.control.work import WorkBoard
from moorage.decide.running.liveness import LeaseTimes
from moorage.domain.nouns import Deployment, Noun, Replica, Worker
from moorage.domain.states import TERMINAL_REPLICA
from moorage.store import open_store
from moorage.wire.agent import (
    Assignment,
    Capacity,
    Gpu,
    Heartbeat,
    Held,
    Join,
    Reconcile,
    ReconcileAnswer,
    Report,
    StepReport,
    WorkerReport,
)
from moorage.wire.routing import EndpointActivity, GatewayReport, RoutingTable

T = TypeVar("T")
N = TypeVar("N", bound=Noun)
LIMIT_S = 90.0
"""Real seconds in which a condition must come true; only a broken test or control plane meets it."""

STEPS = (
    StepReport(to="Preparing", trigger="picked_up", code="prepare.started"),
    StepReport(to="Starting", trigger="started", code="container.started"),
    StepReport(to="Running", trigger="running", code="container.running"),
)
CRASH = StepReport(to="Failed", trigger="exited_nonzero", code="exited", params={"code": 137, "signal": 9})
EXIT_0 = StepReport(to="Completed", trigger="exited_zero", code="exited", params={"code": 0})
CANCELLED = StepReport(to="Cancelled", trigger="stop_confirmed", code="stop.confirmed")


class HandClock:
    """Stands still until it is moved; wall and monotonic time move together."""

    def __init__(self) -> None:
        self._now = time.time()
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), waker))
        await waker

    def advance(self, seconds: float) -> None:
        """Time passes; whoever slept so long wakes up."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            waker = heapq.heappop(self._sleepers)[2]
            if not waker.done():
                waker.set_result(None)


async def until(ask: Callable[[], Awaitable[T]], what: str) -> T:
    """The first answer that is true."""
    try:
        async with asyncio.timeout(LIMIT_S):
            while True:
                found = await ask()
                if found:
                    return found
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {LIMIT_S} s: {what}") from None


class Plane:
    """One control plane."""

    def __init__(self, clock: HandClock, owner: str) -> None:
        self.clock = clock
        self.owner = owner
        self.leading: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        path: Path,
        clock: HandClock,
        owner: str = "home:a",
        *,
        lead: bool = True,
        http: httpx.AsyncClient | None = None,
    ) -> "Plane":
        """With `http`, requests are sent to revisions that are compared, as the control plane does."""
        plane = cls(clock, owner)
        store = plane.store = await open_store(f"sqlite:///{path}/m.db", clock)
        ids = RandomIds()
        plane.gateways = Gateways(store, clock, store.incarnation)
        await plane.gateways.load()
        plane.publisher = Publisher(store, clock, plane.gateways, store.incarnation)
        plane.leadership = Leadership(store, clock, owner)
        plane.board = WorkBoard(store, clock, LogRelay(clock, lambda: ids.new("Operation")))
        plane.scheduling = SchedulingStep(store, clock)
        plane.loops = Loops(
            store,
            clock,
            publisher=plane.publisher,
            board=plane.board,
            serving=ServingStep(store, clock, ids, plane.publisher, lambda: plane.leadership.lease),
            runs=RunsStep(store, clock, ids),
            scheduling=plane.scheduling,
            machines=MachinesStep(store, clock, LeaseTimes()),
            comparing=Comparing(store, clock, http, plane.publisher) if http is not None else None,
            ttl_s=30.0,
        )
        plane.machines = Observation(
            store,
            clock,
            ids,
            plane.board,
            lease_s=30.0,
            heartbeat_s=10.0,
            heard=plane.loops.heard,
            withdraw=plane.publisher.withdraw,
            settle=plane.publisher.settle,
        )
        plane.commands = Admission(store, clock, ids)
        if lead:
            plane.lead()
            await until(plane._leads, "leadership")
        return plane

    async def _leads(self) -> bool:
        return self.leadership.fence is not None

    def lead(self) -> None:
        """Compete for the control lease from now on."""
        self.leading = asyncio.create_task(self.leadership.lead(self.loops.run))

    async def die(self) -> None:
        """As kill -9: what was not committed is lost; the lease is not given up."""
        if self.leading is not None:
            self.leading.cancel()
            await asyncio.gather(self.leading, return_exceptions=True)
        await self.store.close()

    # Rows

    async def rows(self, kind: type[N], **equals: Any) -> list[N]:
        return await self.store.find(kind, **equals)

    async def deployment(self, name: str = "gemma") -> Deployment | None:
        found = await self.rows(Deployment, name=name)
        return found[0] if found else None

    async def codes(self) -> list[str]:
        return [h.reason.code for h in await self.store.history(limit=10_000)]

    async def replicas(self) -> list[Replica]:
        return [r for r in await self.rows(Replica) if r.status not in TERMINAL_REPLICA]

    async def apply(self, name: str = "gemma", key: str | None = None, **parts: Any) -> dict[str, Any]:
        document = {
            "kind": "Deployment",
            "name": name,
            "runtime": {"command": ["serve", "--port", "{port}"]},
            "model": {"id": name},
            **parts,
        }
        return await self.commands.apply_deployment(
            "default", name, document, actor="person:p", key=key, create_only=False
        )

    async def table(self, mode: str, name: str = "gemma") -> RoutingTable:
        """The first table in which the endpoint has that mode."""

        async def ask() -> RoutingTable | None:
            table = await self.publisher.table(None, -1, 1.0)
            found = [e for e in table.endpoints if e.name == name and e.mode == mode] if table else []
            return table if found else None

        return await until(ask, f"route of {name} is {mode}")

    async def phase_is(self, status: str, name: str = "gemma") -> Deployment:
        async def ask() -> Deployment | None:
            row = await self.deployment(name)
            return row if row is not None and row.status == status else None

        return await until(ask, f"{name} is {status}")


class Agent:
    """A machine's side of the protocol, word for word; survives its control planes."""

    def __init__(self, plane: Plane, name: str = "lab") -> None:
        self.plane = plane
        self.name = name
        self.uid = ""
        self.incarnation = "i1"
        self.seq = 0
        self.last: Report | None = None

    async def join(
        self, gpus: int = 0, cpu_milli: int = 8000, labels: dict[str, str] | None = None, **more: Any
    ) -> "Agent":
        """With a token, holding nothing."""
        found = tuple(Gpu(index=n, model="H100", memory_bytes=80 << 30) for n in range(gpus))
        message = Join(
            name=self.name,
            incarnation=self.incarnation,
            boot_id="b1",
            capacity=Capacity(cpu_milli=cpu_milli, memory_bytes=64 << 30, gpus=found),
            labels=labels or {},
        )
        principal = Principal(Role.AGENT, self.name, self.uid) if self.uid else Principal(Role.JOIN, "join")
        self.uid = (await self.plane.machines.join(message, principal)).machine
        await self.reconcile(**more)
        return self

    async def reconcile(self, *held: Held) -> ReconcileAnswer:
        return await self.plane.machines.reconcile(
            Reconcile(machine=self.uid, incarnation=self.incarnation, boot_id="b1", held=held)
        )

    async def beat(self) -> None:
        await self.plane.machines.heartbeat(Heartbeat(machine=self.uid, incarnation=self.incarnation))

    async def assigned(self, desired: str, *, not_in: tuple[str, ...] = ()) -> Assignment:
        """The first assignment of that kind, by long-poll."""

        async def ask() -> Assignment | None:
            work = await self.plane.machines.work(self.uid, self.incarnation, -1, 1.0)
            found = [a for a in work.assignments if a.desired == desired and a.worker not in not_in] if work else []
            return found[0] if found else None

        return await until(ask, f"{self.name} is to {desired} something")

    async def report(self, told: Assignment, *steps: StepReport, **news: Any) -> None:
        self.seq += 1
        report = WorkerReport(seq=self.seq, worker=told.worker, epoch=told.epoch, steps=steps, **news)
        self.last = Report(machine=self.uid, incarnation=self.incarnation, reports=(report,))
        await self.plane.machines.report(self.last)

    async def say_again(self) -> None:
        """The answer was lost: the same report once more."""
        assert self.last is not None
        await self.plane.machines.report(self.last)

    async def serve(self, *, not_in: tuple[str, ...] = ()) -> Assignment:
        """Pick up what is assigned, start it, and see it ready."""
        told = await self.assigned("run", not_in=not_in)
        await self.report(told, *STEPS, process={"pid": 1})
        await self.report(told, ready=True, address="127.0.0.1:18000")
        return told

    def held(self, told: Assignment) -> Held:
        return Held(worker=told.worker, epoch=told.epoch, alive=True, state="Running", ready=True)


class Gateway:
    """A gateway's side of the protocol."""

    def __init__(self, plane: Plane, name: str = "gw") -> None:
        self.plane = plane
        self.name = name

    async def report(self, table: RoutingTable | None, endpoint: str = "gemma", **activity: Any) -> None:
        seen = (EndpointActivity(name=endpoint, **activity),) if activity else ()
        await self.plane.publisher.report(
            GatewayReport(
                gateway=self.name,
                incarnation="g1",
                table_incarnation=table.incarnation if table else None,
                table_number=table.number if table else 0,
                endpoints=seen,
            )
        )


async def worker_is(plane: Plane, uid: str, *states: str) -> Worker:
    async def ask() -> Worker | None:
        row = await plane.store.get(Worker, uid)
        return row if row is not None and row.state in states else None

    return await until(ask, f"worker {uid} is {' or '.join(states)}")
