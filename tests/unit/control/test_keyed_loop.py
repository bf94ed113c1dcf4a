"""The generic loop: woken or due, never polling; stale is again, an error backs off, and being fenced ends it."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from moorage.control.cycle import STALE_AT_ONCE, KeyedLoop
from moorage.domain.errors import Fenced, StaleVersion


class HandClock:
    """Stands still until it is moved, and knows until when somebody sleeps."""

    def __init__(self) -> None:
        self.at = 1000.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.at + seconds, next(self._order), waker))
        await waker

    @property
    def next_wake(self) -> float | None:
        """When the earliest sleeper that still waits is due."""
        return min((at for at, _, w in self._sleepers if not w.done()), default=None)

    def advance(self, seconds: float) -> None:
        self.at += seconds
        for at, _, waker in self._sleepers:
            if at <= self.at and not waker.done():
                waker.set_result(None)


class Steps:
    """Records steps; what each key's next steps do is a queue of answers or errors."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.then: dict[str, list[float | Exception | None]] = {}
        self.running = 0
        self.most = 0

    async def __call__(self, key: str) -> float | None:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            self.done.append(key)
            todo = self.then.get(key) or [None]
            answer = todo.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        finally:
            self.running -= 1


async def turns(loop: KeyedLoop, holds: Callable[[], bool] = lambda: True) -> None:
    """Let the loop do what it can without time passing."""
    for _ in range(2000):
        await asyncio.sleep(0)
        if loop.idle and holds():
            return
    raise AssertionError("the loop does not come to rest")


@asynccontextmanager
async def running(keys: list[str], **more: float) -> AsyncIterator[tuple[KeyedLoop, Steps, HandClock]]:
    clock, steps = HandClock(), Steps()

    async def everything() -> list[str]:
        return keys

    loop = KeyedLoop("test", steps, clock, everything, **more)
    task = asyncio.create_task(loop.run())
    await turns(loop, lambda: len(steps.done) >= len(keys))
    try:
        yield loop, steps, clock
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Fenced):
            await task


async def test_every_key_is_stepped_first_and_then_only_when_marked() -> None:
    async with running(["a", "b"]) as (loop, steps, clock):
        assert sorted(steps.done) == ["a", "b"]
        clock.advance(100.0)
        await turns(loop)
        assert len(steps.done) == 2
        loop.mark("b")
        loop.mark("b")
        await turns(loop, lambda: len(steps.done) == 3)
        assert steps.done[2:] == ["b"]


async def test_an_idle_loop_sleeps_until_its_own_next_deadline() -> None:
    async with running(["a"], resync_s=900.0) as (loop, steps, clock):
        assert clock.next_wake == 1900.0
        steps.then["a"] = [1050.0]
        loop.mark("a")
        await turns(loop, lambda: len(steps.done) == 2 and clock.next_wake == 1050.0)
        clock.advance(49.0)
        await turns(loop)
        assert len(steps.done) == 2
        clock.advance(1.0)
        await turns(loop, lambda: len(steps.done) == 3)


async def test_a_newer_deadline_replaces_an_older_one() -> None:
    async with running(["a"]) as (loop, steps, clock):
        steps.then["a"] = [1010.0, 1020.0]
        loop.mark("a")
        await turns(loop, lambda: len(steps.done) == 2)
        loop.mark("a")
        await turns(loop, lambda: len(steps.done) == 3)
        clock.advance(15.0)
        await turns(loop)
        assert len(steps.done) == 3
        clock.advance(5.0)
        await turns(loop, lambda: len(steps.done) == 4)


async def test_a_deadline_asked_for_while_a_key_is_stepped_outlives_that_step() -> None:
    clock, done, let_go = HandClock(), [], asyncio.Event()

    async def step(key: str) -> float | None:
        done.append(key)
        if len(done) == 1:
            await let_go.wait()
        return None

    async def everything() -> list[str]:
        return ["a"]

    loop = KeyedLoop("test", step, clock, everything)
    task = asyncio.create_task(loop.run())
    while not done:
        await asyncio.sleep(0)
    loop.mark_later("a", 0.5)
    let_go.set()
    await turns(loop)
    clock.advance(0.5)
    await turns(loop, lambda: len(done) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_marked_keys_are_stepped_while_everything_is_still_being_listed() -> None:
    clock, steps, listed = HandClock(), Steps(), asyncio.Event()

    async def everything() -> list[str]:
        await listed.wait()
        return ["a"]

    loop = KeyedLoop("test", steps, clock, everything)
    task = asyncio.create_task(loop.run())
    loop.mark("b")
    await turns(loop, lambda: steps.done == ["b"])
    listed.set()
    await turns(loop, lambda: steps.done == ["b", "a"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_slow_resync_steps_everything_again() -> None:
    async with running(["a", "b"], resync_s=120.0) as (loop, steps, clock):
        clock.advance(120.0)
        await turns(loop, lambda: len(steps.done) == 4)
        assert sorted(steps.done) == ["a", "a", "b", "b"]


async def test_a_stale_version_is_tried_again_at_once() -> None:
    async with running(["a"]) as (loop, steps, _):
        steps.then["a"] = [StaleVersion("moved on"), None]
        loop.mark("a")
        await turns(loop, lambda: len(steps.done) == 3)


async def test_staleness_that_does_not_end_backs_off() -> None:
    async with running(["a"]) as (loop, steps, clock):
        steps.then["a"] = [StaleVersion("moved on") for _ in range(100)]
        loop.mark("a")
        await turns(loop, lambda: len(steps.done) == 1 + STALE_AT_ONCE + 1)
        clock.advance(1.0)
        await turns(loop, lambda: len(steps.done) == 1 + STALE_AT_ONCE + 2)


async def test_an_error_backs_off_doubling_and_the_other_keys_go_on() -> None:
    async with running(["a", "b"]) as (loop, steps, clock):
        steps.then["a"] = [ValueError("broken"), ValueError("broken"), None]
        loop.mark("a")
        loop.mark("b")
        await turns(loop, lambda: len(steps.done) == 4)
        clock.advance(1.0)
        await turns(loop, lambda: len(steps.done) == 5)
        clock.advance(1.0)
        await turns(loop)
        assert len(steps.done) == 5, "the second wait is two seconds"
        clock.advance(1.0)
        await turns(loop, lambda: len(steps.done) == 6)


async def test_one_key_is_never_stepped_twice_at_the_same_time() -> None:
    async with running(["a"]) as (loop, steps, _):
        for _ in range(5):
            loop.mark("a")
            await asyncio.sleep(0)
        await turns(loop)
        assert steps.most == 1


async def test_being_fenced_ends_the_loop_and_a_later_leadership_runs_it_again() -> None:
    clock, steps = HandClock(), Steps()

    async def everything() -> list[str]:
        return ["a"]

    loop = KeyedLoop("test", steps, clock, everything)
    steps.then["a"] = [Fenced("passed on"), None]
    with pytest.raises(Fenced):
        await loop.run()
    task = asyncio.create_task(loop.run())
    await turns(loop, lambda: len(steps.done) == 2)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_loop_outlives_a_store_that_cannot_list() -> None:
    clock, steps, broken = HandClock(), Steps(), [OSError("away")]

    async def everything() -> list[str]:
        if broken:
            raise broken.pop()
        return ["a"]

    loop = KeyedLoop("test", steps, clock, everything)
    task = asyncio.create_task(loop.run())
    await turns(loop, lambda: clock.next_wake == 1001.0)
    clock.advance(1.0)
    await turns(loop, lambda: steps.done == ["a"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
