"""The change feed: history read in an order in which nothing can appear later before what was already given out.

SQLite has one writer at a time, so `seq` is the order of commits. On PostgreSQL a transaction with a lower number may
commit after one with a higher number; rows are therefore read in the order (xid, seq), and only those whose
transaction is older than every transaction still running. A late committer holds the feed back for as long as it
runs; it is never passed over. Followers are woken by this process's commits at once, and by other processes' through
LISTEN (PostgreSQL) or `PRAGMA data_version` looked at on a slow timer (SQLite). Called by `store.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from moorage.domain.changes import HistoryRow
from moorage.domain.errors import Gone, Unavailable
from moorage.store.cursors import Cursors, Position
from moorage.store.group import HISTORY
from moorage.store.rows import reason_from
from moorage.store.sql import Sql, oldest_running_xid

BATCH_MAX = 1000
"""Rows of one batch of a follower."""

HELD_BACK_DELAYS_S = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Waits while rows exist that a running transaction holds back: that one may end without a notification."""

FLOOR = "history_floor"
"""Name in `meta` of the last place that was pruned."""


@dataclass(frozen=True, slots=True)
class Query:
    """Which history rows; times and order as `Store.history`."""

    uid: str | None = None
    root: str | None = None
    namespace: str | None = None
    after: Position | None = None
    limit: int = BATCH_MAX
    newest_first: bool = False


class History:
    """Reads history on a reader's connection.

    Args:
        sql: statements of the engine.
        cursors: the store's cursors.
    """

    def __init__(self, sql: Sql, cursors: Cursors) -> None:
        self._sql = sql
        self._cursors = cursors

    def read(self, connection: sa.Connection, query: Query) -> list[HistoryRow]:
        """Rows of a query that are safe to give out.

        Raises:
            Gone: rows after `query.after` were pruned.
        """
        if query.after is not None and not query.newest_first:
            self._check_floor(connection, query.after)
        equals = {n: v for n in ("uid", "root", "namespace") if (v := getattr(query, n)) is not None}
        key = ("history", tuple(equals), query.after is not None, query.newest_first)
        statement = self._sql.cached(
            key, lambda: self._select(tuple(equals), query.after is not None, query.newest_first)
        )
        given: dict[str, Any] = {**equals, "limit": query.limit}
        if query.after is not None:
            given["after_seq"] = query.after.seq
            if self._sql.postgres:
                given["after_xid"] = query.after.xid
        return [self._row(values) for values in statement.rows(connection, **given)]

    def newest(self, connection: sa.Connection) -> Position:
        """The newest safe place."""
        history = self._sql.tables.history
        if self._sql.postgres:
            statement = self._sql.cached("newest", lambda: sa.select(oldest_running_xid()))
            return Position(statement.run(connection).scalar_one(), 0)
        statement = self._sql.cached("newest", lambda: sa.select(sa.func.coalesce(sa.func.max(history.c.seq), 0)))
        return Position(0, statement.run(connection).scalar_one())

    def held_back(self, connection: sa.Connection) -> bool:
        """Whether rows are committed that cannot be given out yet (PostgreSQL)."""
        history = self._sql.tables.history
        statement = self._sql.cached(
            "held_back", lambda: sa.select(sa.exists().where(history.c.xid >= oldest_running_xid()))
        )
        return bool(statement.run(connection).scalar_one())

    def prune(self, connection: sa.Connection, before: float) -> int:
        """Delete the oldest rows, up to the first that is not older than `before`; the newest row always stays."""
        history, meta = self._sql.tables.history, self._sql.tables.meta
        order = self._order()
        first_kept = connection.execute(
            sa.select(*order).where(history.c.at >= before).order_by(*order).limit(1)
        ).one_or_none()
        if first_kept is None:
            first_kept = connection.execute(
                sa.select(*order).order_by(*(c.desc() for c in order)).limit(1)
            ).one_or_none()
        if first_kept is None:
            return 0
        older = sa.tuple_(*order) < sa.tuple_(*(sa.literal(v) for v in first_kept))
        last = connection.execute(
            sa.select(*order).where(older).order_by(*(c.desc() for c in order)).limit(1)
        ).one_or_none()
        if last is None:
            return 0
        count = connection.execute(sa.delete(history).where(older)).rowcount
        place = Position(*last) if self._sql.postgres else Position(0, last[0])
        connection.execute(sa.delete(meta).where(meta.c.name == FLOOR))
        connection.execute(sa.insert(meta).values(name=FLOOR, value=f"{place.xid}.{place.seq}"))
        return count

    def _check_floor(self, connection: sa.Connection, after: Position) -> None:
        meta = self._sql.tables.meta
        statement = self._sql.cached(
            "floor", lambda: sa.select(meta.c.value).where(meta.c.name == sa.bindparam("name", type_=sa.Text))
        )
        floor = statement.run(connection, name=FLOOR).scalar_one_or_none()
        if floor is not None and after < Position(*(int(n) for n in floor.split("."))):
            raise Gone(
                f"the history after cursor {self._cursors.text(after)} was pruned",
                remedy="take a snapshot and follow from its cursor",
            )

    def _order(self) -> tuple[sa.Column[Any], ...]:
        history = self._sql.tables.history
        return (history.c.xid, history.c.seq) if self._sql.postgres else (history.c.seq,)

    def _select(self, equals: Sequence[str], after: bool, newest_first: bool) -> sa.Select[Any]:
        history, order = self._sql.tables.history, self._order()
        columns: list[sa.ColumnElement[Any]] = [history.c[n] for n in HISTORY]
        columns.append(history.c.xid if self._sql.postgres else sa.literal_column("0").label("xid"))
        query = sa.select(*columns)
        for name in equals:
            column = history.c["object_uid" if name == "uid" else name]
            query = query.where(column == sa.bindparam(name, type_=sa.Text))
        if self._sql.postgres:
            query = query.where(history.c.xid < oldest_running_xid())
        if after:
            place = sa.tuple_(*(sa.bindparam(f"after_{c.name}", type_=sa.BigInteger) for c in order))
            query = query.where(sa.tuple_(*order) < place if newest_first else sa.tuple_(*order) > place)
        return query.order_by(*((c.desc() if newest_first else c) for c in order)).limit(
            sa.bindparam("limit", type_=sa.Integer)
        )

    def _row(self, values: Sequence[Any]) -> HistoryRow:
        seq, object_kind, uid, root, namespace, name, kind, source, to, why, actor, at, version, xid = values
        reason = reason_from(why)
        assert reason is not None
        cursor = self._cursors.of(xid, seq)
        # By place, not by name: every follower reads every row.
        return HistoryRow(cursor, object_kind, uid, namespace, name, kind, source, to, reason, actor, at, version, root)


