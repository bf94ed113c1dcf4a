"""The runs loop: one run at a time, load → decide → commit. Also which runs a change elsewhere concerns.

What to do is decided in `decide/running/cycle`, and for a run with a schedule in `decide/running/schedules`. Runs
behind replicas are followed by the serving loop and never come here.

Many runs are cheap: steps that begin together read together. At the start and at each resync all runs are read in
pages, a few queries a page, decided on without a step each, and only those with something to do are stepped; of the
others the next deadline is kept. A run of many workers is stepped at a pace, so that a thousand of them ending in one
second are looked at a few times and not a thousand.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from moorage.decide.decision import Decision, Ids
from moorage.decide.running.cycle import decide
from moorage.decide.running.schedules import decide_schedule
from moorage.decide.running.snapshot import RunSnapshot
from moorage.decide.scheduling.writes import ACTOR as SCHEDULING_ACTOR
from moorage.domain.changes import Committed, Fence, HistoryRow
from moorage.domain.errors import QuotaExceeded
from moorage.domain.ids import namespace_uid
from moorage.domain.nouns import Machine, Namespace, Run, Worker
from moorage.domain.states import ENDED_WORKER, TERMINAL_RUN, MachineState, WorkerState
from moorage.ports import Clock, Store

NOT_ENDED = tuple(s for s in WorkerState if s not in ENDED_WORKER)

RESYNC_S = 1800.0
"""A look at 10,000 live runs costs a second or two of CPU, so that this is about 0.1 % of a core."""

PAGE = 200
"""Runs that are read, and decided on, at once; between two pages other work has its turn."""

PACED_FROM = 64
PACE_S = 0.0002
PACE_MAX_S = 0.5
"""A run of at least `PACED_FROM` workers is looked at again no sooner than so many seconds for each of its workers
after the first of the changes that it is to see."""

OWN_MAX = 100_000
"""Own changes that are remembered until the feed tells of them; forgetting one costs a step."""


class RunsStep:
    """Loads one run, decides and commits.

    Args:
        store, clock, ids: outside.
    """

    def __init__(self, store: Store, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self.fence: Fence | None = None
        self.later: Callable[[str, float], None] = _nobody
        """told of a run that has nothing to do before so many seconds have passed"""
        self._asked: list[tuple[str, asyncio.Future[RunSnapshot | None]]] = []
        """steps that wait for what they decide on"""
        self._loading: set[asyncio.Task[None]] = set()
        self._sizes: dict[str, int] = {}
        """run -> how many workers it had, of the large ones"""
        self._waiting: dict[tuple[str, str], set[str]] = {}
        """(namespace, name) of a run -> the runs that wait for it"""
        self._waits: dict[str, tuple[tuple[str, str], ...]] = {}
        """the reverse"""
        self._makers: dict[str, str] = {}
        """run -> the run whose schedule made it"""
        self._unplanned: set[str] = set()
        """runs that wait for a fleet on which their workers can be planned"""
        self._own: set[tuple[str, int]] = set()
        """rows and versions that this loop wrote, and that leave it nothing to decide, until the feed tells of them"""

    async def everything(self) -> Iterable[str]:
        """The runs with something to do now; the deadlines of all others are kept."""
        due: list[str] = []
        async for page in self._pages():
            due += await self._look_over([r for r in page if r.state not in TERMINAL_RUN])
            due += self._to_remove(r for r in page if r.state in TERMINAL_RUN)
        return due

    async def _pages(self) -> AsyncIterator[list[Run]]:
        """All of them in one pass in the order of uids: the states are told apart here, not sorted for by each page."""
        after: str | None = None
        while True:
            page = await self._store.find(Run, deployment=None, limit=PAGE, after=after)
            yield page
            if len(page) < PAGE:
                return
            after = page[-1].uid

    def _to_remove(self, ended: Iterable[Run]) -> list[str]:
        """Of runs that ended: those that are to be removed now or before the next resync.

        What was left of them was stopped by the decision that ended them.
        """
        now, due = self._clock.now(), []
        for run in ended:
            at = (run.ended_at or run.updated_at) + float(run.spec.get("ttl_after_finished") or 0.0)
            if run.deleting or at <= now:
                due.append(run.uid)
            elif at <= now + RESYNC_S:
                self.later(run.uid, at - now)
        return due

    async def _look_over(self, runs: Sequence[Run]) -> list[str]:
        due: list[str] = []
        for snapshot in await self._snapshots(runs):
            decision = self._decide(snapshot)
            if decision.change is not None:
                due.append(snapshot.run.uid)
            elif decision.wake_at is not None:
                self.later(snapshot.run.uid, max(0.0, decision.wake_at - snapshot.now))
        return due

    async def __call__(self, uid: str) -> float | None:
        """One run; returns when to look again."""
        loaded = asyncio.get_running_loop().create_future()
        self._asked.append((uid, loaded))
        if len(self._asked) == 1:
            loading = asyncio.create_task(self._load())
            self._loading.add(loading)
            loading.add_done_callback(self._loading.discard)
        snapshot: RunSnapshot | None = await loaded
        if snapshot is None:
            return None
        decision = self._decide(snapshot)
        if decision.change is None:
            return decision.wake_at
        try:
            done = await self._store.commit(decision.change)
        except QuotaExceeded as full:
            if snapshot.run.schedule is None:
                raise
            return await self._skip(replace(snapshot, refused=full.message))
        return self._settle(snapshot, decision, done)

    def _settle(self, snapshot: RunSnapshot, decision: Decision, done: Committed) -> float | None:
        """When to look again at a run whose rows are now as a decision left them.

        Where nothing more is to be decided about them, the feed's word of this very change wakes no step: it would
        load all of it again to find that out. Everybody else's changes do.
        """
        run = next((r for r in decision.left if r.uid == snapshot.run.uid), None)
        if not isinstance(run, Run) or run.schedule is not None:
            return decision.wake_at
        after = replace(snapshot, run=run, workers=tuple(r for r in decision.left if isinstance(r, Worker)))
        then = self._decide(after)
        if then.change is not None:
            return decision.wake_at
        if len(self._own) >= OWN_MAX:
            self._own.clear()
        self._own |= done.versions.items()
        return then.wake_at

    async def _skip(self, snapshot: RunSnapshot) -> float | None:
        """A due time of a schedule whose run would be one too many passes, and its history says so."""
        decision = self._decide(snapshot)
        if decision.change is not None:
            await self._store.commit(decision.change)
        return decision.wake_at

    async def _load(self) -> None:
        """What the steps that began in one turn of the loop asked for: as many reads for 100 runs as for one."""
        asked, self._asked = self._asked, []
        try:
            found = {r.uid: r for r in await self._store.find(Run, uid=[uid for uid, _ in asked])}
            loaded = await self._snapshots([r for r in found.values() if r.deployment is None])
        except Exception as error:
            for _, waiting in asked:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        snapshots = {s.run.uid: s for s in loaded}
        for uid, waiting in asked:
            if uid not in found:
                self._forget(uid)
                self._makers.pop(uid, None)
            if not waiting.done():
                waiting.set_result(snapshots.get(uid))

    def _decide(self, snapshot: RunSnapshot) -> Decision:
        run = snapshot.run
        self._note(snapshot)
        if run.schedule is not None and run.state not in TERMINAL_RUN:
            return decide_schedule(snapshot, self._ids, self.fence)
        return decide(snapshot, self._ids, self.fence)

    def _note(self, snapshot: RunSnapshot) -> None:
        """Remember by what else the run is concerned."""
        run = snapshot.run
        self._forget(run.uid)
        if run.state in TERMINAL_RUN:
            return
        if len(snapshot.workers) >= PACED_FROM:
            self._sizes[run.uid] = len(snapshot.workers)
        for name in _waits_for(run):
            key = (run.namespace, name)
            self._waiting.setdefault(key, set()).add(run.uid)
            self._waits[run.uid] = (*self._waits.get(run.uid, ()), key)
        self._makers.update(dict.fromkeys(_makes(run), run.uid))
        if _unplanned(run):
            self._unplanned.add(run.uid)

    def _forget(self, uid: str) -> None:
        self._sizes.pop(uid, None)
        self._unplanned.discard(uid)
        for key in self._waits.pop(uid, ()):
            self._waiting[key].discard(uid)
            if not self._waiting[key]:
                del self._waiting[key]

    def pace_s(self, uid: str) -> float:
        """Seconds that changes of this run are gathered before it is looked at."""
        return min(self._sizes.get(uid, 0) * PACE_S, PACE_MAX_S)

    def concerned_by(self, rows: Sequence[HistoryRow]) -> set[str]:
        """Runs that are to be looked at because of these rows: their own and their workers', and those waited for."""
        own = {(r.object_uid, r.version) for r in rows} & self._own
        self._own -= own
        uids = {r.root for r in rows if r.root.startswith("run-") and (r.object_uid, r.version) not in own}
        for row in rows:
            if row.object_kind == Run.kind:
                uids |= self._waiting.get((row.namespace, row.name), set())
                if row.object_uid in self._makers:
                    uids.add(self._makers[row.object_uid])
        return uids

    def only_begun(self, rows: Iterable[HistoryRow]) -> set[str]:
        """Runs of which these rows tell only that they were made with their workers, or what the scheduler did.

        None of that is urgent to this loop: it lets the run's state follow, which can wait for the rest to come.
        """
        made: set[str] = set()
        more: set[str] = set()
        for row in rows:
            new = row.source is None and row.object_kind == Worker.kind
            if new or (row.actor == SCHEDULING_ACTOR and row.kind == "note"):
                made.add(row.root)
            elif row.source is not None or row.object_kind != Run.kind:
                more.add(row.root)
        return made - more

    async def concerned_by_machines(self, uids: Collection[str]) -> set[str]:
        """Runs with workers on machines that changed, and those that are to be planned on the fleet that did."""
        workers = await self._store.find(Worker, machine=uids, state=NOT_ENDED, deployment=None)
        return {w.run for w in workers} | self._unplanned

    async def _snapshots(self, runs: Sequence[Run]) -> list[RunSnapshot]:
        """Everything that decisions about these runs read, with one query a noun."""
        now = self._clock.now()
        workers = await self._workers(runs)
        after = await self._after(runs)
        made = await self._made(runs)
        machines = await self._machines(runs, workers)
        held = await self._held() if any(_unplanned(r) for r in runs) else {}
        pools = await self._pools(runs)
        return [
            RunSnapshot(
                now=now,
                run=run,
                workers=tuple(workers.get(run.uid, ())),
                machines=_machines_of(run, workers.get(run.uid, ()), machines, pools.get(run.namespace, {})),
                after={name: after[run.namespace, name] for name in _waits_for(run) if (run.namespace, name) in after},
                made=tuple(made[uid] for uid in _makes(run) if uid in made),
                held=held,
            )
            for run in runs
        ]

    async def _workers(self, runs: Sequence[Run]) -> dict[str, list[Worker]]:
        out: dict[str, list[Worker]] = {}
        uids = [r.uid for r in runs if r.schedule is None]
        for worker in await self._store.find(Worker, run=uids) if uids else ():
            out.setdefault(worker.run, []).append(worker)
        return out

    async def _after(self, runs: Sequence[Run]) -> dict[tuple[str, str], Run]:
        """The newest run of each name that is waited for."""
        names = {name for run in runs for name in _waits_for(run)}
        found = await self._store.find(Run, name=names, deployment=None) if names else []
        found.sort(key=lambda r: (r.created_at, r.uid))
        return {(r.namespace, r.name): r for r in found}

    async def _made(self, runs: Sequence[Run]) -> dict[str, Run]:
        uids = [uid for run in runs for uid in _makes(run)]
        return {r.uid: r for r in await self._store.find(Run, uid=uids)} if uids else {}

    async def _machines(self, runs: Sequence[Run], workers: dict[str, list[Worker]]) -> dict[str, Machine]:
        where: dict[str, Any] = {}
        if not any(_unplanned(r) for r in runs):
            where["uid"] = {w.machine for group in workers.values() for w in group if w.machine}
            if not where["uid"]:
                return {}
        return {m.uid: m for m in await self._store.find(Machine, **where)}

    async def _pools(self, runs: Sequence[Run]) -> dict[str, Mapping[str, Any]]:
        """Labels of the machines on which the unplanned ones may be planned, by namespace."""
        uids = sorted({namespace_uid(run.namespace) for run in runs if _unplanned(run)})
        return {n.name: n.machines for n in await self._store.find(Namespace, uid=uids)} if uids else {}

    async def _held(self) -> dict[str, frozenset[int]]:
        out: dict[str, set[int]] = {}
        for holding in await self._store.holdings():
            out.setdefault(str(holding["machine"]), set()).update(int(g) for g in holding["gpus"])
        return {machine: frozenset(gpus) for machine, gpus in out.items()}


def _nobody(uid: str, after_s: float) -> None:
    del uid, after_s


def _waits_for(run: Run) -> tuple[str, ...]:
    """Names of the runs that it waits for."""
    return () if run.state in TERMINAL_RUN else tuple(a["run"] for a in run.spec.get("after") or ())


def _makes(run: Run) -> tuple[str, ...]:
    """Uids of the runs that its schedule made, newest first."""
    return tuple((run.schedule or {}).get("made") or ())


def _unplanned(run: Run) -> bool:
    """Whether its workers depend on the fleet and are not made yet."""
    groups = run.spec.get("groups") or ()
    return (
        run.planned_at is None
        and run.state not in TERMINAL_RUN
        and run.schedule is None
        and any(g.get("total_gpus") is not None for g in groups)
    )


def _machines_of(
    run: Run, workers: Sequence[Worker], machines: dict[str, Machine], pool: Mapping[str, Any]
) -> dict[str, Machine]:
    if _unplanned(run):
        ready = {uid: m for uid, m in machines.items() if m.state is MachineState.READY}
        return {uid: m for uid, m in ready.items() if all(m.labels.get(key) == value for key, value in pool.items())}
    return {w.machine: machines[w.machine] for w in workers if w.machine and w.machine in machines}
