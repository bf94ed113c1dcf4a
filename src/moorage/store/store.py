"""The store: the `Store` port over one writer thread and a few reader threads.

Decisions come in as `Change`s and go to the writer; reads run on the reader threads, which never wait for the writer.
Open one with `moorage.store.open_store`. No rule of the domain lives here.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from moorage.domain.changes import Change, Committed, HistoryRow
from moorage.domain.errors import MoorageError, Unavailable
from moorage.domain.nouns import Noun
from moorage.domain.usage import UsageRow, UsedOn
from moorage.ports import Clock, Lease
from moorage.store import feed, leases, usage
from moorage.store.cursors import Cursors, Position
from moorage.store.finding import Finder
from moorage.store.load import read_holdings
from moorage.store.rows import Shape
from moorage.store.sql import Sql
from moorage.store.watch import Watch
from moorage.store.writer import Writer

N = TypeVar("N", bound=Noun)
T = TypeVar("T")

READERS = 3
"""Reader threads: a read is microseconds of SQLite or a round trip to PostgreSQL; more would only fight for the GIL."""


class SqlStore:
    """`Store` on SQLite or PostgreSQL; made by `open_store`.

    Attributes:
        incarnation: drawn when the store was made; part of every cursor and of routing generations.
        recovered: what opening found damaged and dropped, or None.
    """

    def __init__(
        self,
        *,
        sql: Sql,
        shapes: Mapping[str, Shape],
        cursors: Cursors,
        clock: Clock,
        readers: sa.Engine,
        make_writer: Callable[[Callable[[], None]], Writer],
        watch: Watch,
        recovered: str | None = None,
    ) -> None:
        self.incarnation = cursors.incarnation
        self.recovered = recovered
        self._sql = sql
        self._clock = clock
        self._cursors = cursors
        self._finder = Finder(sql, shapes)
        self._history = feed.History(sql, cursors)
        self._wakes = feed.Wakes()
        self._engine = readers
        self._local = threading.local()
        self._connections: list[sa.Connection] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="moorage-store-reader")
        self._watch = watch
        self._closed = False
        self._writer = make_writer(self._wakes.wake)

    async def get(self, kind: type[N], uid: str) -> N | None:
        """The row as last committed, or None."""
        return await self._read(lambda c: self._finder.get(c, kind, uid))

    async def find(
        self,
        kind: type[N],
        *,
        limit: int | None = None,
        after: str | None = None,
        order: str = "uid",
        **equals: Any,
    ) -> list[N]:
        """Rows by indexed columns; see `ports.Store.find`.

        Args:
            limit: rows at most.
            after: uid of the last row of the page before.
            order: column to sort by (then by uid); a leading `-` reverses.
            equals: column = value, a collection of values, or None.

        Raises:
            InvalidSpec: a column is not indexed.
        """
        return await self._read(lambda c: self._finder.find(c, kind, equals, order=order, after=after, limit=limit))

    async def commit(self, change: Change) -> Committed:
        """Write all of it or nothing; returns after it is on disk. Errors as `ports.Store.commit`.

        A caller that is cancelled here does not know whether it was written.
        """
        committed: Committed = await self._writer.submit(change)
        return committed

    async def commit_each(self, changes: Sequence[Change]) -> list[Committed | MoorageError]:
        """Each change as by `commit`, in their order and in few transactions; errors stand where the answer would.

        One that fails for another reason than an error of ours fails them all, as a defect should.
        """
        if not changes:
            return []
        answers = await self._writer.submit_each(changes)
        for answer in answers:
            if isinstance(answer, Exception) and not isinstance(answer, MoorageError):
                raise answer
        return answers

    async def history(
        self,
        *,
        uid: str | None = None,
        root: str | None = None,
        namespace: str | None = None,
        after: str | None = None,
        limit: int = 1000,
        newest_first: bool = False,
    ) -> list[HistoryRow]:
        """History rows; with `newest_first`, `after` means older than that cursor, so that pages go back in time."""
        place = self._cursors.parse(after) if after is not None else None
        query = feed.Query(uid, root, namespace, place, limit, newest_first)
        return await self._read(lambda c: self._history.read(c, query))

    def follow(self, after: str | None = None) -> AsyncIterator[Sequence[HistoryRow]]:
        """Batches of history rows as they are committed by anyone; None: from the first `anext` on."""
        self._watch.start(self._wakes)
        reads = feed.Reads(
            rows=lambda place: self._read(lambda c: self._history.read(c, feed.Query(after=place))),
            newest=lambda: self._read(self._history.newest),
            held_back=self._held_back,
            sleep=self._clock.sleep,
            parse=self._cursors.parse,
        )
        return feed.follow(reads, self._wakes, self._cursors.parse(after) if after is not None else None)

    async def cursor(self) -> str:
        """The newest safe cursor."""
        place: Position = await self._read(self._history.newest)
        return self._cursors.text(place)

    async def acquire(self, name: str, owner: str, ttl_s: float) -> Lease | None:
        """Take or renew a lease for `ttl_s` seconds; `owner` must be unique to the process that asks."""

        def task(connection: sa.Connection, now: float) -> leases.HeldLease | None:
            return leases.acquire(self._sql, connection, leases.HeldLease(name, owner, 0, now + ttl_s), now)

        lease: Lease | None = await self._writer.submit(task)
        return lease

    async def lease(self, name: str) -> Lease | None:
        """Who holds a lease, and until when; None: nobody."""
        found: leases.HeldLease | None = await self._read(lambda c: leases.read(self._sql, c, name))
        return cast(Lease | None, found)

    async def release(self, lease: Lease) -> None:
        """Give it up (a no-op when it passed on)."""
        await self._writer.submit(lambda c, _: leases.release(self._sql, c, lease.name, lease.generation))

    async def holdings(self, machine: str | None = None) -> list[Mapping[str, Any]]:
        """Live holdings: {machine, worker, epoch, gpus, cpu_milli, memory_bytes, namespace, models}."""
        machines = None if machine is None else [machine]
        found = await self._read(lambda c: read_holdings(self._sql, c, machines))
        names = ("machine", "worker", "epoch", "gpus", "cpu_milli", "memory_bytes", "namespace", "models")
        return [{n: getattr(hold, n) for n in names} for hold in found]

    async def tombstones(self, kind: type[Noun], namespace: str, name: str | None = None) -> list[Mapping[str, Any]]:
        """Deleted objects, oldest first: {uid, kind, namespace, name, digest, state, reason (wire form), actor, at}."""
        return await self._read(lambda c: self._finder.tombstones(c, kind.kind, namespace, name))

    async def secret(self, name: str) -> str | None:
        """A small piece of server state."""
        table = self._sql.tables.secrets
        found: str | None = await self._read(
            lambda c: c.execute(sa.select(table.c.value).where(table.c.name == name)).scalar_one_or_none()
        )
        return found

    async def put_secret(self, name: str, value: str) -> None:
        """Keep it, replacing what was there."""
        table = self._sql.tables.secrets

        def task(connection: sa.Connection, _: float) -> None:
            connection.execute(sa.delete(table).where(table.c.name == name))
            connection.execute(sa.insert(table).values(name=name, value=value))

        await self._writer.submit(task)

    async def swap_secret(self, name: str, before: str | None, after: str | None) -> bool:
        """Replace `before` by `after` (None: nothing there); False, and nothing written, when it is another now."""
        table = self._sql.tables.secrets

        def task(connection: sa.Connection, _: float) -> bool:
            found = sa.select(table.c.value).where(table.c.name == name).with_for_update()
            if connection.execute(found).scalar_one_or_none() != before:
                return False
            connection.execute(sa.delete(table).where(table.c.name == name))
            if after is not None:
                connection.execute(sa.insert(table).values(name=name, value=after))
            return True

        swapped: bool = await self._writer.submit(task)
        return swapped

    async def secrets(self, prefix: str) -> Mapping[str, str]:
        """Name → value of all whose name begins so, in order of their names."""
        table = self._sql.tables.secrets
        query = sa.select(table.c.name, table.c.value).where(table.c.name.startswith(prefix, autoescape=True))

        def read(connection: sa.Connection) -> list[tuple[str, str]]:
            return [(name, value) for name, value in connection.execute(query)]

        return dict(sorted(await self._read(read)))

    async def keep_usage(self, rows: Sequence[UsageRow]) -> None:
        """Write sums of what was used; of each the larger one stays."""
        await self._writer.submit(lambda c, _: usage.keep(c, rows))

    async def usage(self, namespace: str, first: str, last: str, *, key: str | None = None) -> list[UsedOn]:
        """What was used in a namespace, or with one key of it, from one day to another (both included)."""
        return await self._read(lambda c: usage.read(self._sql, c, namespace, (first, last), key))

    async def prune_usage(self, before: str) -> int:
        """Delete what was used on days before this one; how many rows went."""
        count: int = await self._writer.submit(lambda c, _: usage.prune(self._sql, c, before))
        return count

    async def prune_history(self, before: float) -> int:
        """Delete the oldest history up to the first row not older than `before` (seconds since the epoch).

        Cursors into what was deleted answer `Gone` from then on. Returns how many rows went.
        """
        count: int = await self._writer.submit(lambda c, _: self._history.prune(c, before))
        return count

    async def close(self) -> None:
        """Finish what is queued and close; followers end."""
        await self._watch.stop()
        await self._writer.close()
        self._closed = True
        self._wakes.close()
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        for connection in self._connections:
            connection.close()

    async def _held_back(self) -> bool:
        return self._sql.postgres and await self._read(self._history.held_back)

    async def _read(self, work: Callable[[sa.Connection], T]) -> T:
        if self._closed:
            raise Unavailable("the store is closed", retryable=False)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._on_reader, work)
        except DBAPIError as error:
            raise Unavailable(
                f"cannot read the database: {error.orig}", remedy="see that it runs and is reachable"
            ) from error

    def _on_reader(self, work: Callable[[sa.Connection], T]) -> T:
        try:
            return self._on_own_connection(work)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            # The connection was lost, most often long ago and while idle: a read can be repeated on a new one.
            return self._on_own_connection(work)

    def _on_own_connection(self, work: Callable[[sa.Connection], T]) -> T:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._engine.connect()
            self._connections.append(connection)
        try:
            return work(connection)
        except DBAPIError:
            self._local.connection = None
            self._connections.remove(connection)
            connection.invalidate()
            raise
