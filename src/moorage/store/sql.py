"""Statements: Core expressions compiled once, then run through the driver with plain tuples.

Core says what a statement is on both engines; its per-row parameter handling is what made a write cost ten times the
driver's, so the hot path hands the compiled text and plain values to the driver. Many rows are one statement:
`executemany` of a prepared statement on SQLite, arrays through `unnest` on PostgreSQL. Used by every file of the store
that talks to a database; holds no connection.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import CursorResult, Dialect, make_url
from sqlalchemy.sql.elements import BindParameter, ColumnElement

from moorage.store.tables import Tables, build


@dataclass(frozen=True, slots=True)
class Statement:
    """One compiled statement.

    Args:
        order: names of the parameters where the driver takes them by position.
        fixed: values that are part of the expression.
    """

    text: str
    order: tuple[str, ...] | None
    fixed: Mapping[str, Any]

    def run(self, connection: sa.Connection, **values: Any) -> CursorResult[Any]:
        """Execute with named values."""
        if self.fixed:
            values = {**self.fixed, **values}
        if self.order is None:
            return connection.exec_driver_sql(self.text, values)
        return connection.exec_driver_sql(self.text, tuple(values[name] for name in self.order))

    def rows(self, connection: sa.Connection, **values: Any) -> Sequence[Any]:
        """Execute and fetch everything, as the driver gives it."""
        with self.run(connection, **values) as result:
            assert result.cursor is not None
            rows: Sequence[Any] = result.cursor.fetchall()
        return rows


@dataclass(frozen=True, slots=True)
class Bulk:
    """A statement applied to many rows, each a tuple in the order of `names`."""

    text: str
    names: tuple[str, ...]
    arrays: bool

    def run(self, connection: sa.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Execute for all rows; nothing to do for none."""
        if not rows:
            return
        if self.arrays:
            columns = zip(*rows, strict=True)
            connection.exec_driver_sql(self.text, {n: list(c) for n, c in zip(self.names, columns, strict=True)})
        else:
            connection.exec_driver_sql(self.text, rows if isinstance(rows, list) else list(rows))


