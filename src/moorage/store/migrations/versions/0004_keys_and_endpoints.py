"""Clients' keys, endpoints that people made, and what was used with which key."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

NOUNS = ("key", "endpoint")


def upgrade() -> None:
    """Add three tables; what is there is not touched."""
    for name in NOUNS:
        _noun(name)
    op.create_table(
        "usage",
        sa.Column("gateway", sa.Text, primary_key=True),
        sa.Column("incarnation", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("namespace", sa.Text, primary_key=True),
        sa.Column("endpoint", sa.Text, primary_key=True),
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("refused", sa.BigInteger, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
    )
    op.create_index("usage_by_key", "usage", ["key", "day"])
    op.create_index("usage_by_day", "usage", ["day"])


def _noun(name: str) -> None:
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
        sa.Column("doc", sa.JSON, nullable=False),
    )
    op.create_index(f"{name}_by_name", name, ["namespace", "name"])
    op.create_index(f"{name}_by_state", name, ["state"])
    live = sa.text("live")
    op.create_index(
        f"{name}_live_name", name, ["namespace", "name"], unique=True, sqlite_where=live, postgresql_where=live
    )
