"""What the control plane asks beside the work: each request served once, side by side with the others.

A request is told again with every `Work` until it is answered, so that one that is being served is not begun again; an
error of ours in one is logged and ends that one alone. What is being served when the agent ends is cancelled with its
event loop. Called by the desks for logs, commands and drives.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar

import structlog


class Request(Protocol):
    """What can be asked."""

    @property
    def id(self) -> str:
        """By which it is known again."""
        ...


R = TypeVar("R", bound=Request)


class Asked(Generic[R]):
    """The requests of one kind.

    Args:
        serve: does one.
        log: told of an error that it did not expect.
    """

    def __init__(self, serve: Callable[[R], Awaitable[None]], log: structlog.stdlib.BoundLogger) -> None:
        self._serve = serve
        self._log = log
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def take(self, requests: Iterable[R]) -> None:
        """Begin to serve those that are new."""
        for request in requests:
            if request.id not in self._tasks:
                self._tasks[request.id] = asyncio.create_task(self._one(request))

    async def _one(self, request: R) -> None:
        try:
            await self._serve(request)
        except Exception:
            self._log.exception("internal error", request=request.id)
        finally:
            self._tasks.pop(request.id, None)
