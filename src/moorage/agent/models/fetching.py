"""One fetch of a model, for all who wait for it: tries until it is whole, and how far it is meanwhile.

What stays so ends it; a hub that is away or busy is asked again after a pause that doubles, and each try goes on from
what came before. Who waits decides how long nothing may come. Made by `cache`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from moorage.domain.sources import HubSource
from moorage.ports import Clock
from moorage.sources.hub import Hub, SourceError
from moorage.sources.messages import Plan

PAUSE_S, PAUSE_MAX_S = 1.0, 60.0
CORRUPT_TRIES = 3
"""So often a file that is not what the hub names is fetched again: a broken connection is one thing, a broken mirror
another."""
RATE_S = 10.0
"""The rate is that of the last so many seconds."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fetch is.

    Args:
        done, total: bytes; total is 0 until the hub has said.
        rate: bytes a second of late.
        trouble: why nothing comes just now.
    """

    done: int = 0
    total: int = 0
    rate: int = 0
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What is fetched.

    Args:
        source, token: what, and by which right.
        folder: where it comes, with what is there already.
        planned: awaited before anything comes; raises where there is no room.
    """

    source: HubSource
    token: str | None = field(repr=False)
    folder: str
    planned: Callable[[Plan], Awaitable[None]]


class Fetch:
    """Fetches one source with its commit into a folder.

    Args:
        hub: asked.
        job: what is fetched.
        clock, log: of the agent.
    """

    def __init__(self, hub: Hub, job: Job, clock: Clock, log: structlog.stdlib.BoundLogger) -> None:
        self.source = job.source
        self.token = job.token
        self.waiting = 0
        self.last_error: SourceError | None = None
        self.moved_at = clock.monotonic()
        self.plan: Plan | None = None
        self._hub = hub
        self._job = job
        self._clock = clock
        self._log = log.bind(model=str(job.source))
        self._done = 0
        self._best = 0
        self._seen: deque[tuple[float, int]] = deque()
        self._trouble: str | None = None
        self._news = asyncio.Event()

    @property
    def progress(self) -> Progress:
        """How far it is."""
        total = self.plan.size if self.plan is not None else 0
        return Progress(self._done, total, self._rate(), self._trouble)

    async def files(self) -> list[dict[str, Any]]:
        """Fetch it, whatever it takes; {path, size, sha256, proven} of each file.

        Raises:
            SourceError: it stays so.
        """
        pause_s, corrupt = PAUSE_S / 2, 0
        while True:
            before = self._best
            try:
                return await self._hub.fetch(
                    self.source, self.token, self._job.folder, planned=self._plan, moved=self._moved
                )
            except SourceError as cause:
                self.last_error, self._trouble = cause, cause.message
                self._news.set()
                corrupt += cause.kind == "corrupt"
                if cause.kind not in ("busy", "corrupt") or corrupt >= CORRUPT_TRIES:
                    raise
                pause_s = PAUSE_S if self._best > before else min(pause_s * 2, PAUSE_MAX_S)
                self._log.info("fetch interrupted", why=cause.message, again_in_s=pause_s)
            self._seen.clear()
            await self._clock.sleep(pause_s)

    async def news(self) -> None:
        """Until more has come."""
        self._news.clear()
        await self._news.wait()

    async def _plan(self, plan: Plan) -> None:
        self.plan = plan
        await self._job.planned(plan)

    def _moved(self, done: int, came: int) -> None:
        """Bytes are here. What came again after a break is no progress until it is more than before."""
        now = self._clock.monotonic()
        if done > self._best or (came == 0 and done > self._done):  # or what was here is being proven again
            self._best, self.moved_at = max(done, self._best), now
        self._done, self._trouble = done, None
        self._seen.append((now, came))
        while now - self._seen[0][0] > RATE_S:
            self._seen.popleft()
        self._news.set()

    def _rate(self) -> int:
        if len(self._seen) < 2:
            return 0
        (first, had), (last, has) = self._seen[0], self._seen[-1]
        return max(int((has - had) / (last - first)), 0) if last > first else 0
