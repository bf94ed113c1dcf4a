"""What machines say: joining, reconciling, heartbeats and reports, written as they were observed.

A report is laid over the rows by `decide/running/reports`; a stale version means somebody else wrote meanwhile, and
the report is laid over the newer row. Everything answered is durable.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from moorage.control.credentials import Principal, Role
from moorage.control.machines import placed_on, places_on
from moorage.control.work import ANSWERED, WorkBoard
from moorage.decide.decision import Ids
from moorage.decide.running import devices
from moorage.decide.running.adoption import HeldProcess, reconcile
from moorage.decide.running.heartbeats import excused, heard
from moorage.decide.running.reports import Seen, apply, of_deleted
from moorage.domain.catalogue import CATALOGUE
from moorage.domain.changes import Change, Create, Release, Step, Update
from moorage.domain.errors import Conflict, Gone, NotFound, StaleVersion
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import Reason, ReasonClass, reason
from moorage.domain.states import ENDED_WORKER, MachineState, WorkerState
from moorage.ports import Clock, Store
from moorage.wire.agent import (
    Heartbeat,
    HeartbeatAnswer,
    Held,
    Join,
    Joined,
    Reconcile,
    ReconcileAnswer,
    Report,
    ReportAnswer,
    StepReport,
    Work,
    WorkerReport,
)

RAN = frozenset({WorkerState.RUNNING, WorkerState.STALE})
"""States in an agent's ledger that prove that its worker was seen running."""

ATTEMPTS = 20
"""Tries against newer rows before a report is given back to its agent, which sends it again."""

log = structlog.get_logger("moorage.control")


