"""Opens a store: looks at the file, brings the schema to this release, and composes writer, readers and feed.

The only place that knows every part of the store. Called by the composition root, by tests and by benchmarks.
"""

import asyncio
import uuid
from collections.abc import Callable

import sqlalchemy as sa

from moorage.domain.lifecycles import TABLES
from moorage.ports import Clock
from moorage.store import damage, engines
from moorage.store.batch import Applier
from moorage.store.cursors import Cursors
from moorage.store.flush import Flusher
from moorage.store.load import Loader
from moorage.store.migrating import migrate
from moorage.store.rows import shapes
from moorage.store.sql import Sql
from moorage.store.store import SqlStore
from moorage.store.watch import Watch
from moorage.store.writer import Writer, WriterParts


async def open_store(url: str, clock: Clock) -> SqlStore:
    """Open the store at `url`, making or migrating it first.

    Args:
        url: `sqlite:///PATH` or `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`.
        clock: where times of commits and leases come from.

    Raises:
        InvalidSpec: the URL is not one of the two.
        StoreUnusable: the database is newer than this release, or its file is damaged.
        Unavailable: the database cannot be reached.
    """
    parsed = engines.parse(url)
    postgres = engines.is_postgres(parsed)
    recovered, incarnation = await asyncio.get_running_loop().run_in_executor(None, _prepare, url)
    sql = Sql(postgres=postgres)
    layout = dict(shapes())
    cursors = Cursors(incarnation, postgres=postgres)
    readers = engines.reading(parsed)
    parts = WriterParts(
        engine=engines.writing(parsed),
        loader=Loader(sql, layout, cursors),
        applier=Applier(layout, TABLES),
        flusher=Flusher(sql),
        clock=clock,
    )

    def make_writer(committed: Callable[[], None]) -> Writer:
        return Writer(parts, committed)

    return SqlStore(
        sql=sql,
        shapes=layout,
        cursors=cursors,
        clock=clock,
        readers=readers,
        make_writer=make_writer,
        watch=Watch(parsed, readers, clock),
        recovered=recovered,
    )


def _prepare(url: str) -> tuple[str | None, str]:
    """What was found damaged and dropped (or None), and the store's incarnation."""
    parsed = engines.parse(url)
    lost = None if engines.is_postgres(parsed) else damage.inspect(engines.sqlite_path(parsed))
    migrate(url)
    engine = engines.writing(parsed)
    with damage.explained(parsed), engine.connect() as connection, connection.begin():
        return lost, _incarnation(connection, Sql(postgres=engines.is_postgres(parsed)))


def _incarnation(connection: sa.Connection, sql: Sql) -> str:
    """The store's number, drawn by whoever opens it first."""
    meta = sql.tables.meta
    if sql.postgres:
        connection.exec_driver_sql("LOCK TABLE meta IN SHARE ROW EXCLUSIVE MODE")
    find = sa.select(meta.c.value).where(meta.c.name == "incarnation")
    found: str | None = connection.execute(find).scalar_one_or_none()
    if found is None:
        found = uuid.uuid4().hex[:16]
        connection.execute(sa.insert(meta).values(name="incarnation", value=found))
    return found
