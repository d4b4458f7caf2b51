"""Rereading of an earlier version's data in the background: traits of messages, conclusions, and messages of workspaces
from which nothing was ever deleted."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
MARKS = (
    "SELECT 'reread:1', '0:' || max(id) FROM messages HAVING max(id) IS NOT NULL",
    "SELECT 'reread:2', '0:' || max(id) FROM conclusions HAVING max(id) IS NOT NULL",
    "SELECT 'reread:3:' || w.id, '0:' || max(m.id) FROM workspaces AS w JOIN messages AS m ON m.workspace_id = w.id "
    "WHERE w.generation = 0 "
    "AND NOT EXISTS (SELECT 1 FROM collections AS c WHERE c.workspace_id = w.id AND c.generation > 0) "
    "AND NOT EXISTS (SELECT 1 FROM tombstones AS t WHERE t.workspace_id = w.id) "
    "AND NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.workspace_id = w.id AND (s.removals > 0 OR NOT s.is_active)) "
    "AND NOT EXISTS (SELECT 1 FROM conclusions AS n WHERE n.workspace_id = w.id AND n.deleted_at IS NOT NULL) "
    "AND (SELECT count(*) = max(id) FROM messages) AND (SELECT count(*) = coalesce(max(id), 0) FROM conclusions) "
    "GROUP BY w.id",
)
"""Ids are never reused, so a gap shows that something was deleted, in some workspace."""
QUEUE = sa.text(
    "INSERT INTO jobs (kind, unit, workspace_id, payload, created_at) SELECT 'reread', 'reread', 0, '{}', :at "
    "WHERE EXISTS (SELECT 1 FROM meta WHERE name LIKE 'reread:%')"
)


def upgrade() -> None:
    """Record the range of each pass, and queue the job."""
    connection = op.get_bind()
    for mark in MARKS:
        connection.execute(sa.text(f"INSERT INTO meta (name, value) {mark}"))
    connection.execute(QUEUE, {"at": time.time_ns() // 1000})
