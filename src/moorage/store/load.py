"""Reads what a group's changes name, inside the group's transaction, with the locks that keep it true until the commit.

SQLite: `BEGIN IMMEDIATE` has the only write lock, so plain reads suffice, and rows this process wrote last are kept in
memory while no other connection has written (`PRAGMA data_version`). PostgreSQL: rows are locked in the order of their
uids, machines whose room is counted by an advisory lock in order of their uids (versions do not stop write skew).
Called by `writer.py`.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from moorage.domain.changes import Change, Create, Hold, Release, Update
from moorage.domain.ids import namespace_uid
from moorage.domain.nouns import Deployment, Namespace
from moorage.store import quotas
from moorage.store.cursors import Cursors, Position
from moorage.store.group import Group
from moorage.store.rows import Image, Shape, image_from
from moorage.store.sql import Sql, oldest_running_xid
from moorage.store.tables import NAMED_WITH

CACHED_ROWS_MAX = 8192
"""Rows kept between groups: about 4 KB each, more than a busy control plane touches again and again."""

NAMESPACE = Namespace.kind

_MACHINE_LOCKS = 0x6D6F6F72
"""Class of the advisory locks (PostgreSQL shares one number space with every other application of the database)."""

_NAME_LOCKS = 0x6D6F6F6E
"""Class of those on names."""


@dataclass(slots=True)
class _Needs:
    """What a group names."""

    uids: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """by kind, in the order in which they are named, which is often also that of the table"""
    created: set[str] = field(default_factory=set)
    names: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    keys: set[tuple[str, str]] = field(default_factory=set)
    leases: set[str] = field(default_factory=set)
    machines: set[str] = field(default_factory=set)
    workers: set[str] = field(default_factory=set)
    placing: dict[str, None] = field(default_factory=dict)
    """namespaces whose quota placements count in"""
    adding: dict[str, None] = field(default_factory=dict)
    """namespaces in which something is made that their quota may count"""
    resized: set[str] = field(default_factory=set)
    """deployments whose spec changes, and perhaps their number of replicas"""


class Loader:
    """Loads groups and keeps the rows last written.

    Args:
        sql: statements of the engine.
        shapes: how each noun is stored.
        cursors: the store's cursors.
    """

    def __init__(self, sql: Sql, shapes: dict[str, Shape], cursors: Cursors) -> None:
        self._sql = sql
        self._shapes = shapes
        self._cursors = cursors
        self._cache: dict[str, Image | None] = {}
        self._last_seq: int | None = None
        self._data_version: int | None = None

    def load(self, connection: sa.Connection, changes: Sequence[Change], now: float) -> Group:
        """The group of `changes` at `now` (seconds since the epoch)."""
        needs = _needs(changes)
        group = Group(now=now, cursors=self._cursors.prefix)
        self._forget_if_others_wrote(connection)
        self._load_leases(connection, needs, group)
        self._load_keys(connection, needs, group)
        self._load_holdings(connection, needs, group)
        for kind in sorted(needs.uids.keys() - {NAMESPACE}):
            self._load_rows(connection, kind, needs.uids[kind], group)
        self._load_namespaces(connection, needs, group)
        self._load_names(connection, needs, group)
        self._load_place(connection, group)
        return group

    def keep(self, group: Group) -> None:
        """Remember what the group wrote, after its commit; what was first remembered is forgotten first."""
        cache = self._cache
        self._last_seq = group.last_seq
        cache.update(group.rows)
        while len(cache) > CACHED_ROWS_MAX:
            del cache[next(iter(cache))]

    def forget(self) -> None:
        """Drop what is remembered: the connection is another one or a commit's outcome is unknown."""
        self._cache.clear()
        self._last_seq = None
        self._data_version = None

    def _forget_if_others_wrote(self, connection: sa.Connection) -> None:
        if self._sql.postgres:
            return
        seen = connection.exec_driver_sql("PRAGMA data_version").scalar_one()
        if seen != self._data_version:
            self.forget()
            self._data_version = seen

    def _load_place(self, connection: sa.Connection, group: Group) -> None:
        """Where the group's history begins, for the cursors that its callers are told."""
        if self._sql.postgres:
            # Our own transaction is still running, so the newest safe place lies before what it writes.
            oldest = self._sql.cached("oldest_running", lambda: sa.select(oldest_running_xid()))
            group.safe_cursor = self._cursors.text(Position(oldest.run(connection).scalar_one(), 0))
        elif self._last_seq is None:
            seq = self._sql.tables.history.c.seq
            last = self._sql.cached("last_seq", lambda: sa.select(sa.func.coalesce(sa.func.max(seq), 0)))
            group.before = last.run(connection).scalar_one()
        else:
            group.before = self._last_seq

    def _load_rows(self, connection: sa.Connection, kind: str, uids: Iterable[str], group: Group) -> None:
        if self._sql.postgres:
            self._lock_rows(connection, kind, uids, group)
            return
        shape, cached, base = self._shapes[kind], self._cache.get, group.base
        missing = []
        for uid in uids:
            row = cached(uid)
            if row is not None and row.shape is shape:
                base[uid] = row
            else:
                missing.append(uid)
        if missing:
            self._read_rows(connection, kind, missing, group)

    def _lock_rows(self, connection: sa.Connection, kind: str, uids: Iterable[str], group: Group) -> None:
        """Lock all rows; read only those that were not written by us last (same uid and version: same row)."""
        table = self._sql.tables.nouns[kind]
        statement = self._sql.cached(
            ("lock", kind),
            lambda: (
                sa.select(table.c.uid, table.c.version)
                .where(self._sql.one_of(table.c.uid, "uids"))
                .order_by(table.c.uid)
                .with_for_update()
            ),
        )
        missing = []
        for uid, version in statement.rows(connection, uids=self._sql.many(sorted(uids))):
            row = self._cache.get(uid)
            if row is not None and row.version == version and row.shape.kind == kind:
                group.base[uid] = row
            else:
                missing.append(uid)
        if missing:
            self._read_rows(connection, kind, missing, group)

    def _read_rows(self, connection: sa.Connection, kind: str, uids: Iterable[str], group: Group) -> None:
        shape, table = self._shapes[kind], self._sql.tables.nouns[kind]
        statement = self._sql.cached(
            ("load", kind),
            lambda: sa.select(*(table.c[n] for n in shape.columns)).where(self._sql.one_of(table.c.uid, "uids")),
        )
        for values in statement.rows(connection, uids=self._sql.many(uids)):
            group.base[values[0]] = image_from(shape, values)

    def _load_namespaces(self, connection: sa.Connection, needs: _Needs, group: Group) -> None:
        """Lock the namespaces that are written or whose quota is asked for, then read what those have by now."""
        resized = (group.base[uid].namespace for uid in needs.resized if uid in group.base)
        adding = dict.fromkeys((*needs.adding, *resized))
        uids = {**needs.uids.get(NAMESPACE, {}), **{namespace_uid(ns): None for ns in (*needs.placing, *adding)}}
        if uids:
            self._load_rows(connection, NAMESPACE, uids, group)
        group.rows = dict(group.base)
        if uids:
            written = needs.uids.get(NAMESPACE, {})
            quotas.load(self._sql, connection, group, placing=needs.placing, adding=adding, written=written)

    def _load_names(self, connection: sa.Connection, needs: _Needs, group: Group) -> None:
        if self._sql.postgres:
            # An index holds a name to one kind; that no other kind takes it meanwhile is held by a lock on the name.
            for namespace, name in sorted({n for names in needs.names.values() for n in names}):
                connection.exec_driver_sql(
                    "SELECT pg_advisory_xact_lock(%(lock)s, hashtext(%(name)s))",
                    {"lock": _NAME_LOCKS, "name": f"{namespace}/{name}"},
                )
        for kind, names in needs.names.items():
            table = self._sql.tables.nouns[kind]
            statement = self._sql.cached(
                ("names", kind),
                lambda table=table: sa.select(table.c.namespace, table.c.name, table.c.uid).where(
                    # Both, so that an index leads there: by the name alone each group would read the whole table.
                    table.c.live,
                    self._sql.one_of(table.c.namespace, "namespaces"),
                    self._sql.one_of(table.c.name, "names"),
                ),
            )
            given = {"namespaces": {ns for ns, _ in names}, "names": {name for _, name in names}}
            found = statement.rows(connection, **{key: self._sql.many(values) for key, values in given.items()})
            for namespace, name, uid in found:
                group.names[kind, namespace, name] = uid
        if needs.created:
            table = self._sql.tables.tombstones
            statement = self._sql.cached(
                "buried", lambda: sa.select(table.c.uid).where(self._sql.one_of(table.c.uid, "uids"))
            )
            group.buried.update(uid for (uid,) in statement.rows(connection, uids=self._sql.many(needs.created)))

    def _load_keys(self, connection: sa.Connection, needs: _Needs, group: Group) -> None:
        if not needs.keys:
            return
        table = self._sql.tables.keys
        statement = self._sql.cached(
            "keys",
            lambda: sa.select(table.c.namespace, table.c.key, table.c.intent, table.c.result).where(
                self._sql.one_of(table.c.key, "keys")
            ),
        )
        for namespace, key, intent, result in statement.rows(
            connection, keys=self._sql.many(sorted({key for _, key in needs.keys}))
        ):
            group.keys[namespace, key] = (intent, result)

    def _load_leases(self, connection: sa.Connection, needs: _Needs, group: Group) -> None:
        if not needs.leases:
            return
        table = self._sql.tables.leases
        statement = self._sql.cached(
            "fences",
            lambda: (
                sa.select(table.c.name, table.c.generation)
                .where(self._sql.one_of(table.c.name, "names"), table.c.owner != "")
                .order_by(table.c.name)
                .with_for_update(read=True)
            ),
        )
        found = statement.rows(connection, names=self._sql.many(sorted(needs.leases)))
        group.leases.update((name, generation) for name, generation in found)

    def _load_holdings(self, connection: sa.Connection, needs: _Needs, group: Group) -> None:
        if not (needs.machines or needs.workers):
            return
        if self._sql.postgres:
            for machine in sorted(needs.machines):
                connection.exec_driver_sql(
                    "SELECT pg_advisory_xact_lock(%(lock)s, hashtext(%(machine)s))",
                    {"lock": _MACHINE_LOCKS, "machine": machine},
                )
        for hold in read_holdings(self._sql, connection, needs.machines, needs.workers):
            group.hold(hold)
        group.held_before = dict(group.held)


