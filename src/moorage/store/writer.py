"""The one writer of a store: a thread that commits what is queued in groups, one transaction and one fsync a group.

Items stay apart: a stale, conflicting, fenced or illegal one fails alone, with everything it wrote dropped in
memory; one that the database refuses (a poisonous one) is found by halving the group and fails alone too. A caller
hears of success only after the commit. A caller that goes away leaves its item in the group: it is written or not as
if it had stayed.

Called by `store.py` on the event loop; nothing here awaits, and in a transaction only the database is waited for.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError

from moorage.domain.changes import Change
from moorage.domain.errors import Conflict, InvalidSpec, MoorageError, Unavailable
from moorage.ports import Clock
from moorage.store.batch import Applier
from moorage.store.flush import Flusher
from moorage.store.group import Group
from moorage.store.load import Loader

GROUP_MAX = 1024
"""Items of one transaction: past this the fsync is a small part of the cost and waiting longer only adds latency."""

TRIES_MAX = 4
"""Tries of a group that lost a deadlock, a lock or its connection before the commit."""

RETRY_DELAY_S = 0.2
"""Between two tries, so that a database which restarts is not hammered."""

_RETRIED_SQLSTATES = frozenset({"40001", "40P01", "55P03"})
"""Serialisation failure, deadlock, lock not available."""

Task = Callable[[sa.Connection, float], Any]
"""Work that needs a write transaction of its own: (connection, now) -> answer."""


class _Several:
    """Who waits for the answers to several changes: given in their order, whatever groups they came into."""

    __slots__ = ("answers", "count", "future")

    def __init__(self, count: int, future: "asyncio.Future[list[Any]]") -> None:
        self.count = count
        self.future = future
        self.answers: list[Any] = []

    def take(self, answer: Any) -> None:
        self.answers.append(answer)
        if len(self.answers) == self.count and not self.future.done():
            self.future.set_result(self.answers)


_Item = tuple[Change | Task, "asyncio.Future[Any] | _Several"]


@dataclass(frozen=True, slots=True)
class WriterParts:
    """What a writer is composed of."""

    engine: sa.Engine
    loader: Loader
    applier: Applier
    flusher: Flusher
    clock: Clock


class Writer:
    """Commits queued items.

    Args:
        parts: engine and rules.
        committed: called on the event loop after each group that may have written.
    """

    def __init__(self, parts: WriterParts, committed: Callable[[], None]) -> None:
        self._parts = parts
        self._committed = committed
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Item] = []
        self._queue: queue.SimpleQueue[list[_Item] | None] = queue.SimpleQueue()
        self._connection: sa.Connection | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moorage-store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Change | Task) -> "asyncio.Future[Any]":
        """Queue a change (answer: `Committed`) or a task (answer: its own); the future fails with the item's error."""
        if self._stopping.is_set():
            raise Unavailable("the store is closed", retryable=False)
        future = self._loop.create_future()
        if not self._waiting:
            # What else is submitted in this turn of the loop comes along: a burst is one group, not one and the rest.
            self._loop.call_soon(self._hand_over)
        self._waiting.append((work, future))
        return future

    def submit_each(self, changes: Sequence[Change]) -> "asyncio.Future[list[Any]]":
        """Queue changes; the answer of each (`Committed`, or the error it fails with) in their order."""
        if self._stopping.is_set():
            raise Unavailable("the store is closed", retryable=False)
        several = _Several(len(changes), self._loop.create_future())
        if not self._waiting:
            self._loop.call_soon(self._hand_over)
        self._waiting += [(change, several) for change in changes]
        return several.future

    def _hand_over(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._queue.put(waiting)

    async def close(self) -> None:
        """Commit what is queued, then end."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._hand_over()
            self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    # --- everything below runs in the writer's thread ---

    def _run(self) -> None:
        while True:
            items, last = self._collect()
            for batch in _batches(items):
                self._answer(batch, self._batch(batch))
            if last:
                break
        self._disconnect()

    def _collect(self) -> tuple[list[_Item], bool]:
        """Wait for items and take what else is there; whether these are the last."""
        taken = self._queue.get()
        items: list[_Item] = []
        while taken is not None:
            items += taken
            try:
                taken = self._queue.get_nowait()
            except queue.Empty:
                return items, False
        return items, True

    def _answer(self, items: Sequence[_Item], answers: Sequence[Any]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, items, answers)
        except RuntimeError:
            # The loop was closed before its store: nobody is left to tell, and what was written stays written.
            self._stopping.set()

    def _deliver(self, items: Sequence[_Item], answers: Sequence[Any]) -> None:
        for (_, waits), answer in zip(items, answers, strict=True):
            if isinstance(waits, _Several):
                waits.take(answer)
            elif waits.done():
                continue
            elif isinstance(answer, Exception):
                waits.set_exception(answer)
            else:
                waits.set_result(answer)
        self._committed()

    def _batch(self, items: Sequence[_Item]) -> list[Any]:
        """The answer of each item: a value or the exception it fails with. Never raises."""
        try:
            return self._tried(items)
        except Exception as error:
            self._reset_after(error)
            if _is_outage(error):
                return [_outage(error)] * len(items)
            if len(items) > 1:
                half = len(items) // 2
                return [*self._batch(items[:half]), *self._batch(items[half:])]
            return [self._alone(items[0], error)]

    def _alone(self, item: _Item, error: Exception) -> Any:
        """The answer of an item that the database refused by itself."""
        if isinstance(error, IntegrityError):
            # Another process may have taken the name, key or GPU between our look and our write; look once more.
            try:
                return self._tried([item])[0]
            except Exception as again:
                self._reset_after(again)
                error = again
        return _refusal(error)

    def _tried(self, items: Sequence[_Item]) -> list[Any]:
        """Run the transaction, again where it is certain that nothing was written and a repeat can help."""
        for _ in range(TRIES_MAX - 1):
            try:
                return self._transaction(items)
            except (OperationalError, InterfaceError) as error:
                if not _may_repeat(error):
                    raise
                self._reset_after(error)
                self._stopping.wait(RETRY_DELAY_S if error.connection_invalidated else 0)
        return self._transaction(items)

    def _transaction(self, items: Sequence[_Item]) -> list[Any]:
        connection = self._connected()
        transaction = connection.begin()
        try:
            now, (first, _) = self._parts.clock.now(), items[0]
            if isinstance(first, Change):
                group, answers = self._group(connection, items, now)
            else:
                group, answers = None, [self._task(first, connection, now)]
        except BaseException:
            if transaction.is_active:
                transaction.rollback()
            raise
        try:
            transaction.commit()
        except DBAPIError as error:
            raise _CommitFailed(error) from error
        if group is not None:
            self._parts.loader.keep(group)
        return answers

    def _task(self, task: Task, connection: sa.Connection, now: float) -> Any:
        try:
            return task(connection, now)
        finally:
            self._parts.loader.forget()

    def _group(self, connection: sa.Connection, items: Sequence[_Item], now: float) -> tuple[Group, list[Any]]:
        parts = self._parts
        changes = [work for work, _ in items if isinstance(work, Change)]
        group = parts.loader.load(connection, changes, now)
        answers = parts.applier.apply_each(group, changes)
        parts.flusher.flush(connection, group)
        return group, answers

    def _connected(self) -> sa.Connection:
        if self._connection is None:
            self._connection = self._parts.engine.connect()
        return self._connection

    def _reset_after(self, error: Exception) -> None:
        self._parts.loader.forget()
        if isinstance(error, DBAPIError | _CommitFailed):
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except DBAPIError:
                # A broken connection cannot be closed politely; the pool discards it.
                connection.invalidate()


class _CommitFailed(Exception):
    """COMMIT itself failed: nobody knows whether it was written."""


def _batches(items: Sequence[_Item]) -> list[list[_Item]]:
    """Runs of changes, none longer than `GROUP_MAX`; a task stands alone, in its place."""
    out: list[list[_Item]] = []
    joined = False
    for item in items:
        is_change = isinstance(item[0], Change)
        if is_change and joined and len(out[-1]) < GROUP_MAX:
            out[-1].append(item)
        else:
            out.append([item])
        joined = is_change
    return out


def _sqlstate(error: Exception) -> str | None:
    return getattr(getattr(error, "orig", None), "sqlstate", None)


def _is_busy(error: Exception) -> bool:
    return getattr(getattr(error, "orig", None), "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _may_repeat(error: DBAPIError) -> bool:
    return error.connection_invalidated or _is_busy(error) or _sqlstate(error) in _RETRIED_SQLSTATES


def _is_outage(error: Exception) -> bool:
    """The database's fault, not an item's."""
    if isinstance(error, _CommitFailed):
        return True
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    name = getattr(error.orig, "sqlite_errorname", None)
    return name is not None or _may_repeat(error) or _sqlstate(error) is None


def _outage(error: Exception) -> MoorageError:
    if isinstance(error, _CommitFailed):
        return Unavailable(
            f"the database failed while committing, so it is not known whether this was written: {error}",
            remedy="load again; repeat with the same idempotency key",
        )
    return Unavailable(
        f"cannot write to the database: {getattr(error, 'orig', error)}",
        remedy="see that it runs, is reachable and has room on its disk; nothing was written",
    )


def _refusal(error: Exception) -> Exception:
    if isinstance(error, MoorageError):
        return error
    if isinstance(error, IntegrityError):
        return Conflict(f"cannot write: it contradicts what is recorded: {error.orig}", remedy="load again")
    if isinstance(error, DBAPIError | TypeError | ValueError | OverflowError):
        cause = getattr(error, "orig", error)
        return InvalidSpec(f"a value cannot be stored: {cause}", remedy="use text, numbers and JSON values only")
    return error