class Observation:
    """The server's side of the agent protocol.

    Args:
        store, clock, ids: outside.
        board: desired sets.
        lease_s, heartbeat_s: told to agents, seconds.
        heard: called with a machine's uid when its lease was renewed or its state changed.
        withdraw: called with a worker's uid, its machine and its epoch the moment a report says that it ended or is
            not ready, before anything is read; returns the deployment that was touched.
        settle: called with that deployment and worker once the report is dealt with: it may have been out of date.
        freed: called when a place came free of which no row tells: an earlier copy of a worker is gone.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        board: WorkBoard,
        *,
        lease_s: float,
        heartbeat_s: float,
        heard: Callable[[str], None],
        withdraw: Callable[[str, str, int], Awaitable[str | None]],
        settle: Callable[[str, str], Awaitable[None]],
        freed: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._board = board
        self._lease_s = lease_s
        self._heartbeat_s = heartbeat_s
        self._heard = heard
        self._withdraw = withdraw
        self._settle = settle
        self._freed = freed

    async def join(self, message: Join, principal: Principal) -> Joined:
        """An agent starts: its machine is made, or goes to Reconciling until it said what it still runs.

        Raises:
            Conflict: another agent holds that name with a good lease.
            Gone: the machine was removed; its agent stops all it holds and exits.
        """
        existing = await self._store.find(Machine, name=message.name)
        machine = next((m for m in existing if m.state is not MachineState.REMOVED), None)
        if principal.role is Role.AGENT:
            machine = await self._store.get(Machine, principal.machine or "")
            if machine is None or machine.state is MachineState.REMOVED:
                raise Gone(
                    f"machine {message.name} was removed from the cluster",
                    code="machine_removed",
                    remedy="make a join token (`POST /api/v1/tokens/join`) and join it anew",
                    target=f"Machine {message.name}",
                )
        elif machine is not None and self._lease_is_good(machine):
            raise Conflict(
                f"a machine named {message.name} is already joined and its lease is good",
                code="machine_name_taken",
                remedy="give this agent another name, or wait until the other one's lease is over",
                retryable=True,
            )
        uid = await (self._create(message) if machine is None else self._rejoin(machine, message))
        self._heard(uid)
        return Joined(machine=uid, heartbeat_s=self._heartbeat_s, lease_s=self._lease_s)

    def _lease_is_good(self, machine: Machine) -> bool:
        return machine.lease_expires_at is not None and machine.lease_expires_at > self._clock.now()

    def _reported(self, message: Join) -> dict[str, Any]:
        now = self._clock.now()
        return {
            "incarnation": message.incarnation,
            "boot_id": message.boot_id,
            "host": message.host,
            "capacity": message.capacity.model_dump(mode="json"),
            "reserve": dict(message.reserve),
            "labels": dict(message.labels),
            "accepts": message.accepts,
            "engines": message.engines,
            "capabilities": message.capabilities,
            "data": message.data,
            "heartbeat_at": now,
            "lease_expires_at": now + self._lease_s,
        }

    async def _create(self, message: Join) -> str:
        uid = self._ids.new("Machine")
        row = Machine(uid=uid, name=message.name, state=MachineState.JOINING, **self._reported(message))
        create = Create(row, reason("machine.joined", host=message.host))
        await self._store.commit(Change((create,), f"machine:{message.name}"))
        return uid

    async def _rejoin(self, machine: Machine, message: Join) -> str:
        unanswered = machine.state in (MachineState.JOINING, MachineState.RECONCILING)
        rebooted = machine.boot_id != message.boot_id or (machine.rebooted and unanswered)
        beats = excused(machine.beats, self._clock.now())
        fields = {**self._reported(message), "rebooted": rebooted, "beats": beats}
        notes = devices.told(machine, fields["capacity"]["gpus"], None).notes
        steps: tuple[Step, ...] = ()
        if machine.state in (MachineState.READY, MachineState.NOT_READY):
            steps = (Step(MachineState.RECONCILING, "rejoined", reason("machine.agent_restarted")),)
        elif machine.state is MachineState.DOWN:
            steps = (Step(MachineState.RECONCILING, "returned", reason("machine.returned")),)
        update = Update("Machine", machine.uid, machine.version, steps, fields, notes=notes)
        await self._store.commit(Change((update,), f"machine:{machine.name}"))
        return machine.uid

    async def reconcile(self, message: Reconcile) -> ReconcileAnswer:
        """Answer what of it to keep, and record the answer; the machine is Ready after it."""
        for _ in range(ATTEMPTS):
            try:
                return await self._reconcile_once(message)
            except StaleVersion:
                continue
        raise StaleVersion("the machine's rows kept changing; send the report again")

    async def _reconcile_once(self, message: Reconcile) -> ReconcileAnswer:
        machine = await self._machine(message.machine, message.incarnation)
        held = [_held(h) for h in message.held]
        places = await places_on(self._store, machine.uid)
        here = await placed_on(self._store, machine.uid, places, lost=True)
        uids = sorted({h.worker for h in held} - {w.uid for w in here})
        rows = [*here, *(await self._store.find(Worker, uid=uids) if uids else ())]
        runs = {r.uid: r for r in await self._store.find(Run, uid=sorted({w.run for w in rows}))} if rows else {}
        if machine.state in (MachineState.DOWN, MachineState.REMOVED):
            raise Conflict("the machine must join first", code="rejoin", retryable=True)
        found = reconcile(machine, held, rows, runs, self._clock.now(), rebooted=machine.rebooted, places=places)
        if found.decision.change is not None:
            await self._store.commit(found.decision.change)
        self._heard(machine.uid)
        return ReconcileAnswer(keep=found.keep, stop=found.stop, next_seq=1)

    async def _machine(self, uid: str, incarnation: str) -> Machine:
        machine = await self._store.get(Machine, uid)
        if machine is None:
            raise NotFound(f"there is no machine {uid}", code="rejoin", remedy="join again")
        if machine.incarnation != incarnation:
            raise Conflict(
                f"another agent of machine {machine.name} joined after this one", code="rejoin", retryable=True
            )
        return machine

    async def heartbeat(self, message: Heartbeat) -> HeartbeatAnswer:
        """Renew the machine's lease; a late machine is Ready again. What it tells of its GPUs and room is news."""
        machine = await self._store.get(Machine, message.machine)
        if machine is None or machine.state is MachineState.REMOVED:
            return HeartbeatAnswer(lease_s=self._lease_s, removed=machine is not None, rejoin=machine is None)
        if machine.incarnation != message.incarnation or machine.state in (MachineState.DOWN, MachineState.JOINING):
            return HeartbeatAnswer(lease_s=self._lease_s, rejoin=True)
        now = self._clock.now()
        steps: tuple[Step, ...] = ()
        if machine.state is MachineState.NOT_READY:
            steps = (Step(MachineState.READY, "heartbeat_back", reason("machine.back")),)
        gpus = None if message.gpus is None else [gpu.model_dump(mode="json") for gpu in message.gpus]
        news = devices.told(machine, gpus, message.pressure)
        fields = {
            "heartbeat_at": now,
            "lease_expires_at": now + self._lease_s,
            "beats": heard(machine.beats, message.workers, message.ages, now),
            **news.fields,
        }
        update = Update("Machine", machine.uid, machine.version, steps, fields, notes=news.notes)
        there = await self._store.find(Worker, machine=machine.uid) if news.concerns_workers else []
        try:
            writes = (update, *devices.worker_updates(news, there))
            await self._store.commit(Change(writes, f"machine:{machine.name}"))
        except StaleVersion:
            return await self.heartbeat(message)
        self._heard(machine.uid)
        return HeartbeatAnswer(lease_s=self._lease_s)

    async def report(self, message: Report) -> ReportAnswer:
        """Write what was seen; workers side by side, each worker's reports in order.

        A removed machine's last agent is still heard: it stops what it holds, and how that ended is the last there is
        to know of it. Its workers were given up, so nothing of it starts anything or takes a place.

        Raises:
            NotFound: there is no such machine.
            Conflict: another incarnation joined, or what it holds is not settled yet (join again).
        """
        ends = [item for item in message.reports if _stops_serving(item)]
        touched = [(await self._withdraw(i.worker, message.machine, i.epoch), i.worker) for i in ends]
        try:
            return await self._report(message)
        finally:
            for deployment, worker in touched:
                if deployment is not None:
                    await self._settle(deployment, worker)

    async def _report(self, message: Report) -> ReportAnswer:
        machine = await self._machine(message.machine, message.incarnation)
        if machine.state not in (*ANSWERED, MachineState.REMOVED):
            raise Conflict(
                f"machine {machine.name} is {machine.state}: it must join and reconcile before it reports",
                code="rejoin",
                retryable=True,
                target=f"Machine {machine.name}",
            )
        by_worker: dict[str, list[WorkerReport]] = {}
        for item in sorted(message.reports, key=lambda r: r.seq):
            by_worker.setdefault(item.worker, []).append(item)
        await asyncio.gather(*(self._report_all(machine, uid, items) for uid, items in by_worker.items()))
        return ReportAnswer(seq=max((r.seq for r in message.reports), default=0))

    async def _report_all(self, machine: Machine, uid: str, items: list[WorkerReport]) -> None:
        for item in items:
            await self._report_one(machine, uid, item)

    async def _report_one(self, machine: Machine, uid: str, item: WorkerReport) -> None:
        for _ in range(ATTEMPTS):
            worker = await self._store.get(Worker, uid)
            if worker is None or worker.epoch != item.epoch:
                if not await self._of_earlier(machine, worker, uid, item):
                    continue
                return
            now = self._clock.now()
            writes = apply(worker, _seen(machine.uid, item, now), now)
            if not writes:
                return
            try:
                await self._store.commit(Change(writes, f"machine:{machine.name}"))
            except StaleVersion:
                continue
            return
        raise StaleVersion(f"worker {uid} kept changing; send the report again")

    async def _of_earlier(self, machine: Machine, worker: Worker | None, uid: str, item: WorkerReport) -> bool:
        """A copy that is not counted (any more): at most its place comes free. False: the row moved meanwhile."""
        now = self._clock.now()
        seen = _seen(machine.uid, item, now)
        writes = of_deleted(uid, seen) if worker is None else apply(worker, seen, now)
        places = await places_on(self._store, machine.uid) if writes else {}
        writes = tuple(w for w in writes if not isinstance(w, Release) or (uid, item.epoch) in places)
        if not writes:
            return True
        try:
            await self._store.commit(Change(writes, f"machine:{machine.name}"))
        except StaleVersion:
            return False
        self._freed()
        return True

    async def work(self, machine: str, incarnation: str, after: int, wait_s: float) -> Work | None:
        """The machine's desired set; see `WorkBoard.work`."""
        return await self._board.work(machine, incarnation, after, wait_s)


