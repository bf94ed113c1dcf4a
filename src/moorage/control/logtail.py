"""What `moor logs` reads: the lines of a deployment, run or worker, followed from one process to the next.

A tail looks at the rows of its subject once a round, asks the machines of its workers for new lines through the relay,
and says in lines of kind `event` what happened between: a worker replaced, a pause, a wake, a machine that does not
answer. It ends, after a last drain, when its subject is over; it never waits for a process that died silently, since
the rows say that as well. Called by the API's log routes.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from moorage.control.logrelay import LogRelay
from moorage.domain.errors import NotFound, Unavailable
from moorage.domain.nouns import Deployment, Machine, Run, Worker
from moorage.domain.states import ENDED_WORKER, TERMINAL_RUN, DeploymentStatus, WorkerState
from moorage.ports import Clock, Store
from moorage.wire.agent import LogLines

ROUND_S = 0.5
"""Between two looks at a followed log: quick enough to read along, and one small read of the store for each."""

QUIET_S = 15.0
"""A stream with nothing to say says so this often, so that its reader can tell silence from a dead server."""

CHUNK = 1000
"""Lines asked for at once."""

LAST_DRAIN_ROUNDS = 10
"""Rounds in which an ended worker may still bring lines, where its agent does not say that they were the last."""

NO_LOG_YET = frozenset({WorkerState.PENDING, WorkerState.PREPARING, WorkerState.PULLING, WorkerState.READY_TO_START})
FROM_START = 0
"""`after` of a reader that has seen nothing: agents number lines from 1."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, something that happened (`event`), or a sign of life (`heartbeat`).

    Args:
        kind: which of them.
        line: the text.
        worker: name of the worker it is of.
        seq: its number in that worker's log.
    """

    kind: Literal["line", "event", "heartbeat"]
    line: str = ""
    worker: str | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class LogSubject:
    """Whose log: exactly one uid is given."""

    name: str
    deployment: str | None = None
    run: str | None = None
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What of it.

    Args:
        lines: how many of the last lines to begin with.
        previous: of the attempt before.
        contains: only lines with this text in them.
    """

    lines: int = 200
    previous: bool = False
    contains: str | None = None

    def wants(self, line: str) -> bool:
        """Whether a line is shown."""
        return self.contains is None or self.contains in line


@dataclass(slots=True)
class _Reel:
    """One worker's placement being read."""

    worker: Worker
    machine: str
    after: int | None
    announced: LogLine | None = None
    """said before its first lines: a reader that follows is told where it goes on"""
    silent: bool = False
    rounds_after_end: int = 0
    done: bool = False


@dataclass(slots=True)
class _Look:
    """The subject as the rows show it now."""

    workers: Sequence[Worker]
    over: bool
    status: str
    why: str
    machines: dict[str, str] = field(default_factory=dict)


