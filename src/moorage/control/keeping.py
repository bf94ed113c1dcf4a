"""The scheduler's book, kept up from the change feed: what a row of the feed names is loaded again, nothing else.

Built whole at the start of a leadership, after a placement that turned out to be stale, when something changed of which
no row tells, and every ten minutes. Called by `control/scheduling`; `control/loops` tells it of the feed's rows.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moorage.control.drives import with_drives
from moorage.decide.scheduling.book import Book, room_of
from moorage.decide.scheduling.queued import Queue
from moorage.decide.scheduling.snapshot import Room, labels_of, owners_of
from moorage.domain.changes import Change, HistoryRow, Update
from moorage.domain.nouns import Deployment, Machine, Namespace, Run, Worker
from moorage.domain.states import DeploymentStatus, MachineState, WorkerState
from moorage.ports import Clock, Store

REBUILD_S = 600.0
"""The net under the feed. Building it for 10,000 runs takes half a second of CPU: a thousandth of a core."""

MACHINES_AT_ONCE = 32
"""Machines whose holdings are read one by one; of more, all holdings are read at once."""

LOST_S = 3600.0
"""What failed longer ago keeps no room any more: back-offs end after five minutes."""

Holding = Mapping[str, Any]


class FleetKeeper:
    """Keeps one book.

    Args:
        store, clock: outside.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.following = False
        """the feed is told here; without it each book is built whole"""
        self._built_at: float | None = None
        self._book = Book()
        self._runs: dict[str, Run] = {}
        self._held: dict[str, list[Holding]] = {}
        self._where: dict[str, str] = {}
        """worker -> the machine on which something is held for it"""
        self._machines: set[str] = set()
        self._workers: set[str] = set()
        self._changed_runs: set[str] = set()
        self._drives = False
        """a run in the book uses a drive"""
        self._reading = asyncio.Lock()

    # What changed

    def note(self, rows: Sequence[HistoryRow]) -> None:
        """Rows of the feed."""
        for row in rows:
            if row.object_kind == Worker.kind:
                self._workers.add(row.object_uid)
            elif row.object_kind == Run.kind:
                self._changed_runs.add(row.object_uid)
            elif row.object_kind == Machine.kind:
                self._machines.add(row.object_uid)
                if self._drives:
                    self.doubt()  # a drive on it may be usable now, or not any more, by work that goes elsewhere
            elif row.object_kind == Namespace.kind:
                self.doubt()  # every worker of it may be waiting for something else now

    def wrote(self, changes: Iterable[Change]) -> None:
        """The scheduler's own changes are on disk; the feed will say so later."""
        workers, runs = self._workers.add, self._changed_runs.add
        for change in changes:
            for write in change.writes:
                if isinstance(write, Update):
                    (workers if write.kind == Worker.kind else runs)(write.uid)

    def heard(self, machine: str) -> None:
        """A machine reported something of which no row tells (pressure, the health of its GPUs)."""
        self._machines.add(machine)

    def doubt(self) -> None:
        """Build it whole next time."""
        self._built_at = None

    # The book

    async def book(self) -> Book:
        """The book as of now. It changes with the next call: who asks is done with it before awaiting anything else.

        Besides the scheduler, questions of people read it, one at a time: reading 10,000 waiting runs for each of them
        would cost seconds.
        """
        async with self._reading:
            now = self._clock.monotonic()
            if self._built_at is None or not self.following or now - self._built_at >= REBUILD_S:
                self._forget_news()
                await self._build()
                self._built_at = now
            else:
                await self._catch_up()
            return self._book

    async def kept(self) -> Book | None:
        """The book where it is kept up from the feed, as `book`; None where this process does not lead."""
        return await self.book() if self.following else None

    def _forget_news(self) -> None:
        self._machines, self._workers, self._changed_runs = set(), set(), set()

    async def _build(self) -> None:
        waiting = await self._store.find(Worker, state=WorkerState.PENDING)
        lost = await self._store.find(Worker, state=(WorkerState.FAILED, WorkerState.DOWN)) if waiting else []
        await self._load_all_held()
        known = {w.uid: w for w in (*waiting, *lost)}
        missing = sorted({str(h["worker"]) for here in self._held.values() for h in here} - known.keys())
        known |= {w.uid: w for w in (await self._store.find(Worker, uid=missing) if missing else ())}
        self._runs, self._book, self._drives = {}, await self._new_book(), False
        await self._load_runs({w.run for w in known.values()})
        for machine in await self._store.find(Machine):
            self._put_machine(machine, known)
        await self._put_workers(known.values())

    async def _new_book(self) -> Book:
        """An empty one, with what is set about namespaces."""
        namespaces = await self._store.find(Namespace)
        pools = {n.name: labels_of(n.machines) for n in namespaces if n.machines}
        return Book(queue=Queue(pools=pools), limits={n.name: dict(n.limits) for n in namespaces if n.limits})

    async def _catch_up(self) -> None:
        workers, runs, machines = self._workers, self._changed_runs, self._machines
        self._forget_news()
        try:
            await self._apply(workers, runs, machines)
        except BaseException:
            self.doubt()  # what was noted is not known any more
            raise

    async def _apply(self, workers: set[str], runs: set[str], machines: set[str]) -> None:
        book = self._book
        runs &= self._runs.keys()
        concerned = workers | set(self._of_runs(runs))
        rows = {w.uid: w for w in (await self._store.find(Worker, uid=sorted(concerned)) if concerned else ())}
        await self._load_runs({w.run for w in rows.values()} | runs)
        touched = {w.machine for w in rows.values() if w.machine is not None} | {
            book.fleet.room(h.spot.row).machine.uid for uid in concerned if (h := book.holders.get(uid)) is not None
        }
        await self._load_held(touched | machines)
        others = {str(h["worker"]) for uid in touched | machines for h in self._held.get(uid, ())} - rows.keys()
        known = dict(rows)
        new = sorted(uid for uid in others if book.holders.get(uid) is None)
        known |= {w.uid: w for w in (await self._store.find(Worker, uid=new) if new else ())}
        await self._load_runs({w.run for w in known.values()} - self._runs.keys())
        for machine in await self._store.find(Machine, uid=sorted(touched | machines)) if touched | machines else ():
            self._put_machine(machine, known)
        for uid in concerned - rows.keys():
            book.forget(uid)
        await self._put_workers(known.values())

    def _of_runs(self, runs: Iterable[str]) -> Iterable[str]:
        """Workers in the book of these runs: what waits of them is looked at with the run as it is now."""
        wanted = set(runs)
        if not wanted:
            return []
        held = (uid for run in wanted for uid in self._book.holders.by_run.get(run, {}))
        waiting = (entry.worker.uid for run in wanted for entry in self._book.queue.of_run(run))
        return [*held, *waiting]

    async def _load_runs(self, uids: set[str]) -> None:
        found = await self._store.find(Run, uid=sorted(uids)) if uids else []
        self._runs |= await with_drives(self._store, found)
        self._drives = self._drives or any(r.spec.get("drives") for r in found)
        for gone in uids - {r.uid for r in found}:
            self._runs.pop(gone, None)

    async def _load_held(self, machines: set[str]) -> None:
        if len(machines) > MACHINES_AT_ONCE:
            await self._load_all_held()
            return
        for uid in machines:
            self._hold(uid, list(await self._store.holdings(uid)))

    async def _load_all_held(self) -> None:
        self._held, self._where = {}, {}
        for holding in await self._store.holdings():
            self._held.setdefault(str(holding["machine"]), []).append(holding)
        for uid, here in self._held.items():
            self._where |= {str(h["worker"]): uid for h in here}

    def _hold(self, machine: str, here: list[Holding]) -> None:
        """What is held on one machine now, in place of what was."""
        for before in self._held.pop(machine, ()):
            if self._where.get(str(before["worker"])) == machine:
                del self._where[str(before["worker"])]
        if here:
            self._held[machine] = here
            self._where |= {str(h["worker"]): machine for h in here}

    def _put_machine(self, machine: Machine, rows: Mapping[str, Worker]) -> None:
        if machine.state is MachineState.REMOVED:
            self._hold(machine.uid, [])
        held = self._held.get(machine.uid, [])
        if self._book.limits:
            self._book.usage.put(machine.uid, held)
        owners = (self._owners(str(h["worker"]), rows) for h in held)
        self._book.room(room_of(Room(machine), held, owners))

    def _owners(self, uid: str, rows: Mapping[str, Worker]) -> tuple[str, ...]:
        holder = self._book.holders.get(uid)
        worker = rows.get(uid) or (holder.worker if holder is not None else None)
        run = self._runs.get(worker.run) if worker is not None else None
        return owners_of(worker, run) if worker is not None and run is not None else ()

    async def _put_workers(self, workers: Iterable[Worker]) -> None:
        replicas: set[str] = set()
        now = self._clock.now()
        for worker in workers:
            run = self._runs.get(worker.run)
            if worker.uid not in self._where and (worker.ended_at or now) < now - LOST_S:
                self._book.forget(worker.uid)
                continue
            self._book.worker(worker, run, self._where.get(worker.uid))
            if worker.uid in self._book.ended and worker.deployment is not None:
                replicas.add(worker.deployment)
        await self._load_retries(replicas | {w.deployment for w in self._book.ended.values() if w.deployment})

    async def _load_retries(self, deployments: set[str]) -> None:
        """When the deployments of failed replicas make replacements; of those that make none, nothing is kept."""
        found = await self._store.find(Deployment, uid=sorted(deployments)) if deployments else []
        going = {d.uid: d for d in found if d.status is DeploymentStatus.CREATED and not d.deleting}
        for worker in [w for w in self._book.ended.values() if w.deployment and w.deployment not in going]:
            self._book.forget(worker.uid)
        self._book.retry_at = {uid: d.retry_at for uid, d in going.items() if d.retry_at is not None}