def read_holdings(
    sql: Sql, connection: sa.Connection, machines: Iterable[str] | None, workers: Iterable[str] = ()
) -> list[Hold]:
    """Holdings on any of `machines` or of any of `workers`; `machines=None` means all of them."""
    held, gpu = sql.tables.holdings, sql.tables.holding_gpus

    def select() -> sa.Select[Any]:
        joined = sa.outerjoin(held, gpu, (gpu.c.worker == held.c.worker) & (gpu.c.epoch == held.c.epoch))
        columns = (
            *(held.c.machine, held.c.worker, held.c.epoch, held.c.cpu_milli, held.c.memory_bytes, held.c.namespace),
            *(gpu.c.gpu, gpu.c.model),
        )
        every = sa.select(*columns).select_from(joined).order_by(held.c.machine, held.c.worker, held.c.epoch, gpu.c.gpu)
        if machines is None:
            return every
        return every.where(sa.or_(sql.one_of(held.c.machine, "machines"), sql.one_of(held.c.worker, "workers")))

    statement = sql.cached(("holdings", machines is None), select)
    given = {} if machines is None else {"machines": sql.many(machines), "workers": sql.many(workers)}
    found: dict[tuple[str, int], Hold] = {}
    for machine, worker, epoch, cpu_milli, memory_bytes, namespace, gpu_index, model in statement.rows(
        connection, **given
    ):
        before = found.get((worker, epoch))
        gpus, models = (before.gpus, before.models) if before else ((), ())
        if gpu_index is not None:
            gpus, models = (*gpus, gpu_index), (*models, model)
        found[worker, epoch] = Hold(
            machine, worker, epoch, gpus, cpu_milli, memory_bytes, namespace=namespace, models=models
        )
    return list(found.values())


