"""Usage tells how requests ended and which tokens were only counted; it is found by namespace."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

SUMS = ("failed", "client_gone", "counted_tokens")


def upgrade() -> None:
    """Add columns to a table that nobody has written to yet."""
    for name in SUMS:
        op.add_column("usage", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("usage_by_namespace", "usage", ["namespace", "day"])
