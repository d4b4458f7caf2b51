"""The first tables."""

from __future__ import annotations

from alembic import op

from hermes.memory_server.db.tables import MESSAGE_INDEX, MESSAGE_TEXTS, metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make everything. When a later migration changes a table, this one gets its own copy of what it was."""
    metadata.create_all(op.get_bind())
    op.execute(MESSAGE_TEXTS)
    op.execute(MESSAGE_INDEX)
