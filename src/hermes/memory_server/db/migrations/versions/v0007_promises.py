"""What was promised and given up is tried again; the answers that show a copy of a session are found by its name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
PROMISED = "'delete_session', 'delete_workspace', 'delete_peer', 'delete_messages', 'merge_peers', 'tidy'"


def upgrade() -> None:
    """Add the index, and let deletions and merges wait again that had failed for good."""
    where = sa.text("route = 'clone'")
    op.create_index(
        "answers_of_clones", "answers", ["workspace_id", "answer"], sqlite_where=where, postgresql_where=where
    )
    op.execute(
        "UPDATE jobs SET state = 'pending', attempts = 0, finished_at = NULL "
        f"WHERE state = 'failed' AND kind IN ({PROMISED})"
    )
