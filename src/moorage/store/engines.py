"""Engines and connections for the two databases: how each is opened so that a commit is on disk and readers never wait.

SQLite: WAL, synchronous=FULL, foreign writers waited for, transactions begun explicitly (`BEGIN IMMEDIATE` on the
writer, so that it never has to upgrade a read lock). PostgreSQL: psycopg 3, synchronous_commit on, bounded lock waits.
Called by `opening.py`; no statements of the store live here.
"""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from moorage.domain.errors import InvalidSpec

BUSY_TIMEOUT_MS = 10_000
"""How long SQLite waits for another process's write (a migration, a backup) before it gives up."""

LOCK_TIMEOUT_MS = 10_000
"""How long PostgreSQL waits for a row or advisory lock; a healthy group commits in milliseconds."""

CHECKPOINT_PAGES = 8000
"""Pages in SQLite's log (32 MB) after which they are copied into the database. A burst writes the same pages again and
again; copied after each thousand, as by default, most of its time goes into that. It is also what a start reads again
after a crash: a tenth of a second."""


def parse(url: str) -> URL:
    """The database a URL names.

    Raises:
        InvalidSpec: neither `sqlite:///PATH` nor `postgresql://...`.
    """
    remedy = "give sqlite:///PATH/TO/FILE or postgresql://USER:PASSWORD@HOST/DATABASE"
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InvalidSpec(f"cannot read the database URL: {error}", remedy=remedy) from error
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise InvalidSpec("a store needs a file: readers and the writer are separate connections", remedy=remedy)
        return parsed.set(drivername="sqlite+pysqlite")
    if parsed.get_backend_name() in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    raise InvalidSpec(f"cannot keep a store in {parsed.get_backend_name()}", remedy=remedy)


def is_postgres(url: URL) -> bool:
    """Which of the two it is."""
    return url.get_backend_name() == "postgresql"


def sqlite_path(url: URL) -> Path:
    """The file of an SQLite store."""
    return Path(str(url.database))


def writing(url: URL) -> sa.Engine:
    """Connections that write, each transaction begun with the right to do so."""
    if is_postgres(url):
        return _postgres(url)
    engine = _sqlite(url, ("PRAGMA foreign_keys=OFF", f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}"))
    sa.event.listen(engine, "begin", _begin_immediate)
    return engine


def reading(url: URL) -> sa.Engine:
    """Connections that only read, outside of any transaction, so that each statement sees what is committed by then."""
    if is_postgres(url):
        return _postgres(url).execution_options(isolation_level="AUTOCOMMIT")
    return _sqlite(url, ("PRAGMA query_only=ON",))


def _begin_immediate(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _sqlite(url: URL, more: tuple[str, ...]) -> sa.Engine:
    engine = sa.create_engine(
        url,
        poolclass=NullPool,
        connect_args={"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False, "cached_statements": 256},
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        for pragma in (
            f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}",
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "PRAGMA cache_size=-32768",
            *more,
        ):
            connection.execute(pragma)

    return engine


def _postgres(url: URL) -> sa.Engine:
    engine = sa.create_engine(url, poolclass=NullPool, connect_args={"application_name": "moorage"})

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        from psycopg.types.json import set_json_loads

        # Rows keep JSON as text until somebody needs it (see rows.Image).
        set_json_loads(_untouched, connection)
        autocommit = connection.autocommit
        connection.autocommit = True
        connection.execute("SET synchronous_commit = on")
        connection.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
        connection.autocommit = autocommit

    return engine


def _untouched(text: str | bytes) -> str | bytes:
    return text
