"""The tables, as SQLAlchemy Core sees them: the schema at head of the migrations.

One table a noun with the columns that are searched, the rest as JSON in `doc`; beside them history, idempotency keys,
leases, holdings, tombstones, secrets, usage and meta. A new database is made from them, an older one comes there by
`migrations/` (tests compare both); `sql.py` makes the statements. No statement and no connection lives here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import sqlalchemy as sa

from moorage.domain.nouns import KINDS, Noun
from moorage.domain.usage import SUMS

SEARCHED = ("deployment", "revision", "replica", "run", "machine", "target")
"""Noun fields that become indexed columns wherever a noun has them."""

SHARED_NAMES = (frozenset({"Deployment", "Run", "Endpoint"}), frozenset({"Key"}))
"""Nouns whose (namespace, name) is unique among the live rows of their set: a deployment, a run and an endpoint that
people made share their names, keys have names of their own."""

NAMED_WITH: Mapping[str, frozenset[str]] = {kind: kinds for kinds in SHARED_NAMES for kind in kinds}
"""Noun -> those with which it shares its names, itself among them."""

NAMED_ONCE = frozenset(NAMED_WITH)
"""Every noun whose live rows have their names to themselves."""


USAGE_KEY = ("gateway", "incarnation", "key", "namespace", "endpoint", "day")
USAGE_SUMS_LATER = ("failed", "client_gone", "counted_tokens")
"""Sums that a migration added."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Every table of one store, for one engine."""

    metadata: sa.MetaData
    nouns: Mapping[str, sa.Table]
    history: sa.Table
    keys: sa.Table
    leases: sa.Table
    holdings: sa.Table
    holding_gpus: sa.Table
    tombstones: sa.Table
    secrets: sa.Table
    usage: sa.Table
    meta: sa.Table


def searched_fields(kind: type[Noun]) -> tuple[str, ...]:
    """The indexed columns a noun has beyond those that every noun has."""
    names = {f.name for f in fields(kind)}
    return tuple(name for name in SEARCHED if name in names)


@cache
def build(*, postgres: bool) -> Tables:
    """The tables for SQLite or PostgreSQL; they differ only in how history is ordered. Nobody changes them.

    SQLite has one writer, so `seq` alone is the order of commits. PostgreSQL has many: there the order is
    `(xid, seq)`, with `xid` the writing transaction and `seq` the place within it (see `feed.py`).
    """
    meta = sa.MetaData()
    return Tables(
        metadata=meta,
        nouns={kind: _noun(meta, cls, postgres) for kind, cls in KINDS.items()},
        history=_history(meta, postgres),
        keys=sa.Table(
            "idempotency_key",
            meta,
            sa.Column("namespace", sa.Text, primary_key=True),
            sa.Column("key", sa.Text, primary_key=True),
            sa.Column("intent", sa.Text, nullable=False),
            sa.Column("result", sa.JSON, nullable=False),
            sa.Column("at", sa.Double, nullable=False),
        ),
        leases=sa.Table(
            "lease",
            meta,
            sa.Column("name", sa.Text, primary_key=True),
            sa.Column("owner", sa.Text, nullable=False),
            sa.Column("generation", sa.BigInteger, nullable=False),
            sa.Column("expires_at", sa.Double, nullable=False),
        ),
        holdings=_holding(meta),
        holding_gpus=_holding_gpu(meta),
        tombstones=_tombstone(meta),
        secrets=sa.Table(
            "secret",
            meta,
            sa.Column("name", sa.Text, primary_key=True),
            sa.Column("value", sa.Text, nullable=False),
        ),
        usage=_usage(meta),
        meta=sa.Table(
            "meta",
            meta,
            sa.Column("name", sa.Text, primary_key=True),
            sa.Column("value", sa.Text, nullable=False),
        ),
    )


def _holding(meta: sa.MetaData) -> sa.Table:
    return sa.Table(
        "holding",
        meta,
        sa.Column("worker", sa.Text, primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("machine", sa.Text, nullable=False, index=True),
        sa.Column("cpu_milli", sa.BigInteger, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False, server_default=""),
        # Quotas are summed from the index alone.
        sa.Index("holding_by_namespace", "namespace", "cpu_milli", "memory_bytes"),
    )


def _holding_gpu(meta: sa.MetaData) -> sa.Table:
    return sa.Table(
        "holding_gpu",
        meta,
        sa.Column("machine", sa.Text, primary_key=True),
        sa.Column("gpu", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("worker", sa.Text, nullable=False, index=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False, server_default=""),
        sa.Column("model", sa.Text, nullable=False, server_default=""),
        sa.Index("holding_gpu_by_namespace", "namespace", "model"),
    )


def _noun(meta: sa.MetaData, kind: type[Noun], postgres: bool) -> sa.Table:
    name = kind.kind.lower()
    searched = searched_fields(kind)
    table = sa.Table(
        name,
        meta,
        sa.Column("uid", sa.Text, primary_key=True),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("reason", sa.JSON),
        sa.Column("live", sa.Boolean, nullable=False),
        *(sa.Column(c, sa.Text) for c in searched),
        sa.Column("doc", sa.JSON, nullable=False),
        sa.Index(f"{name}_by_name", "namespace", "name"),
        sa.Index(f"{name}_by_state", "state"),
        *(sa.Index(f"{name}_by_{c}", c) for c in searched),
    )
    if kind.kind in NAMED_ONCE:
        # Naming an engine's option here would load its dialect, so the other's is left out.
        where: dict[str, Any] = {"postgresql_where" if postgres else "sqlite_where": table.c.live}
        sa.Index(f"{name}_live_name", table.c.namespace, table.c.name, unique=True, **where)
    return table


def _history(meta: sa.MetaData, postgres: bool) -> sa.Table:
    order: tuple[sa.Column[int], ...] = (
        sa.Column("seq", sa.BigInteger if postgres else sa.Integer, primary_key=True, autoincrement=False),
    )
    if postgres:
        order = (sa.Column("xid", sa.BigInteger, primary_key=True, autoincrement=False), *order)
    # SQLite keeps the rowid (seq) in every index; PostgreSQL needs the order named to read in it.
    tail = ("xid", "seq") if postgres else ()
    return sa.Table(
        "history",
        meta,
        *order,
        sa.Column("object_kind", sa.Text, nullable=False),
        sa.Column("object_uid", sa.Text, nullable=False),
        sa.Column("root", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("from_state", sa.Text),
        sa.Column("to_state", sa.Text),
        sa.Column("reason", sa.JSON, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Index("history_by_uid", "object_uid", *tail),
        sa.Index("history_by_root", "root", *tail),
        sa.Index("history_by_namespace", "namespace", *tail),
    )


def _usage(meta: sa.MetaData) -> sa.Table:
    """What was used of an endpoint with a key on one day (UTC): sums of each gateway process."""
    first = [name for name in SUMS if name not in USAGE_SUMS_LATER]
    return sa.Table(
        "usage",
        meta,
        *(sa.Column(name, sa.Text, primary_key=True) for name in USAGE_KEY),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in first),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in USAGE_SUMS_LATER),
        sa.Index("usage_by_key", "key", "day"),
        sa.Index("usage_by_day", "day"),
        sa.Index("usage_by_namespace", "namespace", "day"),
    )


def _tombstone(meta: sa.MetaData) -> sa.Table:
    return sa.Table(
        "tombstone",
        meta,
        sa.Column("uid", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.JSON, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Index("tombstone_by_name", "kind", "namespace", "name"),
    )
