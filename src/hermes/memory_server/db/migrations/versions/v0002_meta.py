"""The table `meta`, and an index that finds the next job of each kind."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
OPEN_JOB = "state IN ('pending', 'running')"
KNOWN = {"format": "1", "embedder": "wordllama/l2_supercat_256", "dimension": "256"}
"""Values for existing folders: earlier versions had no other embedder."""


def upgrade() -> None:
    """Create the table and the index, and fill in what holds for every existing folder."""
    meta = op.create_table(
        "meta",
        sa.Column("name", sa.Text, primary_key=True, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.bulk_insert(meta, [{"name": name, "value": value} for name, value in KNOWN.items()])
    op.drop_index("jobs_open", "jobs")
    where = sa.text(OPEN_JOB)
    op.create_index("jobs_open_by_kind", "jobs", ["kind", "id"], sqlite_where=where, postgresql_where=where)