class Wakes:
    """Who waits for new history. Used on the event loop only."""

    def __init__(self) -> None:
        self._events: set[asyncio.Event] = set()
        self.closed = False

    def wake(self) -> None:
        """Something may have been committed."""
        for event in self._events:
            event.set()

    def close(self) -> None:
        """Let every follower end."""
        self.closed = True
        self.wake()

    def join(self) -> asyncio.Event:
        """An event that each wake sets, until `leave`."""
        event = asyncio.Event()
        self._events.add(event)
        return event

    def leave(self, event: asyncio.Event) -> None:
        """End a `join`."""
        self._events.discard(event)


@dataclass(frozen=True, slots=True)
class Reads:
    """What a follower needs of its store: each call runs on a reader's thread."""

    rows: Callable[[Position], Any]
    newest: Callable[[], Any]
    held_back: Callable[[], Any]
    sleep: Callable[[float], Any]
    parse: Callable[[str], Position]


async def follow(reads: Reads, wakes: Wakes, after: Position | None) -> AsyncIterator[Sequence[HistoryRow]]:
    """Batches of rows after a place (None: from now), until the store closes."""
    event = wakes.join()
    try:
        place = await reads.newest() if after is None else after
        delays = iter(HELD_BACK_DELAYS_S)
        while not wakes.closed:
            event.clear()
            try:
                rows = await reads.rows(place)
                waits = not rows and await reads.held_back()
                if not rows and not waits:
                    # What held a row back may have ended, without a word, between these two reads.
                    rows = await reads.rows(place)
            except Unavailable:
                if wakes.closed:
                    return
                raise
            if rows:
                yield rows
                place = reads.parse(rows[-1].cursor)
                delays = iter(HELD_BACK_DELAYS_S)
            elif waits:
                await _either(event, reads.sleep(next(delays, HELD_BACK_DELAYS_S[-1])))
            else:
                await event.wait()
    finally:
        wakes.leave(event)


async def _either(event: asyncio.Event, sleeping: Any) -> None:
    """Wait for the event or the end of the sleep."""
    waits = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(sleeping)}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
