"""Heads that came in one turn of the loop, which are worked on one after the other at its end.

The kernel's work on each read and write drives what a request needs of the interpreter out of the processor's caches.
Requests that are worked on together find it there, and their writes, which the loop puts off likewise, go out together
too (decision 0039). Only what begins a request or an answer waits, for the rest of one turn: parts of bodies and of
streams are passed on as they come.

Here: what waits. Not here: what is done with it (`frontend`, `upstream`). A connection of which more comes, or which
ends, does not wait any longer: it is worked on before that. Owned by `hub`; used by the connections.
"""

import asyncio
from typing import Final

TOGETHER_MAX: Final = 32
"""More are not put off, so that what waits stays small: each has at most one read of the loop's."""


class Arriving:
    """A connection of which something may have come that is not worked on yet."""

    __slots__ = ("late", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.late = b""
        """what came"""

    def arrived(self) -> None:
        """Work on what came, if that was not done meanwhile."""
        raise NotImplementedError


class Arrivals:
    """What came in this turn."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[Arriving] = []

    def add(self, arriving: Arriving, data: bytes) -> None:
        """Something came for one of which nothing waits."""
        arriving.late = data
        waiting = self._waiting
        if not waiting:
            self._loop.call_soon(self.settle)
        waiting.append(arriving)
        if len(waiting) >= TOGETHER_MAX:
            self.settle()

    def settle(self) -> None:
        """Work on all of it now."""
        waiting = self._waiting
        if not waiting:
            return
        self._waiting = []
        for arriving in waiting:
            try:
                arriving.arrived()
            except Exception as error:  # as the loop has it: an error ends one connection, and the others go on
                told = {"message": "a connection failed", "exception": error, "transport": arriving.transport}
                self._loop.call_exception_handler(told)
                arriving.transport.abort()
