"""Brings a database to this release's schema, in one transaction: a kill in the middle leaves the old schema whole.

An empty database gets the schema at once, as `tables.py` has it. Another one goes there by the steps between, Alembic
revisions in `migrations/versions` (a test compares what comes of both); Alembic is only imported for those. A database
that is up to date costs one read. Called by `opening.py`.
"""

from functools import cache
from pathlib import Path

import sqlalchemy as sa

from moorage.domain.errors import StoreUnusable
from moorage.store import damage, engines
from moorage.store.tables import build

REVISIONS = ("0001", "0002", "0003", "0004", "0005")
"""Every schema this release can start from, the newest last. A test compares it with the files."""

_VERSION = sa.Table(
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""Where Alembic keeps which revision a database has."""

_MIGRATION_LOCK = 0x6D6F6F7261676500
"""Advisory lock: two control planes that start at once migrate one after the other (PostgreSQL)."""


def migrate(url: str, *, to: str = REVISIONS[-1]) -> str | None:
    """Upgrade the database at `url`; the answer is the revision it had (None: it was empty).

    Raises:
        StoreUnusable: it is newer than this release, or holds somebody else's tables.
        Unavailable: it cannot be reached.
    """
    parsed = engines.parse(url)
    with damage.explained(parsed):
        with engines.reading(parsed).connect() as connection:
            found = _revision(connection)
        if found != to:
            with engines.writing(parsed).connect() as connection, connection.begin():
                if engines.is_postgres(parsed):
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%(n)s)", {"n": _MIGRATION_LOCK})
                found = _revision(connection)
                if found is None and to == REVISIONS[-1]:
                    _make(connection, postgres=engines.is_postgres(parsed))
                else:
                    _upgrade(connection, to)
        return found


def _revision(connection: sa.Connection) -> str | None:
    tables = set(sa.inspect(connection).get_table_names())
    if "alembic_version" not in tables:
        if tables:
            raise StoreUnusable(
                f"the database holds tables that are not Moorage's: {', '.join(sorted(tables)[:5])}",
                remedy="give Moorage a database of its own",
            )
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one_or_none()
    if found is not None and found not in REVISIONS:
        raise StoreUnusable(
            f"the database has schema {found}, this release knows up to {REVISIONS[-1]}: it was written by a newer one",
            remedy="run the newer release, or restore a backup made before the upgrade",
        )
    return None if found is None else str(found)


def _make(connection: sa.Connection, *, postgres: bool) -> None:
    """The newest schema in an empty database, and the mark by which Alembic will know it."""
    for statement in _schema(postgres):
        connection.exec_driver_sql(statement)
    connection.execute(sa.insert(_VERSION).values(version_num=REVISIONS[-1]))


@cache
def _schema(postgres: bool) -> tuple[str, ...]:
    """Everything that makes it, in order."""
    made: list[str] = []

    def note(statement: sa.schema.ExecutableDDLElement, *_: object, **__: object) -> None:
        made.append(str(statement.compile(dialect=engine.dialect)))

    engine = sa.create_mock_engine("postgresql+psycopg://" if postgres else "sqlite+pysqlite://", note)
    _VERSION.metadata.create_all(engine, checkfirst=False)
    build(postgres=postgres).metadata.create_all(engine, checkfirst=False)
    return tuple(made)


def _upgrade(connection: sa.Connection, to: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to)
