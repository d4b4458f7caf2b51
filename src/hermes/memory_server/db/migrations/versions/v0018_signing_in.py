"""Clients, requests to sign in, grants and their tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _whole(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def upgrade() -> None:
    """Create four empty tables: signing in is new."""
    op.create_table(
        "oauth_clients", sa.Column("name", sa.Text, primary_key=True), _text("redirects"), _whole("created_at")
    )
    op.create_table(
        "sign_ins",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("public_id", sa.Text, nullable=False, unique=True),
        *map(_text, ("client", "source", "address", "redirect_uri", "state", "challenge", "browser", "config_path")),
        sa.Column("device_hash", sa.Text, unique=True),
        sa.Column("user_code_hash", sa.Text, unique=True),
        sa.Column("approval_hash", sa.Text),
        _text("decision"),
        sa.Column("grant_id", sa.Integer),
        *map(_whole, ("polled_at", "interval_seconds", "created_at", "expires_at")),
    )
    op.create_index("sign_ins_by_expiry", "sign_ins", ["expires_at"])
    op.create_table(
        "grants",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("public_id", sa.Text, nullable=False, unique=True),
        *map(_text, ("client", "source")),
        _whole("workspace_id"),
        _text("person"),
        *map(_whole, ("created_at", "renewed_at")),
        sqlite_autoincrement=True,
    )
    op.create_index("grants_by_workspace", "grants", ["workspace_id"])
    op.create_table(
        "grant_tokens",
        sa.Column("hash", sa.Text, primary_key=True),
        _whole("grant_id"),
        _text("kind"),
        _whole("expires_at"),
        sa.Column("spent_at", sa.Integer),
        sqlite_with_rowid=False,
    )
    op.create_index("grant_tokens_by_grant", "grant_tokens", ["grant_id"])
    op.create_index("grant_tokens_by_expiry", "grant_tokens", ["expires_at"])
