"""Messages that the second embedder has to embed again, or refused."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the table, with every message that lost its vector because an earlier one was deleted."""
    op.create_table(
        "finer_again",
        sa.Column("workspace_id", sa.Integer, primary_key=True),
        sa.Column("message_id", sa.Integer, primary_key=True),
        sa.Column("failures", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("finer_again_by_failures", "finer_again", ["failures"])
    op.execute(
        """
        INSERT INTO finer_again (workspace_id, message_id, failures)
        SELECT m.workspace_id, m.id, 0 FROM finer_progress AS p
        JOIN messages AS m ON m.workspace_id = p.workspace_id AND m.id <= p.upto
        WHERE NOT EXISTS (
            SELECT 1 FROM finer_vectors AS v WHERE v.workspace_id = m.workspace_id AND v.message_id = m.id
        )
        """
    )
