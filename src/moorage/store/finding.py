"""Finding rows by their indexed columns: the reading side of the noun tables and the tombstones.

Each question's text is compiled the first time it is asked and kept. Runs on the reader threads; called by `store.py`.
"""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.sql.operators import custom_op

from moorage.domain.errors import Gone, InvalidSpec
from moorage.domain.nouns import Noun
from moorage.store.rows import FIXED, Shape, decode, loads
from moorage.store.sql import Sql

N = TypeVar("N", bound=Noun)

_COLLECTIONS = (tuple, list, set, frozenset)


class Finder:
    """Reads nouns.

    Args:
        sql: statements of the engine.
        shapes: how each noun is stored.
    """

    def __init__(self, sql: Sql, shapes: Mapping[str, Shape]) -> None:
        self._sql = sql
        self._shapes = shapes

    def get(self, connection: sa.Connection, kind: type[N], uid: str) -> N | None:
        """One row or None."""
        shape = self._shapes[kind.kind]
        values = self._sql.cached(("get", kind.kind), lambda: self._one(shape)).run(connection, uid=uid).one_or_none()
        return None if values is None else cast(N, decode(shape, values))

    def find(
        self,
        connection: sa.Connection,
        kind: type[N],
        equals: Mapping[str, Any],
        *,
        order: str,
        after: str | None,
        limit: int | None,
    ) -> list[N]:
        """Rows by columns, as `Store.find`."""
        shape = self._shapes[kind.kind]
        forms: list[tuple[str, str]] = []
        given: dict[str, Any] = {}
        for name, value in equals.items():
            column = self._column(shape, name)
            if isinstance(value, _COLLECTIONS):
                forms.append((column, "any"))
                given[f"is_{column}"] = self._sql.many(str(v) for v in value)
            elif value is None:
                forms.append((column, "none"))
            else:
                forms.append((column, "is"))
                given[f"is_{column}"] = str(value)
        sort = self._sort(shape, order)
        if after is not None:
            given["after"] = after
            if sort[0] != "uid":
                given["after_value"] = self._page_end(connection, shape, sort[0], after)
        if limit is not None:
            given["limit"] = limit
        key = ("find", shape.kind, tuple(forms), sort, after is not None, limit is not None)
        statement = self._sql.cached(
            key, lambda: self._select(shape, forms, sort, after is not None, limit is not None)
        )
        return [cast(N, decode(shape, values)) for values in statement.rows(connection, **given)]

    def tombstones(
        self, connection: sa.Connection, kind: str, namespace: str, name: str | None
    ) -> list[Mapping[str, Any]]:
        """Deleted objects of a kind, oldest first."""
        table = self._sql.tables.tombstones

        def select() -> sa.Select[Any]:
            query = sa.select(table).where(
                table.c.kind == sa.bindparam("kind", type_=sa.Text),
                table.c.namespace == sa.bindparam("namespace", type_=sa.Text),
            )
            if name is not None:
                query = query.where(table.c.name == sa.bindparam("name", type_=sa.Text))
            return query.order_by(table.c.at, table.c.uid)

        statement = self._sql.cached(("tombstones", name is None), select)
        given = {"kind": kind, "namespace": namespace, **({} if name is None else {"name": name})}
        columns = [c.name for c in table.columns]
        out: list[Mapping[str, Any]] = []
        for values in statement.rows(connection, **given):
            row = dict(zip(columns, values, strict=True))
            out.append({**row, "reason": loads(row["reason"])})
        return out

    def _one(self, shape: Shape) -> sa.Select[Any]:
        table = self._sql.tables.nouns[shape.kind]
        return sa.select(*(table.c[n] for n in shape.columns)).where(table.c.uid == sa.bindparam("uid", type_=sa.Text))

    def _column(self, shape: Shape, name: str) -> str:
        column = "state" if name == shape.cls.state_field else name
        known = {"uid", "namespace", "name", "state", *shape.searched}
        if column not in known:
            raise InvalidSpec(
                f"{shape.kind} cannot be found by {name}", remedy=f"use one of {', '.join(sorted(known))}"
            )
        return column

    def _sort(self, shape: Shape, order: str) -> tuple[str, bool]:
        name = order.removeprefix("-")
        column = "state" if name == shape.cls.state_field else name
        if column not in {*FIXED, *shape.searched} or column == "reason":
            raise InvalidSpec(f"{shape.kind} cannot be ordered by {name}")
        return column, order.startswith("-")

    def _page_end(self, connection: sa.Connection, shape: Shape, column: str, after: str) -> Any:
        """What the last row of the page before is sorted by."""
        table = self._sql.tables.nouns[shape.kind]
        statement = self._sql.cached(
            ("page", shape.kind, column),
            lambda: sa.select(table.c[column]).where(table.c.uid == sa.bindparam("uid", type_=sa.Text)),
        )
        found = statement.run(connection, uid=after).one_or_none()
        if found is None:
            raise Gone(
                f"{shape.kind} {after}, where the page before ended, is gone", remedy="list again from the start"
            )
        return found[0]

    def _select(
        self, shape: Shape, forms: list[tuple[str, str]], sort: tuple[str, bool], after: bool, limit: bool
    ) -> sa.Select[Any]:
        table = self._sql.tables.nouns[shape.kind]
        query = sa.select(*(table.c[n] for n in shape.columns))
        paged = limit and sort[0] == "uid" and [name for name, _ in forms] == ["namespace"]
        for name, form in forms:
            query = query.where(self._condition(table.c[name], form, by_index=not paged))
        name, down = sort
        keys = [table.c.uid] if name == "uid" else [table.c[name], table.c.uid]
        if after:
            end = [sa.bindparam("after" if c.name == "uid" else "after_value", type_=c.type) for c in keys]
            mine, last = sa.tuple_(*keys), sa.tuple_(*end)
            query = query.where(mine < last if down else mine > last)
        query = query.order_by(*((c.desc() if down else c) for c in keys))
        return query.limit(sa.bindparam("limit", type_=sa.Integer)) if limit else query

    def _condition(self, column: sa.Column[Any], form: str, *, by_index: bool) -> Any:
        """One condition.

        SQLite knows no numbers of rows: it takes `deployment IS NULL`, which holds for nearly all, for as good a way in
        as any other, and reads the whole namespace to sort it for one page. Of both it is told to leave the index alone
        (`+column`): other conditions, or the order of uids, lead to the rows.
        """
        name = f"is_{column.name}"
        if form == "any":
            return self._sql.one_of(column, name)
        plain = column if self._sql.postgres or (by_index and form != "none") else _unindexed(column)
        return plain.is_(None) if form == "none" else plain == sa.bindparam(name, type_=sa.Text)


def _unindexed(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """The column, as SQLite looks up in no index."""
    return sa.UnaryExpression(column, operator=custom_op("+"), type_=column.type)
