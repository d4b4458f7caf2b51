"""Traits and dates of messages for searches; words of scripts without spaces become searchable."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

from hermes.memory_server.db.catching_up import begin_catching_up, catch_up

revision = "0006"
down_revision = "0005"
MAX_MESSAGES_BEFORE_START = 5000
"""Messages that are read before the folder is served; the rest is read afterwards."""
QUEUE = sa.text(
    "INSERT INTO jobs (kind, unit, workspace_id, payload, created_at) VALUES ('catch_up', 'catch_up', 0, '{}', :at)"
)


def upgrade() -> None:
    """Add the columns, and fill them from the messages."""
    for name in ("traits", "said_at"):
        op.add_column("message_vectors", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    connection = op.get_bind()
    if begin_catching_up(connection) and catch_up(connection, MAX_MESSAGES_BEFORE_START):
        connection.execute(QUEUE, {"at": time.time_ns() // 1000})
