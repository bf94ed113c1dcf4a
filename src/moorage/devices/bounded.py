"""Blocking looks at a machine that never block who asks: each in a thread of its own, waited for so long and no longer.

A thread that hangs in a driver cannot be ended. It is left alone (a daemon, so that it keeps no program from ending),
and no second one is started while it hangs. asyncio's own pool of threads would be the wrong place: its end waits for
every thread in it.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from moorage.devices.port import DevicesUnavailable
from moorage.ports import Clock

T = TypeVar("T")


class Bounded(Generic[T]):
    """One blocking question, asked again and again.

    Args:
        ask: the question; runs in a thread.
        clock: for the bound.
        limit_s: how long an answer is waited for.
        what: whose answer it is, for the message.
    """

    def __init__(self, ask: Callable[[], T], clock: Clock, limit_s: float, what: str) -> None:
        self._ask = ask
        self._clock = clock
        self._limit_s = limit_s
        self._what = what
        self._asked: asyncio.Future[T] | None = None

    @property
    def busy(self) -> bool:
        """Whether an answer is still awaited, by whoever asked last or by nobody any more."""
        return self._asked is not None and not self._asked.done()

    async def __call__(self) -> T:
        """The answer; one that an earlier call waited for in vain is taken when it came meanwhile.

        Raises:
            DevicesUnavailable: none came in time; and whatever the question raises.
        """
        if self._asked is None:
            self._asked = asyncio.get_running_loop().create_future()
            _start(self._ask, self._asked)
        asked = self._asked
        bound = asyncio.ensure_future(self._clock.sleep(self._limit_s))
        ends: set[asyncio.Future[Any]] = {asked, bound}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            bound.cancel()
        if not asked.done():
            raise DevicesUnavailable(f"{self._what} has not answered for {self._limit_s:g} s", code="gpu_driver_hangs")
        self._asked = None
        return asked.result()


def _start(ask: Callable[[], T], asked: "asyncio.Future[T]") -> None:
    loop = asyncio.get_running_loop()

    def deliver(answer: T | None, failure: BaseException | None) -> None:
        if asked.done():
            return
        if failure is not None:
            asked.set_exception(failure)
        else:
            asked.set_result(answer)  # type: ignore[arg-type]  # T may itself be optional

    def work() -> None:
        answer: T | None = None
        failure: BaseException | None = None
        try:
            answer = ask()
        except Exception as cause:
            failure = cause
        try:
            loop.call_soon_threadsafe(deliver, answer, failure)
        except RuntimeError:
            return  # the loop ended while this hung: nobody waits any more

    threading.Thread(target=work, name="look", daemon=True).start()
