"""What the store's tests share: a clock by hand, short spellings of changes, and waiting with a deadline."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from moorage.clock import SystemClock
from moorage.domain.changes import Change, Committed, Create, Fence, HistoryRow, Key, Step, Update, Write
from moorage.domain.nouns import Deployment, Noun, Run, Worker
from moorage.domain.reasons import Reason, ReasonClass
from moorage.ports import Store

WAIT_S = 90.0
"""Bound of every wait: far above what a working store needs, so that only a broken one meets it."""

PATH = (
    ("Preparing", "picked_up"),
    ("Pulling", "pulling"),
    ("Starting", "started"),
    ("Running", "running"),
)


class Clock:
    """A clock that stands still until it is moved; its sleeps are real, since it drives timers of real waits."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await SystemClock().sleep(min(seconds, 0.05))


def why(code: str = "tested", **params: Any) -> Reason:
    return Reason(code, ReasonClass.PROGRESS, f"{code} {params}", params)


def change(*writes: Write, key: Key | None = None, fence: Fence | None = None) -> Change:
    return Change(tuple(writes), "controller:test", key, fence)


def new(row: Noun, reason: Reason | None = None) -> Create:
    return Create(row, reason or why("created"))


def worker(uid: str, **fields: Any) -> Worker:
    return Worker(uid=uid, name=uid, run=fields.pop("run", "run-1"), **fields)


def deployment(uid: str, name: str, namespace: str = "default") -> Deployment:
    return Deployment(uid=uid, name=name, namespace=namespace, spec={"model": "m"})


def run(uid: str, name: str, **fields: Any) -> Run:
    return Run(uid=uid, name=name, **fields)


def moved(uid: str, version: int, to: int = 1, **fields: Any) -> Update:
    """A worker's step number `to` along `PATH`, from the state before it."""
    state, trigger = PATH[to - 1]
    return Update("Worker", uid, version, (Step(state, trigger, why(f"step_{to}")),), fields)


def noted(uid: str, version: int, code: str = "seen", kind: str = "Worker") -> Update:
    return Update(kind, uid, version, notes=(why(code),))


async def count_up(store: Store, uid: str, times: int) -> int:
    """Load and note until it has been done `times`; stale answers are tried again. The answer: how many were stale."""
    stale = done = 0
    from moorage.domain.errors import StaleVersion

    while done < times:
        row = await store.get(Worker, uid)
        assert row is not None
        try:
            await store.commit(change(noted(uid, row.version)))
            done += 1
        except StaleVersion:
            stale += 1
    return stale


async def soon(answer: Any) -> Any:
    """The result, or a failure when it takes far too long."""
    return await asyncio.wait_for(answer, WAIT_S)


async def follow_until(feed: AsyncIterator[Sequence[HistoryRow]], count: int) -> list[HistoryRow]:
    """Rows of a follower until there are at least `count`."""
    seen: list[HistoryRow] = []
    while len(seen) < count:
        seen += await soon(anext(feed))
    return seen


async def refused(committing: Any, error: type[Exception]) -> Exception:
    """The error that a commit must fail with."""
    try:
        done: Committed = await committing
    except error as caught:
        return caught
    raise AssertionError(f"committed {done} instead of failing with {error.__name__}")
