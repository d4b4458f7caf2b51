"""First responses to requests with an idempotency key; source messages and earlier versions of conclusions."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
BATCH_ROWS = 1000


def upgrade() -> None:
    """Create the tables, and fill in the sources of existing conclusions."""
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
    op.execute("ALTER TABLE sessions ADD COLUMN removals INTEGER DEFAULT '0' NOT NULL")
    op.create_table(
        "conclusion_messages",
        sa.Column("message_id", sa.Integer, primary_key=True, nullable=False),
        sa.Column("conclusion_id", sa.Integer, primary_key=True, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("conclusion_messages_by_conclusion", "conclusion_messages", ["conclusion_id"])
    op.create_table(
        "conclusion_versions",
        sa.Column("conclusion_id", sa.Integer, primary_key=True, nullable=False),
        sa.Column("number", sa.Integer, primary_key=True, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("replaced_at", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    _link_messages(op.get_bind())


def _link_messages(connection: sa.Connection) -> None:
    last = 0
    query = (
        "SELECT id, message_ids FROM conclusions WHERE id > :last AND message_ids IS NOT NULL ORDER BY id LIMIT :most"
    )
    while rows := connection.execute(sa.text(query), {"last": last, "most": BATCH_ROWS}).all():
        linked = [{"m": message, "c": row[0]} for row in rows for message in {*json.loads(row[1])}]
        if linked:
            connection.execute(sa.text("INSERT INTO conclusion_messages VALUES (:m, :c)"), linked)
        last = rows[-1][0]
