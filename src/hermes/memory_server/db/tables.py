"""Every table. Times are microseconds (`times`), JSON is text, vectors are 256 half floats.

Ids are whole numbers that are never used again, so that "newer than N" is a safe way to follow a table.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()
OPEN_JOB = "state IN ('pending', 'running')"
"""A query must say it in these words, or SQLite does not see that the index of open jobs fits."""


def _reference(name: str, target: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, Integer, ForeignKey(f"{target}.id"), nullable=nullable)


def _text(name: str, default: str | None = None) -> Column[str]:
    return Column(name, Text, nullable=False, server_default=default)


workspaces = Table(
    "workspaces",
    metadata,
    Column("id", Integer, primary_key=True),
    _text("uid"),
    Column("name", Text, nullable=False, unique=True),
    _text("metadata", "{}"),
    _text("configuration", "{}"),
    Column("created_at", Integer, nullable=False),
    Column("generation", Integer, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)
"""`generation` grows when message vectors disappear: whoever keeps them in memory reads them again."""

peers = Table(
    "peers",
    metadata,
    Column("id", Integer, primary_key=True),
    _text("uid"),
    _reference("workspace_id", "workspaces"),
    _text("name"),
    _text("kind", "peer"),
    _text("metadata", "{}"),
    _text("configuration", "{}"),
    Column("created_at", Integer, nullable=False),
    UniqueConstraint("workspace_id", "name", name="peers_by_name"),
    Index("peers_in_order", "workspace_id", "kind", "created_at", "id"),
    sqlite_autoincrement=True,
)
"""`kind` is `peer` or `scope`; a scope is a silent observer."""

sessions = Table(
    "sessions",
    metadata,
    Column("id", Integer, primary_key=True),
    _text("uid"),
    _reference("workspace_id", "workspaces"),
    _text("name"),
    Column("is_active", Boolean, nullable=False, server_default="1"),
    _text("metadata", "{}"),
    _text("configuration", "{}"),
    Column("message_count", Integer, nullable=False, server_default="0"),
    Column("created_at", Integer, nullable=False),
    UniqueConstraint("workspace_id", "name", name="sessions_by_name"),
    Index("sessions_in_order", "workspace_id", "is_active", "created_at", "id"),
    sqlite_autoincrement=True,
)

memberships = Table(
    "memberships",
    metadata,
    Column("id", Integer, primary_key=True),
    _reference("session_id", "sessions"),
    _reference("peer_id", "peers"),
    Column("observe_me", Boolean),
    Column("observe_others", Boolean),
    Column("joined_seq", Integer, nullable=False),
    Column("left_seq", Integer),
    Column("joined_at", Integer, nullable=False),
    Index("memberships_active", "session_id", "peer_id", unique=True, sqlite_where=text("left_seq IS NULL")),
    Index("memberships_by_session", "session_id", "peer_id"),
    Index("memberships_by_peer", "peer_id", "session_id"),
)
"""One row per stay. A member saw the messages with `joined_seq < seq <= left_seq`, whatever their dates say."""

messages = Table(
    "messages",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    _reference("workspace_id", "workspaces"),
    _reference("session_id", "sessions"),
    _reference("peer_id", "peers"),
    Column("seq", Integer, nullable=False),
    _text("content"),
    _text("metadata", "{}"),
    Column("token_count", Integer, nullable=False),
    Column("created_at", Integer, nullable=False),
    Column("file", Text),
    Index("messages_in_order", "session_id", "seq", unique=True),
    Index("messages_by_peer", "peer_id", "id"),
    Index("messages_by_workspace", "workspace_id", "id"),
    sqlite_autoincrement=True,
)
"""`seq` counts from 1 within the session, without holes. `file` holds facts of the upload it came from."""

message_vectors = Table(
    "message_vectors",
    metadata,
    Column("workspace_id", Integer, primary_key=True),
    Column("message_id", Integer, primary_key=True),
    Column("piece", Integer, primary_key=True),
    Column("session_id", Integer, nullable=False),
    Column("peer_id", Integer, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Index("message_vectors_by_session", "session_id"),
    sqlite_with_rowid=False,
)

collections = Table(
    "collections",
    metadata,
    Column("id", Integer, primary_key=True),
    _reference("workspace_id", "workspaces"),
    _reference("observer_id", "peers"),
    _reference("observed_id", "peers"),
    Column("generation", Integer, nullable=False, server_default="0"),
    UniqueConstraint("observer_id", "observed_id", name="collections_by_pair"),
    Index("collections_by_workspace", "workspace_id"),
    sqlite_autoincrement=True,
)
"""What one peer holds about another. `generation` grows when a conclusion disappears."""

conclusions = Table(
    "conclusions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    _reference("workspace_id", "workspaces"),
    _reference("collection_id", "collections"),
    _reference("session_id", "sessions", nullable=True),
    _text("level", "explicit"),
    _text("content"),
    _text("digest"),
    Column("source_ids", Text),
    Column("message_ids", Text),
    Column("times_derived", Integer, nullable=False, server_default="1"),
    _text("metadata", "{}"),
    Column("created_at", Integer, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Column("deleted_at", Integer),
    Index("conclusions_live", "collection_id", "id", sqlite_where=text("deleted_at IS NULL")),
    Index("conclusions_frequent", "collection_id", "times_derived", "id", sqlite_where=text("deleted_at IS NULL")),
    Index("conclusions_by_digest", "collection_id", "digest"),
    Index("conclusions_by_workspace", "workspace_id", "id", sqlite_where=text("deleted_at IS NULL")),
    Index("conclusions_by_session", "session_id"),
    sqlite_autoincrement=True,
)
"""`message_ids` are the messages it was read from, `source_ids` the conclusions it was drawn from."""

cards = Table(
    "cards",
    metadata,
    Column("collection_id", Integer, ForeignKey("collections.id"), primary_key=True),
    _text("lines"),
    Column("written_by", Text, nullable=False),
    Column("updated_at", Integer, nullable=False),
)
"""`written_by` is `person` or `dream`; a dream does not write over a person's card."""

