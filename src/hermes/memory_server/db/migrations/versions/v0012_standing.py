"""The kind of a conclusion that always holds. Existing conclusions are classified in the background."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
WHERE = sa.text("standing IS NOT NULL")
MARK = sa.text("INSERT INTO meta (name, value) SELECT 'standing_until', CAST(max(id) AS TEXT) FROM conclusions")
QUEUE = sa.text(
    "INSERT INTO jobs (kind, unit, workspace_id, payload, created_at) VALUES ('catch_up', 'catch_up', 0, '{}', :at)"
)


def upgrade() -> None:
    """Add the column, and queue the classification of existing conclusions."""
    op.add_column("conclusions", sa.Column("standing", sa.Text))
    columns = ["collection_id", "standing", "id"]
    op.create_index("conclusions_standing", "conclusions", columns, sqlite_where=WHERE, postgresql_where=WHERE)
    connection = op.get_bind()
    if connection.execute(sa.text("SELECT 1 FROM conclusions LIMIT 1")).first() is not None:
        connection.execute(MARK)
        connection.execute(QUEUE, {"at": time.time_ns() // 1000})
