"""The generic loop: keys are marked when something about them changed, and each is stepped once per mark.

load → decide → commit → act happens inside the step, which a loop file provides. Here: deadlines (a step says when to
look again), retries (a stale version means load again at once, a few times; any other error, and staleness that does
not end, backs off and is logged), a bound on concurrency so that one commit group carries many keys, and a slow resync
as the safety net, beside which marked keys go on. An idle loop sleeps until its next deadline.
"""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import structlog

from moorage.domain.errors import Fenced, StaleVersion
from moorage.ports import Clock

RETRY_S = 1.0
RETRY_MAX_S = 30.0
CONCURRENCY = 128
STALE_AT_ONCE = 5
"""Stale versions in a row after which the key is not stepped again at once."""
STALE_RETRY_S = 0.05
"""Seconds until the next try then, doubling: whoever else writes these rows is likely to be done soon."""

log = structlog.get_logger("moorage.control")


class KeyedLoop:
    """Steps keys when they are marked or due.

    Args:
        name: for the log.
        step: does one key; returns when to look again (seconds since the epoch) or None.
        clock: times.
        everything: all keys, for the first pass and the resync.
        resync_s: seconds between resyncs.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[str], Awaitable[float | None]],
        clock: Clock,
        everything: Callable[[], Awaitable[Iterable[str]]],
        *,
        resync_s: float = 120.0,
    ) -> None:
        self.name = name
        self._step = step
        self._clock = clock
        self._everything = everything
        self._resync_s = resync_s
        self._dirty: OrderedDict[str, None] = OrderedDict()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._due: dict[str, float] = {}
        self._deadlines: list[tuple[float, str]] = []
        """a heap of what is in `_due`, and of deadlines that were replaced since"""
        self._failures: dict[str, int] = {}
        self._stale: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._fenced: Fenced | None = None

    def mark(self, key: str) -> None:
        """Step this key soon."""
        self._dirty[key] = None
        self._wake.set()

    def mark_later(self, key: str, after_s: float) -> None:
        """Step this key in `after_s` seconds, unless it is marked or due before."""
        if key not in self._dirty:
            self._remind(key, self._clock.now() + after_s)

    def _remind(self, key: str, at: float) -> None:
        """Have the key stepped at that time, unless that is to be before."""
        if self._due.get(key, at + 1) > at:
            self._due[key] = at
            heapq.heappush(self._deadlines, (at, key))
            self._wake.set()

    @property
    def idle(self) -> bool:
        """Nothing marked and nothing running."""
        return not self._dirty and not self._running

    async def run(self) -> None:
        """Loop until cancelled. Begins with every key; may be run again, in a later leadership.

        Raises:
            Fenced: leadership passed on; nothing may be decided here any more.
        """
        self._fenced = None
        self._due.clear()
        self._deadlines.clear()
        resync = asyncio.create_task(self._resync())
        try:
            while self._fenced is None:
                self._start_due(self._clock.now())
                await self._sleep()
        finally:
            resync.cancel()
            for task in self._running.values():
                task.cancel()
            self._running.clear()
        raise self._fenced

    async def _resync(self) -> None:
        """Mark every key, now and again."""
        while True:
            wait_s = self._resync_s
            try:
                for key in await self._everything():
                    self.mark(key)
            except Exception:
                wait_s = RETRY_S
                log.exception("cannot list what there is", loop=self.name, again_in_s=wait_s)
            await self._clock.sleep(wait_s)

    def _start_due(self, now: float) -> None:
        while (at := self._next_deadline()) is not None and at <= now:
            _, key = heapq.heappop(self._deadlines)
            del self._due[key]
            self._dirty[key] = None
        busy: list[str] = []
        while self._dirty and len(self._running) < CONCURRENCY:
            key, _ = self._dirty.popitem(last=False)
            if key in self._running:
                busy.append(key)
                continue
            self._due.pop(key, None)
            self._running[key] = asyncio.create_task(self._one(key))
        self._dirty.update(dict.fromkeys(busy))

    def _next_deadline(self) -> float | None:
        """The earliest one, after those that were replaced are dropped."""
        heap = self._deadlines
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    async def _sleep(self) -> None:
        """Until something is marked, a step ended, or the next deadline."""
        if not (self._dirty.keys() - self._running.keys()) or len(self._running) >= CONCURRENCY:
            until = self._next_deadline()
            waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._wake.wait())]
            if until is not None:
                waits.append(asyncio.create_task(_sleep(self._clock, max(0.0, until - self._clock.now()))))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waits:
                    task.cancel()
        self._wake.clear()

    async def _one(self, key: str) -> None:
        try:
            at = await self._step(key)
            self._failures.pop(key, None)
            self._stale.pop(key, None)
            if at is not None:
                self._remind(key, at)
        except StaleVersion:
            self._again(key)
        except Fenced as error:
            self._fenced = error
        except asyncio.CancelledError:
            raise
        except Exception:
            self._back_off(key)
        finally:
            if self._running.get(key) is asyncio.current_task():
                del self._running[key]
            self._wake.set()

    def _again(self, key: str) -> None:
        times = self._stale[key] = self._stale.get(key, 0) + 1
        if times <= STALE_AT_ONCE:
            self._dirty[key] = None
            return
        wait_s = min(STALE_RETRY_S * 2.0 ** (times - STALE_AT_ONCE - 1), RETRY_MAX_S)
        self._remind(key, self._clock.now() + wait_s)
        if wait_s >= RETRY_S:
            log.warning("rows keep moving on under this step", loop=self.name, key=key, times=times, again_in_s=wait_s)

    def _back_off(self, key: str) -> None:
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        wait_s = min(RETRY_S * 2.0 ** (failures - 1), RETRY_MAX_S)
        self._remind(key, self._clock.now() + wait_s)
        log.exception("step failed", loop=self.name, key=key, failures=failures, again_in_s=wait_s)


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)