summaries = Table(
    "summaries",
    metadata,
    Column("session_id", Integer, ForeignKey("sessions.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    _text("content"),
    Column("message_id", Integer, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("token_count", Integer, nullable=False),
    Column("created_at", Integer, nullable=False),
)

scope_sessions = Table(
    "scope_sessions",
    metadata,
    Column("scope_id", Integer, ForeignKey("peers.id"), primary_key=True),
    Column("session_id", Integer, ForeignKey("sessions.id"), primary_key=True),
    _text("state", "pending"),
    Column("copied", Integer),
    Column("updated_at", Integer, nullable=False),
    Index("scope_sessions_by_session", "session_id"),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    _reference("workspace_id", "workspaces"),
    _text("url"),
    Column("created_at", Integer, nullable=False),
    UniqueConstraint("workspace_id", "url", name="webhooks_by_url"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Integer, primary_key=True),
    _text("kind"),
    _text("unit"),
    Column("workspace_id", Integer, nullable=False),
    Column("session_id", Integer),
    Column("sender_id", Integer),
    _text("payload"),
    _text("state", "pending"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("not_before", Integer, nullable=False, server_default="0"),
    Column("owner", Text),
    Column("lease_until", Integer),
    Column("error", Text),
    Column("created_at", Integer, nullable=False),
    Column("finished_at", Integer),
    Index("jobs_open", "id", sqlite_where=text(OPEN_JOB)),
    Index("jobs_open_by_unit", "unit", "id", sqlite_where=text(OPEN_JOB)),
    Index("jobs_by_workspace", "workspace_id", "state", "session_id"),
    Index("jobs_finished", "finished_at", sqlite_where=text("finished_at IS NOT NULL")),
    sqlite_autoincrement=True,
)
"""Background work. Jobs of one `unit` run one after another, in order; a lease that ran out can be taken over."""

job_observers = Table(
    "job_observers",
    metadata,
    Column("job_id", Integer, primary_key=True),
    Column("peer_id", Integer, primary_key=True),
    Index("job_observers_by_peer", "peer_id"),
    sqlite_with_rowid=False,
)
"""Whose view a job will change."""

MESSAGE_TEXTS = """
CREATE VIEW message_texts AS
SELECT id, 'w' || workspace_id || ' s' || session_id || ' p' || peer_id AS scope, content FROM messages
"""
MESSAGE_INDEX = """
CREATE VIRTUAL TABLE message_index USING fts5(
    scope, content, content = 'message_texts', content_rowid = 'id', tokenize = 'porter unicode61 remove_diacritics 2'
)
"""
"""The full-text index: `scope` is searched together with the words, so that a search costs what its scope holds."""
