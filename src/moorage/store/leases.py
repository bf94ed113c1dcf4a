"""Leases: who leads, with a generation that every write made under it carries as its fence.

All but `read` are one write transaction of the store's writer (`Writer.submit`). A new holder raises the generation, so
whatever the old one still sends is refused in the transaction that would write it. Expiry is by the store's clock.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from moorage.store.sql import Sql


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease as acquired; `expires_at` in seconds since the epoch."""

    name: str
    owner: str
    generation: int
    expires_at: float


def acquire(sql: Sql, connection: sa.Connection, wanted: HeldLease, now: float) -> HeldLease | None:
    """Take or renew `wanted` (its generation is ignored), or None while somebody else holds it."""
    lease = sql.tables.leases
    if sql.postgres:
        # Two processes may both see no row to lock; the second waits here for the first.
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext(%(n)s))", {"n": f"moorage/{wanted.name}"})
    row = connection.execute(
        sa.select(lease.c.owner, lease.c.generation, lease.c.expires_at)
        .where(lease.c.name == wanted.name)
        .with_for_update()
    ).one_or_none()
    if row is None:
        taken = HeldLease(wanted.name, wanted.owner, 1, wanted.expires_at)
        connection.execute(
            sa.insert(lease).values(name=taken.name, owner=taken.owner, generation=1, expires_at=taken.expires_at)
        )
        return taken
    if row.owner not in ("", wanted.owner) and row.expires_at > now:
        return None
    generation = row.generation if row.owner == wanted.owner else row.generation + 1
    taken = HeldLease(wanted.name, wanted.owner, generation, wanted.expires_at)
    connection.execute(
        sa.update(lease)
        .where(lease.c.name == taken.name)
        .values(owner=taken.owner, generation=generation, expires_at=taken.expires_at)
    )
    return taken


def read(sql: Sql, connection: sa.Connection, name: str) -> HeldLease | None:
    """The lease as it stands, over or not; None where nobody ever held it, or its holder gave it up."""
    lease = sql.tables.leases
    row = connection.execute(
        sa.select(lease.c.owner, lease.c.generation, lease.c.expires_at).where(lease.c.name == name)
    ).one_or_none()
    if row is None or row.owner == "":
        return None
    return HeldLease(name, row.owner, row.generation, row.expires_at)


def release(sql: Sql, connection: sa.Connection, name: str, generation: int) -> None:
    """Give it up if it is still that generation's; the generation stays, so the next holder gets a higher one."""
    lease = sql.tables.leases
    connection.execute(
        sa.update(lease).where(lease.c.name == name, lease.c.generation == generation).values(owner="", expires_at=0.0)
    )
