"""Migrations: an older database keeps its data, a newer one is refused, a kill in the middle changes nothing."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from moorage.domain.errors import StoreUnusable
from moorage.domain.nouns import Worker
from moorage.store import engines, migrate
from moorage.store.migrating import REVISIONS
from moorage.store.tables import build
from tests.contract.store.acting import change, new, noted, worker
from tests.contract.store.conftest import Opener

OLD_ROWS = (
    "INSERT INTO worker (uid, namespace, name, state, version, created_at, updated_at, reason, live, run, doc) VALUES "
    '(\'w1\', \'default\', \'old\', \'Running\', 3, 1.0, 2.0, \'{"code": "x", "class": "progress", "message": "x"}\','
    " false, 'r1', '{\"gpus\": [1], \"a_field_of_another_release\": 7}')",
    "INSERT INTO meta (name, value) VALUES ('incarnation', 'abcdef')",
    "INSERT INTO lease (name, owner, generation, expires_at) VALUES ('leader', 'a', 41, 0.0)",
)


def run_sql(url: str, *statements: str) -> None:
    with engines.writing(engines.parse(url)).connect() as connection, connection.begin():
        for statement in statements:
            connection.exec_driver_sql(statement)


def test_the_migrated_schema_is_the_one_that_the_code_uses(url: str) -> None:
    migrate(url)
    parsed = engines.parse(url)
    with engines.reading(parsed).connect() as connection:
        context = MigrationContext.configure(connection)
        found = compare_metadata(context, build(postgres=engines.is_postgres(parsed)).metadata)
    assert [d for d in found if not _is_version_table(d)] == []


def test_a_new_database_has_what_all_steps_make_of_an_older_one(url: str, other_url: str) -> None:
    migrate(url)
    migrate(other_url, to="0001")
    migrate(other_url)
    assert _described(url) == _described(other_url)


def _described(url: str) -> dict[str, object]:
    """Everything of the schema but the order of columns, which no statement of ours goes by."""
    with engines.reading(engines.parse(url)).connect() as connection:
        seen = sa.inspect(connection)
        return {
            name: (
                sorted(repr(column) for column in seen.get_columns(name)),
                seen.get_pk_constraint(name),
                sorted(repr(_plain(index)) for index in seen.get_indexes(name)),
                seen.get_foreign_keys(name),
            )
            for name in sorted(seen.get_table_names())
        }


def _plain(index: Any) -> dict[str, Any]:
    return {**index, "dialect_options": {name: str(value) for name, value in index["dialect_options"].items()}}


def _is_version_table(difference: object) -> bool:
    return "alembic_version" in repr(difference)


def test_every_migration_file_is_listed() -> None:
    files = (Path(engines.__file__).parent / "migrations" / "versions").glob("[0-9]*.py")
    assert tuple(sorted(f.name[:4] for f in files)) == REVISIONS


async def test_an_older_database_is_upgraded_with_its_data_kept(url: str, another: Opener) -> None:
    assert migrate(url, to="0001") is None
    run_sql(url, *OLD_ROWS)
    store = await another()
    assert store.incarnation == "abcdef"
    row = await store.get(Worker, "w1")
    assert row is not None
    assert (row.name, str(row.state), row.version, row.gpus, row.attempt) == ("old", "Running", 3, (1,), 1)
    await store.commit(change(noted("w1", 3), new(worker("w2"))))
    await store.put_secret("token", "x")
    lease = await store.acquire("leader", "b", 10)
    assert lease is not None
    assert lease.generation == 42
    assert migrate(url) == REVISIONS[-1]


def test_a_newer_database_is_refused_and_left_alone(url: str) -> None:
    migrate(url)
    run_sql(url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreUnusable, match="9999") as refused:
        migrate(url)
    assert "newer" in str(refused.value.remedy)


def test_a_database_of_somebody_else_is_refused(url: str) -> None:
    run_sql(url, "CREATE TABLE invoices (id INTEGER)")
    with pytest.raises(StoreUnusable, match="invoices"):
        migrate(url)


KILLED_HALFWAY = """
import os, signal, sys
import sqlalchemy as sa
from moorage.store import migrate

@sa.event.listens_for(sa.Engine, "after_cursor_execute")
def executed(connection, cursor, statement, *rest):
    if f"CREATE INDEX {sys.argv[2]} " in statement:
        os.kill(os.getpid(), signal.SIGKILL)

migrate(sys.argv[1])
"""


@pytest.mark.parametrize("at_index", ["history_by_namespace", "worker_by_run"])
def test_a_kill_in_the_middle_of_a_migration_leaves_the_old_schema(url: str, at_index: str) -> None:
    started_empty = at_index == "worker_by_run"
    if not started_empty:
        migrate(url, to="0001")
    before = _tables(url)
    killed = subprocess.run([sys.executable, "-c", KILLED_HALFWAY, url, at_index], check=False)
    assert killed.returncode == -9
    assert _tables(url) == before
    assert migrate(url) == (None if started_empty else "0001")
    assert "secret" in _tables(url)


def _tables(url: str) -> set[str]:
    with engines.reading(engines.parse(url)).connect() as connection:
        return set(sa.inspect(connection).get_table_names())
