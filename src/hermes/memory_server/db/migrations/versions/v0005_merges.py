"""Merges of peers with the rows they moved, and an index of derived conclusions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the tables and the index."""
    drawn = sa.text("source_ids IS NOT NULL")
    op.create_index("conclusions_drawn", "conclusions", ["collection_id"], sqlite_where=drawn, postgresql_where=drawn)
    op.create_table(
        "merges",
        sa.Column("id", sa.Integer, primary_key=True, nullable=False),
        sa.Column("public_id", sa.Text, nullable=False, unique=True),
        sa.Column("workspace_id", sa.Integer, sa.ForeignKey("workspaces.id"), nullable=False),
        sa.Column("from_id", sa.Integer, sa.ForeignKey("peers.id"), nullable=False),
        sa.Column("into_id", sa.Integer, sa.ForeignKey("peers.id"), nullable=False),
        sa.Column("from_name", sa.Text, nullable=False),
        sa.Column("into_name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", sa.Integer, nullable=False),
    )
    op.create_index("merges_by_name", "merges", ["workspace_id", "from_name"])
    op.create_table(
        "merge_rows",
        sa.Column("id", sa.Integer, primary_key=True, nullable=False),
        sa.Column("merge_id", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("row_id", sa.Integer, nullable=False),
        sa.Column("before", sa.Text),
    )
    op.create_index("merge_rows_by_merge", "merge_rows", ["merge_id", "kind", "id"])
