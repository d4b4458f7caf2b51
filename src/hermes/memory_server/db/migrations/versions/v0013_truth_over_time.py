"""Validity times of conclusions, hashes of what was deleted, and one table for the messages of conclusions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
COLUMNS = ("happened_at", "learnt_at", "valid_until", "superseded_by", "retired_at")
SUPERSEDED, RETIRED = sa.text("superseded_by IS NOT NULL"), sa.text("retired_at IS NOT NULL")


def upgrade() -> None:
    """Add columns and tables. Existing conclusions are unchanged: none is superseded retroactively."""
    op.drop_column("conclusions", "message_ids")
    for name in COLUMNS:
        op.add_column("conclusions", sa.Column(name, sa.Integer))
    op.add_column("conclusions", sa.Column("retired_why", sa.Text))
    for name, columns, where in (
        ("conclusions_superseded", ["superseded_by"], SUPERSEDED),
        ("conclusions_retired", ["workspace_id", "id"], RETIRED),
    ):
        op.create_index(name, "conclusions", columns, sqlite_where=where, postgresql_where=where)
    op.create_table(
        "claims",
        sa.Column("collection_id", sa.Integer, primary_key=True, nullable=False),
        sa.Column("attribute", sa.Text, primary_key=True, nullable=False),
        sa.Column("conclusion_id", sa.Integer, primary_key=True, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("is_denied", sa.Boolean, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("claims_by_conclusion", "claims", ["conclusion_id"])
    op.create_table(
        "supersessions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("public_id", sa.Text, nullable=False, unique=True),
        sa.Column("older_id", sa.Integer, nullable=False),
        sa.Column("newer_id", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("created_at", sa.Integer, nullable=False),
        sa.Column("undone_at", sa.Integer),
        sa.UniqueConstraint("older_id", "newer_id", name="supersessions_by_pair"),
    )
    op.create_index("supersessions_by_newer", "supersessions", ["newer_id"])
    op.create_table(
        "tombstones",
        sa.Column("workspace_id", sa.Integer, primary_key=True, nullable=False),
        sa.Column("observed_id", sa.Integer, primary_key=True, nullable=False),
        sa.Column("hash", sa.Text, primary_key=True, nullable=False),
        sa.Column("deleted_at", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
