"""Namespaces as rows, and holdings that say whose they are and of which models their GPUs are: what quotas sum over."""

from typing import Any

import orjson
import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add a table and columns; holdings that are there get their worker's namespace and their GPUs' models."""
    op.create_table(
        "namespace",
        sa.Column("uid", sa.Text, primary_key=True),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("reason", sa.JSON),
        sa.Column("live", sa.Boolean, nullable=False),
        sa.Column("doc", sa.JSON, nullable=False),
    )
    op.create_index("namespace_by_name", "namespace", ["namespace", "name"])
    op.create_index("namespace_by_state", "namespace", ["state"])
    op.add_column("holding", sa.Column("namespace", sa.Text, nullable=False, server_default=""))
    op.create_index("holding_by_namespace", "holding", ["namespace", "cpu_milli", "memory_bytes"])
    for name in ("namespace", "model"):
        op.add_column("holding_gpu", sa.Column(name, sa.Text, nullable=False, server_default=""))
    op.create_index("holding_gpu_by_namespace", "holding_gpu", ["namespace", "model"])
    _fill(op.get_bind())


def _fill(connection: sa.Connection) -> None:
    for table in ("holding", "holding_gpu"):
        owner = f"coalesce((SELECT w.namespace FROM worker w WHERE w.uid = {table}.worker), '')"
        connection.execute(sa.text(f"UPDATE {table} SET namespace = {owner}"))
    held = {machine for (machine,) in connection.execute(sa.text("SELECT DISTINCT machine FROM holding_gpu"))}
    for uid, doc in connection.execute(sa.text("SELECT uid, doc FROM machine")).fetchall():
        if uid not in held:
            continue
        rows = [
            {"machine": uid, "gpu": int(gpu["index"]), "model": str(gpu.get("model") or "")}
            for gpu in _capacity(doc).get("gpus") or ()
        ]
        if rows:
            named = sa.text("UPDATE holding_gpu SET model = :model WHERE machine = :machine AND gpu = :gpu")
            connection.execute(named, rows)


def _capacity(doc: Any) -> dict[str, Any]:
    found = orjson.loads(doc) if isinstance(doc, str | bytes) else doc
    return dict(found.get("capacity") or {})
