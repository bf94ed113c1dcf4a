"""The workers whose log is meant, as the rows show them, and the machines that have it. Called by `logtail` and
`logfollow`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from moorage.control.loglines import LogOptions, LogSubject
from moorage.domain.errors import NotFound
from moorage.domain.nouns import Deployment, Machine, Run, Worker
from moorage.domain.states import ENDED_WORKER, TERMINAL_RUN, DeploymentStatus, WorkerState
from moorage.ports import Store

NO_LOG_YET = frozenset({WorkerState.PENDING, WorkerState.PREPARING, WorkerState.PULLING, WorkerState.READY_TO_START})
PLACED = "worker.placed"
"""Code of the reason that names the machine of an attempt."""


@dataclass(slots=True)
class Look:
    """The subject as the rows show it now.

    Args:
        workers: its workers, oldest first; of those that are asked for only.
        over: nothing of it will run again.
        status, why: what it is, and `: reason` or nothing.
        root: under which its history is kept.
        machines: names by uid.
    """

    workers: Sequence[Worker]
    over: bool
    status: str
    why: str
    root: str = ""
    machines: dict[str, str] = field(default_factory=dict)

    def machine(self, uid: str | None) -> str:
        """A machine's name, or its uid where it is not known any more."""
        return self.machines.get(str(uid), str(uid))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the log of one attempt is: a machine's uid, or None where that machine is not known any more."""

    worker: Worker
    attempt: int
    machine: str | None
    called: str
    """the machine's name"""

    @property
    def current(self) -> bool:
        """Whether it is the attempt that the row shows."""
        return self.attempt == self.worker.attempt


class Sight:
    """Looks at the rows.

    Args:
        store: where they are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def look(self, subject: LogSubject, options: LogOptions) -> Look:
        """The subject now.

        Raises:
            NotFound: it has workers, and none of those that are asked for.
        """
        look = await self._find(subject)
        wanted = [w for w in look.workers if options.wants(w)]
        if options.chooses and look.workers and not wanted:
            raise NotFound(
                f"{subject.name} has no such worker", remedy=f"it has: {_some(w.name for w in look.workers)}"
            )
        look.workers = wanted
        uids = {w.machine for w in wanted if w.machine}
        look.machines = {m.uid: m.name for m in await self._store.find(Machine, uid=uids)} if uids else {}
        return look

    async def _find(self, subject: LogSubject) -> Look:
        if subject.deployment is not None:
            deployment = await self._store.get(Deployment, subject.deployment)
            workers = sorted(await self._store.find(Worker, deployment=subject.deployment), key=_age)
            over = deployment is None or deployment.status in (DeploymentStatus.STOPPED, DeploymentStatus.FAILED)
            return _look(workers, over, deployment and deployment.status, deployment, subject.deployment)
        if subject.run is not None:
            run = await self._store.get(Run, subject.run)
            workers = sorted(await self._store.find(Worker, run=subject.run), key=_rank)
            root = (run.deployment if run else None) or subject.run
            return _look(workers, run is None or run.state in TERMINAL_RUN, run and run.state, run, root)
        worker = await self._store.get(Worker, str(subject.worker))
        if worker is None:
            return _look((), True, None, None, str(subject.worker))
        run = await self._store.get(Run, worker.run)
        over = worker.state in ENDED_WORKER and (run is None or run.state in TERMINAL_RUN)
        return _look((worker,), over, worker.state, worker, worker.deployment or worker.run)

    async def places(self, look: Look, subject: LogSubject, options: LogOptions) -> list[Place]:
        """Where to read, for who does not follow.

        Raises:
            NotFound: nothing of it ever started, or there is no such attempt.
        """
        if options.attempt is not None:
            chosen = [(w, options.attempt) for w in look.workers if 1 <= options.attempt <= w.attempt]
            what = f"no attempt {options.attempt}"
        elif options.previous:
            chosen, what = _before(look, subject), "no attempt before this one"
        else:
            chosen, what = _now(look, subject), None
        if chosen:
            return [await self.place(look, worker, attempt) for worker, attempt in chosen]
        if what is None:
            raise NotFound(
                f"{subject.name} has no log yet: nothing of it was started",
                remedy=f"ask why: moor why {subject.name}",
                target=subject.name,
            )
        raise NotFound(f"{subject.name} has {what}", remedy=f"see moor history {subject.name}", target=subject.name)

    async def place(self, look: Look, worker: Worker, attempt: int) -> Place:
        """Where the log of one attempt is."""
        if attempt == worker.attempt and worker.machine is not None:
            return Place(worker, attempt, worker.machine, look.machine(worker.machine))
        name = worker.machine_name if attempt == worker.attempt else await self._machine_then(worker, attempt)
        found = await self._store.find(Machine, name=name) if name else []
        uid = max(found, key=lambda m: m.created_at).uid if found else None
        return Place(worker, attempt, uid, name or "its machine")

    async def _machine_then(self, worker: Worker, attempt: int) -> str | None:
        """The machine on which an earlier attempt was placed, by the worker's history."""
        at = worker.attempt
        for row in await self._store.history(uid=worker.uid, newest_first=True):
            if row.reason.code == PLACED and at == attempt:
                return str(row.reason.params.get("machine"))
            if row.to == WorkerState.PENDING and row.source not in (None, WorkerState.PENDING):
                at -= 1  # a step back into the queue; what it waited for there are notes
        return None


def running_or_last(workers: Sequence[Worker]) -> list[Worker]:
    """Those that have a process; else the newest that had one; oldest first is given and kept."""
    started = [w for w in workers if w.state not in NO_LOG_YET]
    return [w for w in started if w.state not in ENDED_WORKER] or started[-1:]


def _now(look: Look, subject: LogSubject) -> list[tuple[Worker, int]]:
    """Each worker of a run in its newest attempt that has a log; of a deployment what runs, else what ran last."""
    if subject.deployment is not None:
        return [(w, w.attempt) for w in running_or_last(look.workers)]
    ever = [(w, w.attempt - 1 if w.state in NO_LOG_YET else w.attempt) for w in look.workers if _started(w)]
    return [(w, attempt) for w, attempt in ever if attempt >= 1]


def _before(look: Look, subject: LogSubject) -> list[tuple[Worker, int]]:
    if subject.deployment is None:
        return [(w, w.attempt - 1) for w in look.workers if w.attempt > 1]
    current = running_or_last(look.workers)
    earlier = [w for w in look.workers if w not in current and w.state in ENDED_WORKER]
    if earlier:
        return [(w, w.attempt) for w in earlier if w.run == earlier[-1].run]  # of a gang every member
    return [(w, w.attempt - 1) for w in current if w.attempt > 1]


def _started(worker: Worker) -> bool:
    """Whether any attempt of it was ever on a machine."""
    placed = (worker.machine or worker.machine_name) is not None
    return worker.attempt > 1 or (placed and worker.state not in NO_LOG_YET)


def _look(
    workers: Sequence[Worker], over: bool, status: object, row: Deployment | Run | Worker | None, root: str
) -> Look:
    why = f": {row.reason.message}" if row is not None and row.reason else ""
    return Look(workers, over, str(status) if row is not None else "deleted", why, root)


def _some(names: Iterable[str], most: int = 20) -> str:
    listed = sorted(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def _age(row: Worker) -> tuple[float, str]:
    return row.created_at, row.uid


def _rank(row: Worker) -> tuple[str, int, float]:
    return row.group, row.rank, row.created_at
