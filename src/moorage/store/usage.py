"""The table of usage: sums that only grow, so that writing the same again, or an older report, changes nothing.

Called by `store.py`, in a transaction of its own for each write.
"""

from collections.abc import Sequence

import sqlalchemy as sa

from moorage.domain.usage import SUMS, UsageRow, UsageSums, UsedOn
from moorage.store.sql import Sql
from moorage.store.tables import USAGE_KEY

_NAMES = (*USAGE_KEY, *SUMS)
_GROWN = ", ".join(f'{n} = CASE WHEN excluded.{n} > "usage".{n} THEN excluded.{n} ELSE "usage".{n} END' for n in SUMS)
_KEEP = sa.text(
    f'INSERT INTO "usage" ({", ".join(_NAMES)}) VALUES ({", ".join(f":{name}" for name in _NAMES)}) '
    f"ON CONFLICT ({', '.join(USAGE_KEY)}) DO UPDATE SET {_GROWN}"
)
"""Both engines read it; nothing in it comes from outside."""


def keep(connection: sa.Connection, rows: Sequence[UsageRow]) -> None:
    """Write sums; of each the larger one stays."""
    values = [{**{name: getattr(row, name) for name in USAGE_KEY}, **_sums(row.sums)} for row in rows]
    # In one order, so that two control planes that write the same rows cannot wait for each other.
    values.sort(key=lambda value: tuple(value[name] for name in USAGE_KEY))
    if values:
        connection.execute(_KEEP, values)


def read(sql: Sql, connection: sa.Connection, namespace: str, days: tuple[str, str], key: str | None) -> list[UsedOn]:
    """By key, day and endpoint, over all gateways; in this order."""
    used = sql.tables.usage
    grouped = (used.c.key, used.c.day, used.c.endpoint)
    query = (
        sa.select(*grouped, *(sa.func.sum(used.c[name]) for name in SUMS))
        .where(used.c.namespace == namespace, used.c.day.between(*days))
        .group_by(*grouped)
        .order_by(*grouped)
    )
    if key is not None:
        query = query.where(used.c.key == key)
    rows = connection.execute(query).fetchall()
    return [UsedOn(key=r[0], day=r[1], endpoint=r[2], sums=UsageSums(*map(int, r[3:]))) for r in rows]


def prune(sql: Sql, connection: sa.Connection, before: str) -> int:
    """Remove what is of days before this one; how many rows went."""
    used = sql.tables.usage
    return connection.execute(sa.delete(used).where(used.c.day < before)).rowcount


def _sums(sums: UsageSums) -> dict[str, int]:
    return {name: getattr(sums, name) for name in SUMS}
