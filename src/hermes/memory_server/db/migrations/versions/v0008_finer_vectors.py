"""Vectors of a second embedder."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create two empty tables, which a background task fills."""
    op.create_table(
        "finer_vectors",
        sa.Column("workspace_id", sa.Integer, primary_key=True),
        sa.Column("message_id", sa.Integer, primary_key=True),
        sa.Column("piece", sa.Integer, primary_key=True),
        sa.Column("space", sa.Text, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "finer_progress",
        sa.Column("workspace_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("space", sa.Text, nullable=False),
        sa.Column("upto", sa.Integer, nullable=False),
    )
