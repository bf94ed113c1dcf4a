"""What `moor logs` reads: the last lines of a deployment, run or worker, from the machines that have them.

Several workers are read side by side and put together by time; a machine that does not answer is named in its place,
and what was kept with the worker's failure is shown instead. Who follows is served by `logfollow`. Called by the API's
log routes.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from moorage.control.logfollow import Following
from moorage.control.loglines import LogLine, LogOptions, LogSubject, event, merged, recorded, shown
from moorage.control.logrelay import LogRelay, Wanted
from moorage.control.logsight import Place, Sight
from moorage.domain.errors import Gone, MoorageError, Unavailable
from moorage.domain.nouns import Worker
from moorage.ports import Clock, Store

__all__ = ["LogLine", "LogOptions", "LogSubject", "LogTail"]

AT_ONCE = 32
"""Machines' answers waited for side by side in one request: its answers are what this process has to hold."""
NAMED_MAX = 8
"""Workers whose lines cannot be had and who are named one by one."""
ANSWERS_BYTES = 64 << 20
"""Of all answers to one request together, about."""


class LogTail:
    """Reads logs.

    Args:
        store: which workers there are.
        relay: how their lines are had.
        clock: paces who follows.
    """

    def __init__(self, store: Store, relay: LogRelay, clock: Clock) -> None:
        self._store = store
        self._sight = Sight(store)
        self._relay = relay
        self._clock = clock

    async def check(self, subject: LogSubject, options: LogOptions) -> None:
        """Raise what is known to be wrong before anything is answered: `InvalidSpec` or `NotFound`."""
        options.check()
        await self._sight.look(subject, options)

    async def read(self, subject: LogSubject, options: LogOptions) -> list[LogLine]:
        """The last lines as they are now.

        Raises:
            InvalidSpec: the options contradict each other, or the pattern is none.
            NotFound: nothing of it ever started, or there is no such worker or attempt.
            Unavailable: no machine that has them answered, and no record of a failure was kept.
            Gone: none of it is kept any more, not even the record of a failure.
        """
        options.check()
        look = await self._sight.look(subject, options)
        places = await self._sight.places(look, subject, options)
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(place: Place) -> list[LogLine] | Unavailable | Gone:
            async with limit:
                try:
                    return await self._read_one(place, options, len(places))
                except (Unavailable, Gone) as cause:
                    return cause

        answers = await asyncio.gather(*map(one, places))
        without = [answer for answer in answers if not isinstance(answer, list)]
        if without and len(without) == len(answers):
            raise next((cause for cause in without if isinstance(cause, Unavailable)), without[0])
        lacking = [(p.worker, a) for p, a in zip(places, answers, strict=True) if not isinstance(a, list)]
        return [*_missing(lacking), *merged([answer for answer in answers if isinstance(answer, list)])]

    def follow(self, subject: LogSubject, options: LogOptions) -> AsyncIterator[list[LogLine]]:
        """The last lines and all that come, until the subject is over; several at a time, as they come."""
        return Following(self._store, self._relay, self._clock, subject, options).lines()

    async def _read_one(self, place: Place, options: LogOptions, among: int) -> list[LogLine]:
        worker, record = place.worker, recorded(place.worker, options)
        try:
            if place.machine is None:
                raise Unavailable(
                    f"the log of {worker.name} was on {place.called}, which is not known here any more",
                    code="machine_silent",
                    target=worker.name,
                )
            got = await self._relay.fetch(place.machine, worker.uid, _wanted(place, options, among), name=place.called)
        except Unavailable as cause:
            if not record:
                raise
            return [event(worker, f"{cause.message}; from the record of its failure:"), *record]
        if got.absent or (not got.lines and record and not options.grep and options.since_s is None):
            if record and (place.current or place.attempt == worker.attempt - 1):
                return [event(worker, f"{_kept_no_more(place)}; from the record of its failure:"), *record]
            if got.absent:
                raise Gone(
                    _kept_no_more(place),
                    code="log_not_kept",
                    target=worker.name,
                    remedy="machines keep logs for a while only (docs/runs.md); see what happened: "
                    f"moor history {worker.name}",
                )
        return shown(worker, got, options, attempt=place.attempt, tell_missed=False)


def _wanted(place: Place, options: LogOptions, among: int) -> Wanted:
    current = place.current
    return Wanted(
        lines=options.count(among),
        epoch=place.worker.epoch if current else None,
        previous=not current,
        attempt=None if current else place.attempt,
        since_s=options.since_s,
        grep=options.grep,
        total_bytes=min(4 << 20, ANSWERS_BYTES // max(1, among)),
    )


def _missing(lacking: Sequence[tuple[Worker, MoorageError]]) -> list[LogLine]:
    """Whose lines are not among those of the others; many are not told one by one."""
    if len(lacking) <= NAMED_MAX:
        return [event(worker, cause.message) for worker, cause in lacking]
    cause = lacking[0][1]
    rest = f"as for {len(lacking) - 1} other workers, which are not shown either"
    return [LogLine("event", f"{cause.message}, {rest}")]


def _kept_no_more(place: Place) -> str:
    return f"the log of attempt {place.attempt} of {place.worker.name} is not kept on {place.called} any more"
