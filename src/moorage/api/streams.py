"""Long-polls and streams: waiting for something to say without outliving the client or the server.

Called by the routes that wait.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from moorage.ports import Clock

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


async def while_connected(request: Request, closing: asyncio.Event, waiting: Coroutine[Any, Any, T]) -> T | None:
    """The result of a long-poll, or None when the server closes first.

    The body of the request must have been read (a GET has none).

    Raises:
        ClientGone: the client went first; the wait was cancelled.
    """
    work = asyncio.create_task(waiting)
    gone = asyncio.create_task(_disconnected(request))
    over = asyncio.create_task(closing.wait())
    tasks: set[asyncio.Task[Any]] = {work, gone, over}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        if over.done():
            return None
        raise ClientGone
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def paced(
    source: AsyncIterator[T], closing: asyncio.Event, clock: Clock, quiet_s: float
) -> AsyncIterator[T | None]:
    """Items as they come, and None each time `quiet_s` seconds passed without one; ends with the server."""
    over = asyncio.create_task(closing.wait())
    pull: asyncio.Task[T] | None = None
    try:
        while True:
            pull = pull or asyncio.create_task(_next(source))
            quiet = asyncio.create_task(_sleep(clock, quiet_s))
            waited: set[asyncio.Task[Any]] = {pull, over, quiet}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            quiet.cancel()
            if pull.done():
                try:
                    item = pull.result()
                except StopAsyncIteration:
                    return
                pull = None
                yield item
            elif over.done():
                return
            else:
                yield None
    finally:
        over.cancel()
        if pull is not None:
            pull.cancel()
            await asyncio.gather(pull, return_exceptions=True)
        close = getattr(source, "aclose", None)  # a generator; other iterators hold nothing open
        if close is not None:
            await close()


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
