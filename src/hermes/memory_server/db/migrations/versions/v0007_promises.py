"""Retries of failed deletions and merges, and an index of the responses to session copies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
PROMISED = "'delete_session', 'delete_workspace', 'delete_peer', 'delete_messages', 'merge_peers', 'tidy'"


def upgrade() -> None:
    """Create the index, and requeue deletions and merges that had failed permanently."""
    where = sa.text("route = 'clone'")
    op.create_index(
        "answers_of_clones", "answers", ["workspace_id", "answer"], sqlite_where=where, postgresql_where=where
    )
    op.execute(
        "UPDATE jobs SET state = 'pending', attempts = 0, finished_at = NULL "
        f"WHERE state = 'failed' AND kind IN ({PROMISED})"
    )
