"""A log that is followed: over all workers of its subject, from one attempt to the next, until the subject is over.

Woken, not polling: machines send lines as they come (`logrelay`), and the change feed tells when the rows are worth
another look. What happens between lines is told in lines of kind `event`: a new attempt, a worker's end, a pause, a
machine that does not answer. It ends once everything was drained after the subject's end; it never waits for a process
that died silently, since the rows say that as well, nor for ever for a machine that does not answer. For `logtail`.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from moorage.control.loglines import LogLine, LogOptions, LogSubject, event, merged, recorded, shown
from moorage.control.logrelay import Followed, LogRelay, Wanted
from moorage.control.logsight import NO_LOG_YET, Look, Sight, running_or_last
from moorage.domain.nouns import Worker
from moorage.domain.states import ENDED_WORKER, DeploymentStatus, WorkerState
from moorage.ports import Clock, Store

TICK_S = 2.5
"""Between two looks at who is silent; nothing is read or asked at one where all answer."""
RESYNC_S = 15.0
"""The safety net under the change feed."""
QUIET_S = 15.0
"""A stream with nothing to say says so this often, so that its reader can tell silence from a dead server."""
SETTLE_S = 0.3
"""So long the first lines of other workers are waited for, to be put in order by time."""
LAST_WORDS_S = 10.0
"""After its end, so long the rest of a log is waited for where its machine does not say that there is no more."""
CATCH_UP_LINES = 1000
"""Of one answer of an attempt that was over before it was seen."""
FROM_START = 0
"""`after` of a reader that has seen nothing: agents number lines from 1."""


@dataclass(slots=True)
class _Reel:
    """One placement of one worker being read."""

    worker: Worker
    machine: str
    followed: Followed | None
    announced: LogLine | None = None
    """said before its first lines: a reader that follows is told where it goes on"""
    heard: bool = False
    silent: bool = False
    ended_at: float | None = None
    """when its end was first seen here, by the rows or by what its machine sent"""
    done: bool = False

    def close(self) -> None:
        """Read it no more."""
        self.done = True
        if self.followed is not None:
            self.followed.close()


class Following:
    """One reader's stream.

    Args:
        store: which workers there are.
        relay: how their lines are had.
        clock: for pauses.
        subject, options: what is read.
    """

    def __init__(self, store: Store, relay: LogRelay, clock: Clock, subject: LogSubject, options: LogOptions) -> None:
        self._store = store
        self._sight = Sight(store)
        self._relay = relay
        self._clock = clock
        self._subject = subject
        self._options = options
        self._reels: dict[tuple[str, int], _Reel] = {}
        self._taken_up: dict[str, int] = {}
        self._news = asyncio.Event()
        self._changed = True
        self._root = ""
        self._look = Look((), False, "", "")
        self._told_status: str | None = None
        self._looked_at = self._over_at = 0.0

    async def lines(self) -> AsyncIterator[list[LogLine]]:
        """The last lines and all that come; nothing (a sign of life) now and then where nothing does."""
        cursor = await self._store.cursor()
        watching = asyncio.create_task(self._watch(cursor))
        try:
            async for said in self._rounds():
                yield said
        finally:
            watching.cancel()
            for reel in self._reels.values():
                reel.close()
            await asyncio.gather(watching, return_exceptions=True)

    async def _rounds(self) -> AsyncIterator[list[LogLine]]:
        spoke_at = self._clock.monotonic()
        settled = False
        while True:
            self._news.clear()
            said = await self._look_again() if self._is_time_to_look() else []
            if not settled:
                settled = True
                await self._settle()
            said += self._gather()
            if said:
                spoke_at = self._clock.monotonic()
                yield said
            elif self._clock.monotonic() - spoke_at >= QUIET_S:
                spoke_at = self._clock.monotonic()
                yield [LogLine("heartbeat")]
            if self._is_drained():
                yield [LogLine("event", f"{self._subject.name} is over: {self._look.status}{self._look.why}")]
                return
            await self._pause(TICK_S)
            for reel in self._reels.values():
                if reel.followed is not None and not reel.done:
                    reel.followed.nudge()

    async def _watch(self, cursor: str) -> None:
        """Whatever happens under the subject's root is worth a look."""
        async for rows in self._store.follow(cursor):
            if any(row.root == self._root for row in rows):
                self._changed = True
                self._news.set()

    async def _settle(self) -> None:
        until = self._clock.monotonic() + SETTLE_S
        while any(not r.followed.has_news for r in self._reels.values() if r.followed is not None):
            left_s = until - self._clock.monotonic()
            if left_s <= 0:
                return
            await self._pause(left_s)

    async def _pause(self, seconds: float) -> None:
        """Until there is news, or the time is over."""
        if self._news.is_set():
            self._news.clear()
            return
        limit = asyncio.ensure_future(self._clock.sleep(seconds))
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({limit, news}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()
            news.cancel()

    # The rows

    def _is_time_to_look(self) -> bool:
        return self._changed or self._clock.monotonic() - self._looked_at >= RESYNC_S

    async def _look_again(self) -> list[LogLine]:
        """What the subject itself did since the last look, and every placement that has a log taken up."""
        self._changed = False
        before, first = self._told_status, self._told_status is None
        look = self._look = await self._sight.look(self._subject, self._options)
        self._root, self._looked_at = look.root, self._clock.monotonic()
        self._told_status = look.status
        begin = {w.uid for w in self._begin_with(look)} if first else {w.uid for w in look.workers}
        for worker in look.workers:
            if not first:
                await self._catch_up(worker, look)
            started = worker.machine is not None and worker.state not in NO_LOG_YET
            self._taken_up[worker.uid] = worker.attempt if started else worker.attempt - 1
            place = (worker.uid, worker.epoch)
            if reel := self._reels.get(place):
                reel.worker = worker
            elif worker.machine is not None and worker.state not in NO_LOG_YET:
                self._reels[place] = self._reel(worker, look, first=first, wanted=worker.uid in begin)
        if look.over and not self._over_at:
            self._over_at = self._clock.monotonic()
        unsaid = look.over or before == look.status or (first and look.status != DeploymentStatus.PAUSED)
        return [] if unsaid or self._subject.deployment is None else [LogLine("event", f"{look.status}{look.why}")]

    async def _catch_up(self, worker: Worker, look: Look) -> None:
        """Attempts that began and were over between two looks are read all the same, from where they were."""
        for attempt in range(self._taken_up.get(worker.uid, 0) + 1, worker.attempt):
            place = await self._sight.place(look, worker, attempt)
            if place.machine is None:
                continue  # it was on no machine, or on one that is gone
            look.machines.setdefault(place.machine, place.called)
            wanted = Wanted(lines=CATCH_UP_LINES, after=FROM_START, attempt=attempt, grep=self._options.grep)
            followed = self._relay.follow(place.machine, worker.uid, wanted, self._news.set)
            then = replace(worker, attempt=attempt, epoch=-attempt)  # of no placement that the rows show
            opening = event(then, f"attempt {attempt}") if attempt > 1 else None
            self._reels[worker.uid, then.epoch] = _Reel(then, place.machine, followed, opening)

    def _begin_with(self, look: Look) -> list[Worker]:
        if self._subject.deployment is not None:
            return running_or_last(look.workers)
        return list(look.workers)

    def _reel(self, worker: Worker, look: Look, *, first: bool, wanted: bool) -> _Reel:
        assert worker.machine is not None
        if not wanted:
            return _Reel(worker, worker.machine, None, done=True)
        followed = self._relay.follow(
            worker.machine,
            worker.uid,
            Wanted(
                lines=self._options.count(len(look.workers)),
                after=None if first else FROM_START,
                epoch=worker.epoch,
                since_s=self._options.since_s if first else None,
                grep=self._options.grep,
            ),
            self._news.set,
        )
        return _Reel(worker, worker.machine, followed, None if first else self._opening(worker, look))

    def _opening(self, worker: Worker, look: Look) -> LogLine | None:
        where = look.machine(worker.machine)
        if self._subject.deployment is not None:
            return event(worker, f"goes on with {worker.name} on {where}")
        return event(worker, f"attempt {worker.attempt}") if worker.attempt > 1 else None

    # The reels

    def _gather(self) -> list[LogLine]:
        """What every placement has to say now, put together by time."""
        return merged([said for reel in self._reels.values() if not reel.done and (said := self._advance(reel))])

    def _advance(self, reel: _Reel) -> list[LogLine]:
        """New lines of one placement, and whether it is done."""
        followed = reel.followed
        assert followed is not None
        said: list[LogLine] = []
        got = followed.take()
        if got is not None:
            said = shown(reel.worker, got, self._options, attempt=self._attempt(reel), tell_missed=reel.heard)
            if got.absent and not reel.heard:
                said = [
                    event(reel.worker, f"nothing of {reel.worker.name} is kept on {self._where(reel)}"),
                    *self._record(reel),
                ]
            if reel.announced is not None:
                said, reel.announced = [reel.announced, *said], None
            reel.heard, reel.silent = True, False
        elif followed.silent and not reel.silent:
            reel.silent = True
            said = [event(reel.worker, self._why_silent(reel))]
            if self._has_ended(reel) and not reel.heard:
                said += self._record(reel)
        over = self._has_ended(reel)  # its machine's last lines may be here before the rows say how it ended
        if (followed.ended and over) or self._is_given_up(reel):
            said += self._finish(reel)
        return said

    def _has_ended(self, reel: _Reel) -> bool:
        """Whether the rows say that this placement is over."""
        known = next((w for w in self._look.workers if w.uid == reel.worker.uid), None)
        ended = known is None or known.epoch != reel.worker.epoch or known.state in ENDED_WORKER
        if (ended or (reel.followed is not None and reel.followed.ended)) and reel.ended_at is None:
            reel.ended_at = self._clock.monotonic()
        return ended

    def _is_given_up(self, reel: _Reel) -> bool:
        """One of the two knows of its end, the rows or its machine, and for long the other has not said so."""
        followed = reel.followed
        if reel.ended_at is None or followed is None:
            return False
        if reel.silent and not followed.ended:
            return self._has_ended(reel)
        latest = max(reel.ended_at, followed.heard_at or 0.0)
        return self._clock.monotonic() - latest >= LAST_WORDS_S

    def _finish(self, reel: _Reel) -> list[LogLine]:
        reel.close()
        known = next((w for w in self._look.workers if w.uid == reel.worker.uid), None)
        if known is not None and known.epoch != reel.worker.epoch:
            return _earlier_end(reel.worker, known)
        if known is None or known.state not in ENDED_WORKER or not known.reason:
            return []
        if self._subject.deployment is None and known.state is WorkerState.COMPLETED:
            return []
        return [event(known, f"{known.name} ended: {known.state}: {known.reason.message}")]

    def _record(self, reel: _Reel) -> list[LogLine]:
        """What was kept with its failure."""
        lines = recorded(reel.worker, self._options)
        return [event(reel.worker, "from the record of its failure:"), *lines] if lines else []

    def _attempt(self, reel: _Reel) -> int:
        return reel.worker.attempt

    def _where(self, reel: _Reel) -> str:
        return self._look.machine(reel.machine)

    def _why_silent(self, reel: _Reel) -> str:
        asked = (
            "was asked and does not answer" if reel.followed and reel.followed.was_asked else "does not ask for work"
        )
        return f"machine {self._where(reel)} {asked}: its lines of {reel.worker.name} are missing until it does"

    def _is_drained(self) -> bool:
        """Whether the subject is over and nothing more will come."""
        return self._look.over and all(r.done or r.silent for r in self._reels.values())


def _earlier_end(then: Worker, now: Worker) -> list[LogLine]:
    """How an attempt ended whose worker has gone on to the next one."""
    failure = now.last_failure or {}
    why = (failure.get("reason") or {}).get("message")
    if why is None or now.attempt != then.attempt + 1:
        return []
    return [event(then, f"{then.name} ended: {why}")]