def _held(told: Held) -> HeldProcess:
    return HeldProcess(
        worker=told.worker,
        epoch=told.epoch,
        alive=told.alive,
        ran=told.state in RAN,
        ready=told.ready,
        address=told.address,
        process=told.process,
        gpus=told.gpus,
        cpu_milli=told.cpu_milli,
        memory_bytes=told.memory_bytes,
    )


def _stops_serving(item: WorkerReport) -> bool:
    return item.ready is False or any(s.to in ENDED_WORKER for s in item.steps)


def _seen(machine: str, item: WorkerReport, now: float) -> Seen:
    return Seen(
        machine=machine,
        epoch=item.epoch,
        seq=item.seq,
        steps=tuple(Step(s.to, s.trigger, _reason(s), now - max(0.0, s.age_s)) for s in item.steps),
        ready=item.ready,
        ready_why=Reason.from_wire(item.ready_why) if item.ready_why else None,
        address=item.address,
        process=item.process,
        exit_code=item.exit_code,
        log_tail=item.log_tail,
        gone=item.gone,
        rendezvous=item.rendezvous,
        ports=item.ports,
    )


def _reason(step: StepReport) -> Reason:
    """A newer agent may know codes that this server does not; what it saw is kept all the same."""
    if step.code in CATALOGUE:
        try:
            return reason(step.code, **step.params)
        except TypeError:
            log.warning("params of a reported reason do not match", code=step.code, params=step.params)
    text = ", ".join(f"{k}={v}" for k, v in step.params.items())
    return Reason(step.code, ReasonClass.PROGRESS, f"{step.code}({text})", dict(step.params))
