"""The first tables. Only SQLite files are as old as this version."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in script.split(";\n"):
        if statement.strip():
            op.get_bind().exec_driver_sql(statement)
