"""How long a machine lets something take: a preparation that stands still, and a run past its time.

Durations on a clock that never steps. On Linux that clock is one of the machine and not of the process, so a moment
on it that the ledger keeps still holds for an agent that was started again (not after a reboot, which ends what was
timed anyway). Called by `preparing` and `held`.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from moorage.domain.errors import RunnerError
from moorage.ports import Clock

T = TypeVar("T")


class NoProgress(RunnerError):
    """A preparation stood still for too long.

    Args:
        step: what it was at.
        limit_s: for so long.
    """

    code = "prepare_timed_out"

    def __init__(self, step: str, limit_s: float) -> None:
        super().__init__(f"no progress for {limit_s:g} s: {step}", retryable=True)
        self.step = step
        self.limit_s = limit_s


class ProgressLimit:
    """Ends work in which nothing moves for a time. A new step is progress, and so is what `moved` tells of.

    Args:
        limit_s: seconds without progress.
        clock: theirs.
    """

    def __init__(self, limit_s: float, clock: Clock) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._step = "beginning"
        self._moved_at = clock.monotonic()
        self._off = False

    def at(self, step: str) -> None:
        """The next step begins.

        Args:
            step: as `prepare.timed_out` names it to people.
        """
        self._step, self._off = step, False
        self.moved()

    def moved(self) -> None:
        """Something came nearer (a drive filled further)."""
        self._moved_at = self._clock.monotonic()

    def off(self) -> None:
        """What is done now has a limit of its own, or waits for others (a pull, a barrier); `at` puts it on again."""
        self._off = True

    async def within(self, work: Coroutine[Any, Any, T]) -> T:
        """Await some work under this limit. Cancelling this cancels the work.

        Raises:
            NoProgress: nothing moved for too long; the work was cancelled.
        """
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                if self._left_s() <= 0:
                    raise NoProgress(self._step, self._limit_s)
                pause = asyncio.ensure_future(self._clock.sleep(self._left_s()))
                try:
                    await asyncio.wait({task, pause}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    pause.cancel()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _left_s(self) -> float:
        if self._off:
            return self._limit_s
        return self._moved_at + self._limit_s - self._clock.monotonic()


async def until(clock: Clock, at: float) -> None:
    """Wait for a moment of the clock that never steps."""
    while (left_s := at - clock.monotonic()) > 0:
        await clock.sleep(left_s)
