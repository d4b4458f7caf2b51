"""Messages that were removed from a workspace."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create an empty table. Earlier removals are unknown, so caches from before read everything again."""
    op.create_table(
        "departures",
        sa.Column("workspace_id", sa.Integer, primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("message_id", sa.Integer, primary_key=True),
        sqlite_with_rowid=False,
    )
