"""The first schema: nouns, history, keys, leases, holdings, tombstones, meta.

Written out and never changed: later releases add steps. Forward only; a way back is a backup.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NOUNS = {
    "deployment": (),
    "revision": ("deployment",),
    "replica": ("deployment", "revision", "run", "machine"),
    "run": ("deployment", "replica"),
    "worker": ("deployment", "run", "machine"),
    "machine": (),
    "operation": ("revision", "target"),
}


def upgrade() -> None:
    """Make every table."""
    for name, searched in NOUNS.items():
        _noun(name, searched)
    _history(op.get_bind().dialect.name == "postgresql")
    _beside()


def _noun(name: str, searched: tuple[str, ...]) -> None:
    op.create_table(
        name,
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
    )
    op.create_index(f"{name}_by_name", name, ["namespace", "name"])
    op.create_index(f"{name}_by_state", name, ["state"])
    for column in searched:
        op.create_index(f"{name}_by_{column}", name, [column])
    if name in {"deployment", "run"}:
        live = sa.text("live")
        op.create_index(
            f"{name}_live_name", name, ["namespace", "name"], unique=True, sqlite_where=live, postgresql_where=live
        )


def _history(postgres: bool) -> None:
    xid = (sa.Column("xid", sa.BigInteger, primary_key=True, autoincrement=False),) if postgres else ()
    op.create_table(
        "history",
        *xid,
        sa.Column("seq", sa.BigInteger if postgres else sa.Integer, primary_key=True, autoincrement=False),
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
    )
    tail = ["xid", "seq"] if postgres else []
    op.create_index("history_by_uid", "history", ["object_uid", *tail])
    op.create_index("history_by_root", "history", ["root", *tail])


def _beside() -> None:
    op.create_table(
        "idempotency_key",
        sa.Column("namespace", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("intent", sa.Text, nullable=False),
        sa.Column("result", sa.JSON, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
    )
    op.create_table(
        "holding",
        sa.Column("worker", sa.Text, primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("machine", sa.Text, nullable=False),
        sa.Column("cpu_milli", sa.BigInteger, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_holding_machine", "holding", ["machine"])
    op.create_table(
        "holding_gpu",
        sa.Column("machine", sa.Text, primary_key=True),
        sa.Column("gpu", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_holding_gpu_worker", "holding_gpu", ["worker"])
    op.create_table(
        "tombstone",
        sa.Column("uid", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.JSON, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_index("tombstone_by_name", "tombstone", ["kind", "namespace", "name"])
    op.create_table(
        "meta",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
