"""First answers to requests that carry a key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "answers",
        sa.Column("workspace_id", sa.Integer, primary_key=True, nullable=False),
        sa.Column("session_id", sa.Integer, primary_key=True, nullable=False),
        sa.Column("route", sa.Text, primary_key=True, nullable=False),
        sa.Column("key", sa.Text, primary_key=True, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.Column("kept_at", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("answers_by_age", "answers", ["kept_at"])