class LogTail:
    """Reads logs.

    Args:
        store: which workers there are.
        relay: how their lines are had.
        clock: paces the rounds.
    """

    def __init__(self, store: Store, relay: LogRelay, clock: Clock) -> None:
        self._store = store
        self._relay = relay
        self._clock = clock

    async def read(self, subject: LogSubject, options: LogOptions) -> list[LogLine]:
        """The last lines as they are now.

        Raises:
            NotFound: nothing of it ever started, or there is no attempt before.
            Unavailable: no machine that has them answered, and no record of a failure was kept.
        """
        look = await self._look(subject)
        chosen, flag = _choose(look.workers, options, subject.name)
        answers = await asyncio.gather(*(self._last(w, look, options, flag) for w in chosen))
        return [line for lines in answers for line in lines]

    async def follow(self, subject: LogSubject, options: LogOptions) -> AsyncIterator[LogLine]:
        """The last lines and all that come, until the subject is over."""
        reels: dict[tuple[str, int], _Reel] = {}
        status: str | None = None
        spoke_at = self._clock.monotonic()
        while True:
            look = await self._look(subject)
            self._take_up(reels, look, first=status is None)
            said = _turned(look, status)
            status = look.status
            for lines in await asyncio.gather(*(self._advance(r, look, options) for r in reels.values())):
                said += lines
            for line in said:
                yield line
            if said:
                spoke_at = self._clock.monotonic()
            elif self._clock.monotonic() - spoke_at >= QUIET_S:
                spoke_at = self._clock.monotonic()
                yield LogLine("heartbeat")
            if look.over and all(r.done or r.silent for r in reels.values()):
                yield LogLine("event", f"{subject.name} is over: {look.status}{look.why}")
                return
            await self._clock.sleep(ROUND_S)

    async def _look(self, subject: LogSubject) -> _Look:
        if subject.deployment is not None:
            look = await self._look_at_deployment(subject.deployment)
        elif subject.run is not None:
            look = await self._look_at_run(subject.run)
        else:
            look = await self._look_at_worker(str(subject.worker))
        uids = {w.machine for w in look.workers if w.machine}
        look.machines = {m.uid: m.name for m in await self._store.find(Machine, uid=uids)} if uids else {}
        return look

    async def _look_at_deployment(self, uid: str) -> _Look:
        row = await self._store.get(Deployment, uid)
        workers = sorted(await self._store.find(Worker, deployment=uid), key=_age)
        if row is None:
            return _Look(workers, True, "deleted", "")
        over = row.status in (DeploymentStatus.STOPPED, DeploymentStatus.FAILED)
        return _Look(workers, over, str(row.status), f": {row.reason.message}" if row.reason else "")

    async def _look_at_run(self, uid: str) -> _Look:
        row = await self._store.get(Run, uid)
        workers = sorted(await self._store.find(Worker, run=uid), key=_age)
        if row is None:
            return _Look(workers, True, "deleted", "")
        return _Look(
            workers, row.state in TERMINAL_RUN, str(row.state), f": {row.reason.message}" if row.reason else ""
        )

    async def _look_at_worker(self, uid: str) -> _Look:
        row = await self._store.get(Worker, uid)
        if row is None:
            return _Look((), True, "deleted", "")
        run = await self._store.get(Run, row.run)
        over = row.state in ENDED_WORKER and (run is None or run.state in TERMINAL_RUN)
        return _Look((row,), over, str(row.state), f": {row.reason.message}" if row.reason else "")

    def _take_up(self, reels: dict[tuple[str, int], _Reel], look: _Look, first: bool) -> None:
        """Begin with every placement that has a log and is not read yet; refresh the rows of those that are."""
        begin = {w.uid for w in _current(look.workers)} if first else {w.uid for w in look.workers}
        for worker in look.workers:
            place = (worker.uid, worker.epoch)
            if reel := reels.get(place):
                reel.worker = worker
            elif worker.machine is not None and worker.state not in NO_LOG_YET:
                opening = None if first else _event(worker, f"goes on with {worker.name} on {_machine(worker, look)}")
                after = None if first else FROM_START
                reels[place] = _Reel(worker, worker.machine, after, opening, done=worker.uid not in begin)

    async def _advance(self, reel: _Reel, look: _Look, options: LogOptions) -> list[LogLine]:
        """New lines of one placement, and whether it is done."""
        if reel.done:
            return []
        known = next((w for w in look.workers if w.uid == reel.worker.uid), None)
        ended = known is None or known.epoch != reel.worker.epoch or known.state in ENDED_WORKER
        try:
            said, last = await self._drain(reel, look, options)
        except Unavailable as cause:
            reel.done = ended
            already, reel.silent = reel.silent, True
            return [] if already else [_event(reel.worker, cause.message)]
        if reel.announced is not None:
            said.insert(0, reel.announced)
        reel.silent, reel.announced = False, None
        if ended:
            reel.rounds_after_end += 1
            reel.done = last or reel.rounds_after_end > LAST_DRAIN_ROUNDS
            if reel.done and known is not None and known.reason:
                said.append(_event(reel.worker, f"{known.name} ended: {known.state}: {known.reason.message}"))
        return said

    async def _drain(self, reel: _Reel, look: _Look, options: LogOptions) -> tuple[list[LogLine], bool]:
        """Everything there is to read now, and whether nothing will follow."""
        said: list[LogLine] = []
        while True:
            asked = options.lines if reel.after is None else CHUNK
            got = await self._relay.fetch(
                reel.machine,
                reel.worker.uid,
                lines=asked,
                after=reel.after,
                epoch=reel.worker.epoch,
                name=look.machines.get(reel.machine),
            )
            said += _shown(reel.worker, got, options, told_missed=reel.after is not None)
            reel.after = max(reel.after if reel.after is not None else FROM_START, got.first_seq + len(got.lines) - 1)
            if len(got.lines) < asked or not got.lines:
                return said, got.ended

    async def _last(self, worker: Worker, look: _Look, options: LogOptions, previous: bool) -> list[LogLine]:
        record = str((worker.last_failure or {}).get("log") or "")
        try:
            if worker.machine is None:
                raise Unavailable(f"{worker.name} is on no machine any more", code="machine_silent", target=worker.name)
            got = await self._relay.fetch(
                worker.machine,
                worker.uid,
                lines=options.lines,
                epoch=None if previous else worker.epoch,
                previous=previous,
                name=look.machines.get(worker.machine),
            )
        except Unavailable as cause:
            if not record:
                raise
            return [
                _event(worker, f"{cause.message}; from the record of its failure:"),
                *_recorded(worker, record, options),
            ]
        if not got.lines and record and not previous:
            return _recorded(worker, record, options)
        return _shown(worker, got, options, told_missed=False)


