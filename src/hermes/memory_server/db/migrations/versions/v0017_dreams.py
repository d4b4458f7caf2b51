"""Reports of dreams."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Create an empty table: earlier dreams left no report."""
    op.create_table(
        "dreams",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("public_id", sa.Text, nullable=False, unique=True),
        sa.Column("workspace_id", sa.Integer, nullable=False),
        sa.Column("collection_id", sa.Integer, nullable=False),
        sa.Column("report", sa.Text, nullable=False),
        sa.Column("created_at", sa.Integer, nullable=False),
        sa.Column("undone_at", sa.Integer),
    )
    op.create_index("dreams_by_workspace", "dreams", ["workspace_id", "id"])
