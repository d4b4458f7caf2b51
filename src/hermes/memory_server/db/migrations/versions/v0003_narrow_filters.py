"""Indexes for filters on dates and metadata, and for observing members; deleted conclusions are purged."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hermes.memory_server.db.matching import facts_of

revision = "0003"
down_revision = "0002"
BATCH_ROWS = 1000


def upgrade() -> None:
    """Create the indexes, and fill the index of metadata from the messages."""
    op.create_index("messages_by_session_date", "messages", ["session_id", "created_at"])
    op.create_index("messages_by_workspace_date", "messages", ["workspace_id", "created_at"])
    where = sa.text("left_seq IS NULL AND observe_others")
    op.create_index("memberships_observing", "memberships", ["session_id"], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "message_facts",
        sa.Column("workspace_id", sa.Integer, primary_key=True, nullable=False),
        sa.Column("fact", sa.Integer, primary_key=True, nullable=False),
        sa.Column("message_id", sa.Integer, primary_key=True, nullable=False),
        sqlite_with_rowid=False,
    )
    _keep_facts(op.get_bind())
    op.execute("DELETE FROM conclusions WHERE deleted_at IS NOT NULL")


def _keep_facts(connection: sa.Connection) -> None:
    last = 0
    query = (
        "SELECT id, workspace_id, metadata FROM messages WHERE id > :last AND metadata <> '{}' ORDER BY id LIMIT :most"
    )
    while rows := connection.execute(sa.text(query), {"last": last, "most": BATCH_ROWS}).all():
        kept = [{"w": row[1], "f": fact, "m": row[0]} for row in rows for fact in facts_of(row[2])]
        if kept:
            connection.execute(sa.text("INSERT INTO message_facts VALUES (:w, :f, :m)"), kept)
        last = rows[-1][0]