def _choose(workers: Sequence[Worker], options: LogOptions, name: str) -> tuple[list[Worker], bool]:
    """Whose lines to read, and whether of their attempt before."""
    current = _current(workers)
    if not current:
        raise NotFound(
            f"{name} has no log yet: nothing of it was started", remedy=f"ask why: moor why {name}", target=name
        )
    if not options.previous:
        return current, False
    earlier = [w for w in workers if w not in current and w.state in ENDED_WORKER]
    if earlier:
        return earlier[-1:], False
    again = [w for w in current if w.attempt > 1]
    if again:
        return again, True
    raise NotFound(f"{name} has no attempt before this one", remedy=f"see moor history {name}", target=name)


def _current(workers: Sequence[Worker]) -> list[Worker]:
    """Those that have a process; else the newest that had one; oldest first is given and kept."""
    started = [w for w in workers if w.state not in NO_LOG_YET]
    return [w for w in started if w.state not in ENDED_WORKER] or started[-1:]


def _turned(look: _Look, before: str | None) -> list[LogLine]:
    """What the subject itself did since the last round. Its first look and its end are not said here."""
    if before is None and look.status != DeploymentStatus.PAUSED:
        return []
    if before == look.status or look.over:
        return []
    return [LogLine("event", f"{look.status}{look.why}")]


def _shown(worker: Worker, got: LogLines, options: LogOptions, told_missed: bool) -> list[LogLine]:
    lines = [
        LogLine("line", text, worker.name, got.first_seq + index)
        for index, text in enumerate(got.lines)
        if options.wants(text)
    ]
    if told_missed and got.missed:
        lines.insert(0, _event(worker, f"{got.missed} lines of {worker.name} are no longer kept"))
    return lines


def _recorded(worker: Worker, log: str, options: LogOptions) -> list[LogLine]:
    kept = log.splitlines()[-options.lines :] if options.lines else []
    return [LogLine("line", text, worker.name) for text in kept if options.wants(text)]


def _event(worker: Worker, text: str) -> LogLine:
    return LogLine("event", text, worker.name)


def _machine(worker: Worker, look: _Look) -> str:
    return look.machines.get(str(worker.machine), str(worker.machine))


def _age(row: Worker) -> tuple[float, str]:
    return row.created_at, row.uid
