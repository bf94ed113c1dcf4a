"""The generic loop: keys are marked when something about them changed, and each is stepped once per mark.

load → decide → commit → act happens inside the step, which a loop file provides. Here: deadlines (a step says when to
look again), retries (a stale version means load again at once, a few times; any other error, and staleness that does
not end, backs off and is logged), a bound on concurrency so that one commit group carries many keys, and a slow resync
as the safety net. An idle loop sleeps until its next deadline.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from moorage.domain.errors import Fenced, StaleVersion
from moorage.ports import Clock

RETRY_S = 1.0
RETRY_MAX_S = 30.0
CONCURRENCY = 128
STALE_AT_ONCE = 5
"""Stale versions in a row after which the key is not stepped again at once."""

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
        self._dirty: dict[str, None] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._due: dict[str, float] = {}
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
        at = self._clock.now() + after_s
        if key not in self._dirty and self._due.get(key, at + 1) > at:
            self._due[key] = at
            self._wake.set()

    def forget(self, key: str) -> None:
        """The key's object is gone."""
        self._due.pop(key, None)
        self._failures.pop(key, None)
        self._stale.pop(key, None)

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
        resync_at = self._clock.now()
        try:
            while self._fenced is None:
                now = self._clock.now()
                if now >= resync_at:
                    resync_at = now + await self._resync()
                self._start_due(now)
                await self._sleep(resync_at)
        finally:
            for task in self._running.values():
                task.cancel()
            self._running.clear()
        raise self._fenced

    async def _resync(self) -> float:
        """Mark every key; seconds until the next time."""
        try:
            keys = await self._everything()
        except Exception:
            log.exception("cannot list what there is", loop=self.name, again_in_s=RETRY_S)
            return RETRY_S
        for key in keys:
            self.mark(key)
        return self._resync_s

    def _start_due(self, now: float) -> None:
        for key in [k for k, at in self._due.items() if at <= now]:
            del self._due[key]
            self._dirty[key] = None
        for key in list(self._dirty):
            if len(self._running) >= CONCURRENCY:
                break
            if key in self._running:
                continue
            del self._dirty[key]
            self._running[key] = asyncio.create_task(self._one(key))

    async def _sleep(self, resync_at: float) -> None:
        """Until something is marked, a step ended, or the next deadline."""
        if not (self._dirty.keys() - self._running.keys()) or len(self._running) >= CONCURRENCY:
            until = min([resync_at, *self._due.values()])
            seconds = max(0.0, until - self._clock.now())
            waker = asyncio.create_task(self._wake.wait())
            timer = asyncio.create_task(_sleep(self._clock, seconds))
            try:
                await asyncio.wait((waker, timer), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waker.cancel()
                timer.cancel()
        self._wake.clear()

    async def _one(self, key: str) -> None:
        try:
            at = await self._step(key)
            self.forget(key)
            if at is not None:
                self._due[key] = at
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
        self._stale[key] = self._stale.get(key, 0) + 1
        if self._stale[key] <= STALE_AT_ONCE:
            self._dirty[key] = None
        else:
            self._back_off(key)

    def _back_off(self, key: str) -> None:
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        wait_s = min(RETRY_S * 2.0 ** (failures - 1), RETRY_MAX_S)
        self._due[key] = self._clock.now() + wait_s
        log.exception("step failed", loop=self.name, key=key, failures=failures, again_in_s=wait_s)


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)