def _needs(changes: Sequence[Change]) -> _Needs:
    needs = _Needs()
    for change in changes:
        if change.key is not None:
            needs.keys.add((change.key.namespace, change.key.key))
        if change.fence is not None:
            needs.leases.add(change.fence.name)
        for write in change.writes:
            if isinstance(write, Update):
                needs.uids[write.kind][write.uid] = None
                if write.kind == Deployment.kind and "spec" in write.fields:
                    needs.resized.add(write.uid)
            elif isinstance(write, Hold):
                needs.machines.add(write.machine)
                needs.workers.add(write.worker)
                if write.within_quota and write.namespace:
                    needs.placing[write.namespace] = None
            elif isinstance(write, Release):
                needs.workers.add(write.worker)
            elif isinstance(write, Create):
                _need_created(needs, write)
            else:
                needs.uids[write.kind][write.uid] = None
    return needs


def _need_created(needs: _Needs, write: Create) -> None:
    row = write.row
    needs.uids[row.kind][row.uid] = None
    needs.created.add(row.uid)
    if row.kind in NAMED_WITH and not getattr(row, "deployment", None):
        if row.kind in quotas.ROWS:
            needs.adding[row.namespace] = None
        for kind in NAMED_WITH[row.kind]:  # they share their names, so whoever makes one looks at all
            needs.names.setdefault(kind, set()).add((row.namespace, row.name))
