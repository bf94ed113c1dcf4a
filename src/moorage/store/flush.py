"""Writes what a group came to, in few statements: deletes, then updates, then inserts, then history.

In that order a name or a GPU given up in the group is free for whoever takes it in the same group. Called by
`writer.py` inside the group's transaction; decides nothing.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import zip_longest
from operator import attrgetter, itemgetter
from typing import Any

import sqlalchemy as sa

from moorage.store.group import HISTORY, Group
from moorage.store.rows import Image, Shape
from moorage.store.sql import Sql

NOTIFY_CHANNEL = "moorage_history"
"""Where other processes listen for commits (PostgreSQL)."""


class Flusher:
    """Writes groups.

    Args:
        sql: statements of the engine.
    """

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._history = sql.insert(sql.tables.history, HISTORY)

    def flush(self, connection: sa.Connection, group: Group) -> None:
        """Write everything."""
        self._rows(connection, group)
        self._holdings(connection, group)
        tables = self._sql.tables
        if group.tombstones:
            self._sql.insert(tables.tombstones).run(connection, group.tombstones)
        if group.new_keys:
            self._sql.insert(tables.keys).run(connection, group.new_keys)
        if group.history:
            self._history.run(connection, group.history)
            if self._sql.postgres:
                connection.exec_driver_sql("SELECT pg_notify(%(channel)s, '')", {"channel": NOTIFY_CHANNEL})

    def _rows(self, connection: sa.Connection, group: Group) -> None:
        deleted: dict[str, list[tuple[Any, ...]]] = {}
        updated: dict[tuple[str, tuple[str, ...]], list[tuple[Any, ...]]] = {}
        created: dict[str, list[tuple[Any, ...]]] = {}
        base = group.base
        rows: list[tuple[Any, ...]]
        values: Callable[[Image], tuple[Any, ...]]
        last_names = last_shape = None
        for uid, row in group.rows.items():
            old = base.get(uid)
            if row is old:
                continue
            if row is None:
                if old is not None:
                    deleted.setdefault(old.shape.kind, []).append((uid,))
            elif old is None:
                created.setdefault(row.shape.kind, []).append(_all_values(row))
            else:
                names = _changed(old, row)
                if names is not last_names or row.shape is not last_shape:
                    last_names, last_shape = names, row.shape
                    rows = updated.setdefault((row.shape.kind, names), [])
                    values = _values(row.shape, names)
                rows.append(values(row))
        tables = self._sql.tables.nouns
        for kind, rows in deleted.items():
            self._sql.delete(tables[kind], ("uid",)).run(connection, rows)
        for (kind, names), rows in updated.items():
            self._sql.update(tables[kind], names).run(connection, rows)
        for kind, rows in created.items():
            self._sql.insert(tables[kind]).run(connection, rows)

    def _holdings(self, connection: sa.Connection, group: Group) -> None:
        before, after = group.held_before, group.held
        gone = [key for key, hold in before.items() if after.get(key) is not hold]
        come = [hold for key, hold in after.items() if before.get(key) is not hold]
        held, gpus = self._sql.tables.holdings, self._sql.tables.holding_gpus
        if gone:
            self._sql.delete(gpus, ("worker", "epoch")).run(connection, gone)
            self._sql.delete(held, ("worker", "epoch")).run(connection, gone)
        if come:
            self._sql.insert(held).run(
                connection, [(h.worker, h.epoch, h.machine, h.cpu_milli, h.memory_bytes, h.namespace) for h in come]
            )
            taken = [
                (h.machine, gpu, h.worker, h.epoch, h.namespace, model)
                for h in come
                for gpu, model in zip_longest(h.gpus, h.models[: len(h.gpus)], fillvalue="")
            ]
            self._sql.insert(gpus).run(connection, taken)


def _all_values(row: Image) -> tuple[Any, ...]:
    """In the order of the table's columns."""
    return (
        row.uid,
        row.namespace,
        row.name,
        row.state,
        row.version,
        row.created_at,
        row.updated_at,
        row.reason,
        row.live,
        *row.searched,
        row.doc,
    )


def _changed(old: Image, new: Image) -> tuple[str, ...]:
    """Columns to set.

    Only what differs is named: SQLite rewrites the index entries of every column that a statement sets.
    """
    shape, moved = new.shape, 0
    if new.searched != old.searched:
        for place, value in enumerate(new.searched):
            if value != old.searched[place]:
                moved |= 1 << place
    renamed = new.name != old.name or new.namespace != old.namespace
    live = shape.claims_name and new.live != old.live
    state, reason, doc = new.state != old.state, new.reason is not old.reason, new.doc is not old.doc
    return _names(shape, moved, (state, reason, doc, renamed, live))


@lru_cache(maxsize=1024)
def _names(shape: Shape, moved: int, others: tuple[bool, bool, bool, bool, bool]) -> tuple[str, ...]:
    """The names of the columns that differ; the very same object for the same ones.

    Args:
        moved: a bit for each searched column.
        others: whether the state, the reason, the document, the name and its claim differ.
    """
    groups = (("state",), ("reason",), ("doc",), ("namespace", "name"), ("live",))
    names = [name for some, differs in zip(groups, others, strict=True) if differs for name in some]
    searched = [name for place, name in enumerate(shape.searched) if moved >> place & 1]
    return ("version", "updated_at", *names, *searched)


@lru_cache(maxsize=256)
def _values(shape: Shape, names: tuple[str, ...]) -> Callable[[Image], tuple[Any, ...]]:
    """Reads the values of `names`, the searched ones last, then the uid, off a row."""
    places = [shape.places[n] for n in names if n in shape.places]
    plain = attrgetter(*(n for n in names if n not in shape.places))
    if not places:
        return attrgetter(*names, "uid")
    if len(places) == 1:
        (only,) = places
        return lambda row: (*plain(row), row.searched[only], row.uid)
    several = itemgetter(*places)
    return lambda row: (*plain(row), *several(row.searched), row.uid)