class Sql:
    """Builds and keeps the statements of one store.

    Args:
        postgres: which engine they are for.
    """

    def __init__(self, *, postgres: bool) -> None:
        self.postgres = postgres
        self.tables: Tables = build(postgres=postgres)
        self._dialect: Dialect = _dialect("postgresql+psycopg://" if postgres else "sqlite+pysqlite://")
        self._bulks: dict[tuple[Any, ...], Bulk] = {}
        self._statements: dict[Any, Statement] = {}

    def compile(self, expression: sa.sql.ClauseElement) -> Statement:
        """The text of an expression for this engine."""
        compiled: Any = expression.compile(dialect=self._dialect)
        order = None if self.postgres else tuple(compiled.positiontup or ())
        fixed = {name: bind.value for name, bind in compiled.binds.items() if not bind.required}
        return Statement(str(compiled), order, fixed)

    def cached(self, key: Any, make: Any) -> Statement:
        """The statement kept under `key`, made by `make()` the first time."""
        found = self._statements.get(key)
        if found is None:
            found = self._statements[key] = self.compile(make())
        return found

    def one_of(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        """`column` is one of the values given as parameter `name` in the form of `many`; one text for any number."""
        if self.postgres:
            return column == sa.any_(sa.bindparam(name, type_=sa.ARRAY(column.type)))
        values = sa.func.json_each(sa.bindparam(name, type_=sa.Text)).table_valued("value")
        return column.in_(sa.select(values.c.value))

    def many(self, values: Iterable[Any]) -> Any:
        """The parameter that `one_of` takes."""
        return list(values) if self.postgres else orjson.dumps(list(values)).decode()

    def insert(self, table: sa.Table, names: tuple[str, ...] | None = None) -> Bulk:
        """Insert rows given in the order of `names` (default: all columns)."""
        names = names or tuple(c.name for c in table.columns)
        return self._bulk(("insert", table.name, names), lambda: self._insert(table, names), names)

    def update(self, table: sa.Table, names: tuple[str, ...]) -> Bulk:
        """Set `names` of the row whose uid comes last."""
        return self._bulk(("update", table.name, names), lambda: self._update(table, names), (*names, "uid_"))

    def delete(self, table: sa.Table, names: tuple[str, ...]) -> Bulk:
        """Delete rows whose `names` have the given values."""
        return self._bulk(("delete", table.name, names), lambda: self._delete(table, names), names)

    def _bulk(self, key: tuple[Any, ...], make: Any, names: tuple[str, ...]) -> Bulk:
        found = self._bulks.get(key)
        if found is None:
            statement = self.compile(make())
            assert statement.order is None or statement.order == names, (statement, names)
            found = self._bulks[key] = Bulk(statement.text, names, arrays=self.postgres)
        return found

    def _insert(self, table: sa.Table, names: tuple[str, ...]) -> sa.sql.ClauseElement:
        if not self.postgres:
            ordered = [c.name for c in table.columns if c.name in names]
            assert tuple(ordered) == names, (ordered, names)
            return sa.insert(table).values({n: _raw(n) for n in names})
        rows = _unnested({n: table.c[n].type for n in names})
        values: list[ColumnElement[Any]] = [_as_stored(table.c[n], rows.c[n]) for n in names]
        targets = list(names)
        if "xid" in table.c:
            targets.append("xid")
            values.append(own_xid())
        return sa.insert(table).from_select(targets, sa.select(*values))

    def _update(self, table: sa.Table, names: tuple[str, ...]) -> sa.sql.ClauseElement:
        if not self.postgres:
            changed = sa.update(table).where(table.c.uid == _raw("uid_"))
            return changed.ordered_values(*((table.c[n], _raw(n)) for n in names))
        types: Mapping[str, Any] = {**{n: table.c[n].type for n in names}, "uid_": sa.Text()}
        rows = _unnested(types)
        return (
            sa.update(table)
            .where(table.c.uid == rows.c.uid_)
            .values({n: _as_stored(table.c[n], rows.c[n]) for n in names})
        )

    def _delete(self, table: sa.Table, names: tuple[str, ...]) -> sa.sql.ClauseElement:
        if not self.postgres:
            return sa.delete(table).where(*(table.c[n] == _raw(n) for n in names))
        rows = _unnested({n: table.c[n].type for n in names})
        return sa.delete(table).where(*(table.c[n] == rows.c[n] for n in names))


def _dialect(url: str) -> Dialect:
    """Loaded by name: the other engine's dialect and driver are a fifth of a second that nobody should wait for."""
    make: Any = make_url(url).get_dialect()
    dialect: Dialect = make()
    return dialect


def own_xid() -> ColumnElement[int]:
    """The writing transaction's number, as history keeps it (PostgreSQL)."""
    return sa.cast(sa.cast(sa.func.pg_current_xact_id(), sa.Text), sa.BigInteger)


def oldest_running_xid() -> ColumnElement[int]:
    """Every transaction below this number has ended, and this statement sees all it committed (PostgreSQL)."""
    return sa.cast(sa.cast(sa.func.pg_snapshot_xmin(sa.func.pg_current_snapshot()), sa.Text), sa.BigInteger)


def _raw(name: str) -> BindParameter[Any]:
    return sa.bindparam(name, type_=sa.types.NullType())


def _unnested(types: Mapping[str, Any]) -> Any:
    arrays = [sa.bindparam(n, type_=sa.ARRAY(sa.Text() if isinstance(t, sa.JSON) else t)) for n, t in types.items()]
    columns = [sa.column(n, sa.Text() if isinstance(t, sa.JSON) else t) for n, t in types.items()]
    return sa.func.unnest(*arrays).table_valued(*columns, name="v").render_derived()


def _as_stored(target: sa.Column[Any], value: ColumnElement[Any]) -> ColumnElement[Any]:
    return sa.cast(value, sa.JSON) if isinstance(target.type, sa.JSON) else value
