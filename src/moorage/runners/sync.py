"""`moorage.runners.sync.ModelRunner`: the runner library for programs without an event loop. No twin: that very one.

Every method runs the asynchronous runner's method of the same name on an event loop in a thread of the runner's own
(`ainvoke` is `invoke` here, `astream` is `stream`). The SDK's blocking client drives its coroutines without any loop,
since a client acts only while it is called; a runner must watch and restart its servers while nobody calls, so
somebody has to run, and that is this thread. Its methods may be called from any number of threads.

A program that ends without `shutdown` takes the thread with it, and its servers with the leash
(`shimming/leash.py`).
"""

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Self

from moorage.runners.library.runner import ModelRunner as AsyncModelRunner

__all__ = ["ModelRunner"]

CALLED_HERE = {"ainvoke": "invoke", "astream": "stream"}


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="moorage-runner", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Its result. Whatever interrupts the wait (Ctrl-C) cancels the work."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the blocking runner was called from its own event loop: it would wait for itself")
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the runner's thread has ended: it was shut down")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class ModelRunner:
    """`moorage.runners.ModelRunner`, blocking; made with the same arguments.

    As a context manager it shuts down at the end of the block.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._inner = AsyncModelRunner(*args, **kwargs)
        self._loop = _Loop()
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """As the asynchronous runner's; ends the thread too. A second call does nothing."""
        if not self._over:
            self._over = True
            self._loop.run(self._inner.shutdown())
            self._loop.close()

    def _call(self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._over:
            self._inner.refuse()

        async def work() -> Any:
            made = method(self._inner, *args, **kwargs)
            return await made if inspect.isawaitable(made) else made

        value = self._loop.run(work())
        return self._iterate(value) if isinstance(value, AsyncGenerator) else value

    def _iterate(self, items: AsyncGenerator[Any, None]) -> Iterator[Any]:
        try:
            while True:
                try:
                    item = self._loop.run(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if not self._over:
                self._loop.run(_close(items))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


async def _next(items: AsyncIterator[Any]) -> Any:
    return await items.__anext__()


async def _close(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


def _blocked(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: ModelRunner, *args: Any, **kwargs: Any) -> Any:
        return self._call(method, args, kwargs)

    call.__name__ = name
    call.__qualname__ = f"ModelRunner.{name}"
    return call


for _name, _method in inspect.getmembers(AsyncModelRunner, inspect.isfunction):
    _here = CALLED_HERE.get(_name, _name)
    if not _here.startswith("_") and _here not in ("shutdown", "refuse"):
        setattr(ModelRunner, _here, _blocked(_here, _method))
