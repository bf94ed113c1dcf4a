"""Answers to requests for log lines: once, or again and again for who follows a log.

Files are read in threads. A followed log is looked at a few times a second by its size alone, and read when it has
grown; an answer that nobody waits for any more (404) ends it. What could not be delivered is delivered again, so that a
control plane that was away for a moment misses nothing. Called by the session with each `Work`.
"""

import asyncio
import math
from pathlib import Path
from random import Random

import structlog

from moorage.agent.asked import Asked
from moorage.agent.backoff import Backoff
from moorage.agent.link import Link, LinkDown, LinkError, LinkStale
from moorage.agent.roster import Roster
from moorage.ports import Clock
from moorage.runners import logfile
from moorage.runners.logfile import Limits
from moorage.wire.agent import LogLines, LogRequest

LINES_MAX = 10_000
BYTES_MAX = 8 << 20
CHUNK = 1000
"""Lines of one answer to who follows; the first one has as many as were asked for."""
LOOK_S = 0.25
"""Between two looks at a followed log: quick enough to read along, and a directory listing for each."""
SIGN_OF_LIFE_S = 10.0
"""A followed log in which nothing happens is answered so often all the same: that tells both sides that the other is
still there."""


def answer(roster: Roster, request: LogRequest, now: float, after: int | None = None) -> LogLines:
    """The lines asked for; none, `absent` and `ended`, when this machine has no such log (any more).

    Args:
        roster: knows the directories.
        request: what is wanted.
        now: seconds since the epoch.
        after: where a followed log is by now; None: as the request says.
    """
    folder = roster.folder_of(request.worker, request.epoch, request.previous, request.attempt)
    if folder is None:
        return LogLines(ended=True, absent=True)
    roster.reading(folder)
    after = request.after if after is None else after
    ended = roster.has_ended(request.worker, folder)
    since = None if request.since_s is None or after is not None else now - request.since_s
    room = min(request.total_bytes, BYTES_MAX)
    found = logfile.select(
        folder, Limits(min(request.lines, LINES_MAX), after, ended, since, request.grep, total_bytes=room)
    )
    more = logfile.read(folder, lines=1, after=found.next_seq - 1, partial=ended).lines if ended else ()
    return LogLines(
        lines=found.lines,
        first_seq=found.first_seq,
        next_seq=found.next_seq,
        missed=found.missed,
        ended=ended and not more,
        seqs=found.seqs,
        times=found.times,
        attempt=roster.attempt_of(folder),
    )


class LogDesk:
    """Serves what the control plane asks.

    Args:
        roster: knows the directories.
        link: where answers go.
        clock: paces the looks; its wall time is what `since` is counted from.
        rng: jitter while the control plane is away.
        log: told of what could not be delivered.
    """

    def __init__(
        self, roster: Roster, link: Link, clock: Clock, rng: Random, log: structlog.stdlib.BoundLogger
    ) -> None:
        self._roster = roster
        self._link = link
        self._clock = clock
        self._rng = rng
        self._log = log
        self.take = Asked(self._serve, log).take

    async def _serve(self, request: LogRequest) -> None:
        try:
            if request.follow:
                await self._follow(request)
            else:
                await self._link.logs(request.id, await self._answer(request, None))
        except LinkStale:
            self._log.debug("nobody waits for these log lines any more", request=request.id)
        except LinkError as cause:
            self._log.info("log lines not taken", request=request.id, why=str(cause))

    async def _answer(self, request: LogRequest, after: int | None) -> LogLines:
        return await asyncio.to_thread(answer, self._roster, request, self._clock.now(), after)

    async def _follow(self, request: LogRequest) -> None:
        """Until the log has ended, or nobody wants it any more."""
        after, seen, spoke_at = request.after, -1, -math.inf
        while True:
            quiet = self._clock.monotonic() - spoke_at >= SIGN_OF_LIFE_S
            folder, size = self._look(request)
            ended = folder is None or self._roster.has_ended(request.worker, folder)
            if quiet or ended or size != seen:
                told = await self._answer(request, after)
                seen = -1 if self._is_full(told, request) else size
                request = request.model_copy(update={"lines": CHUNK})
                if told.lines or told.missed or told.ended or quiet:
                    await self._deliver(request.id, told.model_copy(update={"follows": not told.ended}))
                    spoke_at = self._clock.monotonic()
                    if told.ended:
                        return
                after = max(told.next_seq - 1, after or 0)
            if seen >= 0:
                await self._clock.sleep(LOOK_S)

    def _look(self, request: LogRequest) -> tuple[Path | None, int]:
        """The directory and how much is in its log now."""
        folder = self._roster.folder_of(request.worker, request.epoch, request.previous, request.attempt)
        return folder, -1 if folder is None else logfile.size(folder)

    def _is_full(self, told: LogLines, request: LogRequest) -> bool:
        """Whether there may be more to read already."""
        return (
            len(told.lines) >= max(request.lines, 1)
            or sum(len(line) for line in told.lines) >= min(request.total_bytes, BYTES_MAX) // 2
        )

    async def _deliver(self, uid: str, lines: LogLines) -> None:
        """Until it is taken: a control plane that is away or busy is asked again, one that does not want it is not."""
        backoff = Backoff(self._rng)
        while True:
            try:
                await self._link.logs(uid, lines)
                return
            except LinkDown:
                await self._clock.sleep(backoff.next_s())
