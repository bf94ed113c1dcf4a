"""Token hashes kept beside the rows, and events of one namespace found without reading everybody's."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add a table and an index; nothing that an older row has is touched."""
    op.create_table(
        "secret",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    tail = ["xid", "seq"] if op.get_bind().dialect.name == "postgresql" else []
    op.create_index("history_by_namespace", "history", ["namespace", *tail])
