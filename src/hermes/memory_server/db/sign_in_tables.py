"""Tables of programs that sign in: clients, requests, and the grants that they get."""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Index,
    Text,
)

from hermes.memory_server.db.columns import (
    Whole,
    new_table,
    text_column,
)

oauth_clients = new_table(
    "oauth_clients",
    Column("name", Text, primary_key=True),
    text_column("redirects"),
    Column("created_at", Whole, nullable=False),
)
"""Programs that the owner added to the built-in clients; `redirects` is a JSON list of URLs."""

sign_ins = new_table(
    "sign_ins",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    text_column("client"),
    text_column("source"),
    text_column("address"),
    text_column("redirect_uri"),
    text_column("state"),
    text_column("challenge"),
    text_column("browser"),
    text_column("config_path"),
    Column("device_hash", Text, unique=True),
    Column("user_code_hash", Text, unique=True),
    Column("approval_hash", Text),
    text_column("decision"),
    Column("grant_id", Whole),
    Column("polled_at", Whole, nullable=False),
    Column("interval_seconds", Whole, nullable=False),
    Column("created_at", Whole, nullable=False),
    Column("expires_at", Whole, nullable=False),
    Index("sign_ins_by_expiry", "expires_at"),
)
"""Requests to sign in, from a browser or a device. `decision` is `open`, `allowed`, `denied`, or `spent` after the
tokens were issued."""

grants = new_table(
    "grants",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    text_column("client"),
    text_column("source"),
    Column("workspace_id", Whole, nullable=False),
    text_column("person"),
    Column("created_at", Whole, nullable=False),
    Column("renewed_at", Whole, nullable=False),
    Index("grants_by_workspace", "workspace_id"),
    sqlite_autoincrement=True,
)
"""Access that the owner granted to a client: one workspace. `person` is the name given at consent."""

grant_tokens = new_table(
    "grant_tokens",
    Column("hash", Text, primary_key=True),
    Column("grant_id", Whole, nullable=False),
    text_column("kind"),
    Column("expires_at", Whole, nullable=False),
    Column("spent_at", Whole),
    Index("grant_tokens_by_grant", "grant_id"),
    Index("grant_tokens_by_expiry", "expires_at"),
    sqlite_with_rowid=False,
)
"""Hashes of access and refresh tokens; a refresh token is spent by its first exchange."""
