"""What each machine should run now, told by long-poll: its whole set, with a version that rises when it changes.

Level-triggered: an agent that missed ten changes gets the eleventh state. Versions start at the time of this process,
in milliseconds, so that they never repeat across restarts of the control plane.
"""

import asyncio
from collections.abc import Iterable, Mapping

from moorage.control.caches import CacheAsking
from moorage.control.claims import ClaimAsking
from moorage.control.driverelay import DriveRelay
from moorage.control.drives import with_drives
from moorage.control.execrelay import ExecRelay
from moorage.control.inventory import StockAsking
from moorage.control.launches import Gang, assignment, gang_of, needs_others
from moorage.control.logrelay import LogRelay
from moorage.domain.errors import Conflict
from moorage.domain.nouns import Deployment, Machine, Run, Worker
from moorage.domain.states import ACTIVE_WORKER, TERMINAL_RUN, MachineState, WorkerState
from moorage.ports import Clock, Store
from moorage.wire.agent import Assignment, Work

ASSIGNED = (WorkerState.PENDING, *sorted(ACTIVE_WORKER), WorkerState.STOPPING)
UNHEARD = (WorkerState.DOWN,)
"""Lost by its heartbeat alone: its machine still has it, and is to go on with it while its run lives."""

GANGS_KEPT = 256
"""Gangs whose members are remembered; each is asked for by every machine that it is on, a few times in a row."""

ANSWERED = frozenset({MachineState.READY, MachineState.NOT_READY})


class WorkBoard:
    """The desired sets of all machines.

    Args:
        store: where rows are.
        clock: where versions start.
        relay: questions for log lines that travel with the work.
        execs: commands to be run beside workers, likewise.
        copies: of drives that other machines wait for, likewise.
        caches: questions about the models that machines keep, likewise.
        stock: questions for what is really on a machine, likewise.
        claims: questions about servers that somebody else started, likewise.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        relay: LogRelay,
        execs: ExecRelay | None = None,
        copies: DriveRelay | None = None,
        *,
        stock: StockAsking | None = None,
        caches: CacheAsking | None = None,
        claims: ClaimAsking | None = None,
    ) -> None:
        self._store = store
        self._copies = copies
        self._stock = stock
        self._caches = caches
        self._claims = claims
        self._relay = relay
        self._execs = execs
        self._base = int(clock.now() * 1000)
        self._versions: dict[str, int] = {}
        self._gangs: dict[str, Gang] = {}
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        relay.on_change = self.bump_soon
        if execs is not None:
            execs.on_change = self.bump_soon
        if copies is not None:
            copies.on_change = self.bump_soon
        if caches is not None:
            caches.on_change = self.bump_soon
        if stock is not None:
            stock.on_change = self.bump_soon
        if claims is not None:
            claims.on_change = self.bump_soon

    def bump_soon(self, machine: str) -> None:
        """The machine's set, or a question to it, changed; ends its long-poll."""
        self._versions[machine] = self._version(machine) + 1
        task = asyncio.create_task(self._tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _version(self, machine: str) -> int:
        return self._versions.get(machine, self._base)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def work(self, machine: str, incarnation: str, after: int, wait_s: float) -> Work | None:
        """The machine's set, or None when it is still `after` when `wait_s` seconds are over.

        Raises:
            Conflict: the machine is unknown, or its incarnation is not the one that joined last (join again).
        """
        if self._version(machine) == after:
            try:
                async with asyncio.timeout(wait_s), self._changed:
                    await self._changed.wait_for(lambda: self._version(machine) != after)
            except TimeoutError:
                return None
        version = self._version(machine)
        row = await self._store.get(Machine, machine)
        if row is None or row.state is MachineState.REMOVED:
            return Work(version=version, removed=True)
        if row.incarnation != incarnation or row.state not in ANSWERED:
            raise Conflict(
                f"machine {row.name} must join and reconcile before it gets work",
                code="rejoin",
                retryable=True,
                target=f"Machine {row.name}",
            )
        logs = self._relay.pending(machine, afresh=after == 0)
        self._relay.sent(q.id for q in logs)
        execs = self._execs.pending(machine) if self._execs is not None else ()
        drives = self._copies.pending(machine) if self._copies is not None else ()
        stock = self._stock.pending(machine) if self._stock is not None else ()
        caches = self._caches.pending(machine) if self._caches is not None else ()
        claims = self._claims.pending(machine) if self._claims is not None else ()
        return Work(
            version=version,
            assignments=await self._assignments(machine),
            logs=logs,
            execs=execs,
            drives=drives,
            inventories=stock,
            caches=caches,
            claims=claims,
        )

    async def _assignments(self, machine: str) -> tuple[Assignment, ...]:
        workers = await self._store.find(Worker, machine=machine, state=(*ASSIGNED, *UNHEARD))
        if not workers:
            return ()
        runs = await with_drives(self._store, await self._store.find(Run, uid=sorted({w.run for w in workers})))
        owners = sorted({r.deployment for r in runs.values() if r.deployment})
        deployments = {d.uid: d for d in await self._store.find(Deployment, uid=owners)} if owners else {}
        told = [w for w in sorted(workers, key=lambda w: w.uid) if w.run in runs and _assigned(w, runs[w.run])]
        gangs = await self._gangs_of(told, runs)
        return tuple(
            assignment(w, runs[w.run], deployments.get(runs[w.run].deployment or ""), gangs.get(w.uid)) for w in told
        )

    async def _gangs_of(self, told: Iterable[Worker], runs: Mapping[str, Run]) -> dict[str, Gang]:
        """By worker, its whole gang, where it is needed."""
        out: dict[str, Gang] = {}
        for worker in told:
            run = runs[worker.run]
            if not needs_others(worker, run):
                continue
            gang = self._gangs.get(run.uid)
            if gang is None or (worker.uid, worker.epoch) not in gang.members:
                gang = await self._read_gang(run)
            out[worker.uid] = gang
        return out

    async def _read_gang(self, run: Run) -> Gang:
        workers = await self._store.find(Worker, run=run.uid)
        uids = sorted({w.machine for w in workers if w.machine})
        machines = {m.uid: m for m in await self._store.find(Machine, uid=uids)} if uids else {}
        gang = gang_of(run, workers, machines)
        if all(w.go for w in workers):  # from then on its members stay where they are for as long as these epochs last
            self._gangs[run.uid] = gang
            while len(self._gangs) > GANGS_KEPT:
                del self._gangs[next(iter(self._gangs))]
        return gang


def _assigned(worker: Worker, run: Run) -> bool:
    """Whether the machine is to have it: not what was lost with it, nor lost work of a run that is over."""
    if worker.state is not WorkerState.DOWN:
        return True
    return worker.handed_over and run.state not in TERMINAL_RUN and not run.deleting and run.cancel is None
