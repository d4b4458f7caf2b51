"""Every table. Times are microseconds (`times`), JSON is text, vectors are 256 half floats.

Ids are whole numbers that are never used again. Those of a workspace's messages and of a collection's conclusions grow
in the order of commit, since who adds some holds the lock of the workspace or collection: "newer than N" is a safe way
to follow them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
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
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, SchemaItem
from sqlalchemy.sql.compiler import DDLCompiler

metadata = MetaData()
Whole = BigInteger().with_variant(Integer(), "sqlite")
"""Every whole number has 64 bits, since times are microseconds. All of SQLite's have, under the name of INTEGER."""
OPEN_JOB = "state IN ('pending', 'running')"
"""The condition of the partial index of open jobs. A query must repeat it literally, or the index is not used."""

OBSERVING = "memberships.left_seq IS NULL AND memberships.observe_others"
"""As above, for the members that observe others."""


def _table(name: str, *parts: SchemaItem, **options: Any) -> Table:
    return Table(name, metadata, *parts, **options)


def _key(*names: str) -> list[Column[int]]:
    return [Column(name, Whole, primary_key=True) for name in names]


def _reference(name: str, target: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, Whole, ForeignKey(f"{target}.id"), nullable=nullable)


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """An index of the rows that a condition holds for."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where), info={"where": where})


@compiles(CreateIndex, "postgresql")
def _create_on_postgresql(creating: CreateIndex, compiler: DDLCompiler, **options: Any) -> str:
    """Given here, because to name PostgreSQL's own option above loads all of its dialect, at every start."""
    index = creating.element
    if "where" in index.info:
        index.dialect_options["postgresql"]["where"] = text(index.info["where"])
    return str(compiler.visit_create_index(creating, **options))  # type: ignore[no-untyped-call]


def _text(name: str, default: str | None = None) -> Column[str]:
    return Column(name, Text, nullable=False, server_default=default)


workspaces = _table(
    "workspaces",
    Column("id", Whole, primary_key=True),
    _text("uid"),
    Column("name", Text, nullable=False, unique=True),
    _text("metadata", "{}"),
    _text("configuration", "{}"),
    Column("created_at", Whole, nullable=False),
    Column("generation", Whole, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)
"""`generation` grows when messages disappear or get another author. Who keeps messages in memory compares it."""

peers = _table(
    "peers",
    Column("id", Whole, primary_key=True),
    _text("uid"),
    _reference("workspace_id", "workspaces"),
    _text("name"),
    _text("kind", "peer"),
    _text("metadata", "{}"),
    _text("configuration", "{}"),
    Column("created_at", Whole, nullable=False),
    UniqueConstraint("workspace_id", "name", name="peers_by_name"),
    Index("peers_in_order", "workspace_id", "kind", "created_at", "id"),
    sqlite_autoincrement=True,
)
"""`kind` is `peer`, `scope` (a silent observer) or `deleted`: it waits for its removal and is shown nowhere."""

sessions = _table(
    "sessions",
    Column("id", Whole, primary_key=True),
    _text("uid"),
    _reference("workspace_id", "workspaces"),
    _text("name"),
    Column("is_active", Boolean, nullable=False, server_default="1"),
    _text("metadata", "{}"),
    _text("configuration", "{}"),
    Column("message_count", Whole, nullable=False, server_default="0"),
    Column("created_at", Whole, nullable=False),
    Column("removals", Whole, nullable=False, server_default="0"),
    UniqueConstraint("workspace_id", "name", name="sessions_by_name"),
    Index("sessions_in_order", "workspace_id", "is_active", "created_at", "id"),
    sqlite_autoincrement=True,
)
"""`message_count` is the number of the last message. `removals` grows whenever messages are taken out, which leaves
holes in the numbers: what was read before is to be read again."""

memberships = _table(
    "memberships",
    Column("id", Whole, primary_key=True),
    _reference("session_id", "sessions"),
    _reference("peer_id", "peers"),
    Column("observe_me", Boolean),
    Column("observe_others", Boolean),
    Column("joined_seq", Whole, nullable=False),
    Column("left_seq", Whole),
    Column("joined_at", Whole, nullable=False),
    _partial("memberships_active", "session_id", "peer_id", where="left_seq IS NULL", unique=True),
    _partial("memberships_observing", "session_id", where="left_seq IS NULL AND observe_others"),
    Index("memberships_by_session", "session_id", "peer_id"),
    Index("memberships_by_peer", "peer_id", "session_id"),
)
"""One row per stay. A member saw the messages with `joined_seq < seq <= left_seq`, whatever their dates say."""

messages = _table(
    "messages",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    _reference("workspace_id", "workspaces"),
    _reference("session_id", "sessions"),
    _reference("peer_id", "peers"),
    Column("seq", Whole, nullable=False),
    _text("content"),
    _text("metadata", "{}"),
    Column("token_count", Whole, nullable=False),
    Column("created_at", Whole, nullable=False),
    Column("file", Text),
    Index("messages_in_order", "session_id", "seq", unique=True),
    Index("messages_by_peer", "peer_id", "id"),
    Index("messages_by_workspace", "workspace_id", "id"),
    Index("messages_by_session_date", "session_id", "created_at"),
    Index("messages_by_workspace_date", "workspace_id", "created_at"),
    sqlite_autoincrement=True,
)
"""`seq` counts from 1 within the session; what was taken out leaves a hole. `file` holds facts of its upload."""

message_vectors = _table(
    "message_vectors",
    *_key("workspace_id", "message_id", "piece"),
    Column("session_id", Whole, nullable=False),
    Column("peer_id", Whole, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Column("traits", Whole, nullable=False, server_default="0"),
    Column("said_at", Whole, nullable=False, server_default="0"),
    Index("message_vectors_by_session", "session_id"),
    sqlite_with_rowid=False,
)
"""What searches keep in memory of a message. `traits` are those of `hermes.ranking.traits`, `said_at` is its date."""

finer_vectors = _table(
    "finer_vectors",
    *_key("workspace_id", "message_id", "piece"),
    _text("space"),
    Column("vector", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
"""Vectors of a second embedder, made in the background. Only those of one `space` can be compared."""

finer_progress = _table(
    "finer_progress",
    Column("workspace_id", Whole, primary_key=True, autoincrement=False),
    _text("space"),
    Column("upto", Whole, nullable=False),
)
"""Up to which message a workspace has vectors of the second embedder, and of which."""

finer_again = _table(
    "finer_again",
    *_key("workspace_id", "message_id"),
    Column("failures", Whole, nullable=False),
    Index("finer_again_by_failures", "failures"),
    sqlite_with_rowid=False,
)
"""Messages without a vector that `finer_progress` has come past: how often the second embedder refused each."""

departures = _table(
    "departures",
    *_key("workspace_id", "generation", "message_id"),
    sqlite_with_rowid=False,
)
"""Messages that left their workspace, by the generation that shows it (`engine.departures`)."""

message_facts = _table(
    "message_facts",
    *_key("workspace_id", "fact", "message_id"),
    sqlite_with_rowid=False,
)
"""What the metadata of messages says (`facts`): finds those that may hold a pattern."""

collections = _table(
    "collections",
    Column("id", Whole, primary_key=True),
    _reference("workspace_id", "workspaces"),
    _reference("observer_id", "peers"),
    _reference("observed_id", "peers"),
    Column("generation", Whole, nullable=False, server_default="0"),
    UniqueConstraint("observer_id", "observed_id", name="collections_by_pair"),
    Index("collections_by_workspace", "workspace_id"),
    sqlite_autoincrement=True,
)
"""What one peer holds about another. `generation` grows when a conclusion disappears."""

conclusions = _table(
    "conclusions",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    _reference("workspace_id", "workspaces"),
    _reference("collection_id", "collections"),
    _reference("session_id", "sessions", nullable=True),
    _text("level", "explicit"),
    _text("content"),
    _text("digest"),
    Column("source_ids", Text),
    Column("times_derived", Whole, nullable=False, server_default="1"),
    _text("metadata", "{}"),
    Column("created_at", Whole, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Column("deleted_at", Whole),
    Column("standing", Text),
    Column("happened_at", Whole),
    Column("learnt_at", Whole),
    Column("valid_until", Whole),
    Column("superseded_by", Whole),
    Column("retired_at", Whole),
    Column("retired_why", Text),
    _partial("conclusions_live", "collection_id", "id", where="deleted_at IS NULL"),
    _partial("conclusions_frequent", "collection_id", "times_derived", "id", where="deleted_at IS NULL"),
    Index("conclusions_by_digest", "collection_id", "digest"),
    _partial("conclusions_by_workspace", "workspace_id", "id", where="deleted_at IS NULL"),
    Index("conclusions_by_session", "session_id"),
    _partial("conclusions_drawn", "collection_id", where="source_ids IS NOT NULL"),
    _partial("conclusions_standing", "collection_id", "standing", "id", where="standing IS NOT NULL"),
    _partial("conclusions_superseded", "superseded_by", where="superseded_by IS NOT NULL"),
    _partial("conclusions_retired", "workspace_id", "id", where="retired_at IS NOT NULL"),
    sqlite_autoincrement=True,
)
"""`source_ids` are the conclusions it was drawn from. `standing` says what kind of thing it is that always holds
(`engine.standing_kinds`). It was said at `created_at`, is about `happened_at` (NULL: when it was said), and held until
`valid_until`; then `superseded_by` says what holds instead, as `supersessions` has it. One that is retired is shown
nowhere and can be brought back."""

conclusion_messages = _table(
    "conclusion_messages",
    *_key("message_id", "conclusion_id"),
    Index("conclusion_messages_by_conclusion", "conclusion_id"),
    sqlite_with_rowid=False,
)
"""Which conclusions came from which messages."""

claims = _table(
    "claims",
    *_key("collection_id"),
    Column("attribute", Text, primary_key=True),
    *_key("conclusion_id"),
    _text("value"),
    Column("is_denied", Boolean, nullable=False),
    Index("claims_by_conclusion", "conclusion_id"),
    sqlite_with_rowid=False,
)
"""What conclusions claim (`hermes.ranking.claims`): finds those of the same attribute."""

supersessions = _table(
    "supersessions",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    Column("older_id", Whole, nullable=False),
    Column("newer_id", Whole, nullable=False),
    _text("kind"),
    _text("why"),
    Column("created_at", Whole, nullable=False),
    Column("undone_at", Whole),
    UniqueConstraint("older_id", "newer_id", name="supersessions_by_pair"),
    Index("supersessions_by_newer", "newer_id"),
)
"""Pairs of conclusions: the newer one changed what the older one says (`kind` is `change`), or they contradict each
other (`contradiction`) and both hold. One that a person undid is not made again."""

tombstones = _table(
    "tombstones",
    *_key("workspace_id", "observed_id"),
    Column("hash", Text, primary_key=True),
    Column("deleted_at", Whole, nullable=False),
    sqlite_with_rowid=False,
)
"""What was deleted about a peer, as a keyed hash (`engine.tombstones`), so that it does not come back."""

conclusion_versions = _table(
    "conclusion_versions",
    *_key("conclusion_id", "number"),
    _text("content"),
    Column("replaced_at", Whole, nullable=False),
    sqlite_with_rowid=False,
)
"""What a conclusion said before it was edited; the first version is number 1."""

cards = _table(
    "cards",
    Column("collection_id", Whole, ForeignKey("collections.id"), primary_key=True),
    _text("lines"),
    Column("written_by", Text, nullable=False),
    Column("updated_at", Whole, nullable=False),
)
"""`written_by` is `person` or `dream`; a dream does not write over a person's card."""

summaries = _table(
    "summaries",
    Column("session_id", Whole, ForeignKey("sessions.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    _text("content"),
    Column("message_id", Whole, nullable=False),
    Column("seq", Whole, nullable=False),
    Column("token_count", Whole, nullable=False),
    Column("created_at", Whole, nullable=False),
)

scope_sessions = _table(
    "scope_sessions",
    Column("scope_id", Whole, ForeignKey("peers.id"), primary_key=True),
    Column("session_id", Whole, ForeignKey("sessions.id"), primary_key=True),
    _text("state", "pending"),
    Column("copied", Whole),
    Column("updated_at", Whole, nullable=False),
    Index("scope_sessions_by_session", "session_id"),
)

webhooks = _table(
    "webhooks",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    _reference("workspace_id", "workspaces"),
    _text("url"),
    Column("created_at", Whole, nullable=False),
    UniqueConstraint("workspace_id", "url", name="webhooks_by_url"),
)

jobs = _table(
    "jobs",
    Column("id", Whole, primary_key=True),
    _text("kind"),
    _text("unit"),
    Column("workspace_id", Whole, nullable=False),
    Column("session_id", Whole),
    Column("sender_id", Whole),
    _text("payload"),
    _text("state", "pending"),
    Column("attempts", Whole, nullable=False, server_default="0"),
    Column("not_before", Whole, nullable=False, server_default="0"),
    Column("owner", Text),
    Column("lease_until", Whole),
    Column("error", Text),
    Column("created_at", Whole, nullable=False),
    Column("finished_at", Whole),
    _partial("jobs_open_by_kind", "kind", "id", where=OPEN_JOB),
    _partial("jobs_open_by_unit", "unit", "id", where=OPEN_JOB),
    Index("jobs_by_workspace", "workspace_id", "state", "session_id"),
    _partial("jobs_finished", "finished_at", where="finished_at IS NOT NULL"),
    sqlite_autoincrement=True,
)
"""Background work. Jobs of one `unit` run one after another, in order; a lease that ran out can be taken over."""

job_observers = _table(
    "job_observers",
    *_key("job_id", "peer_id"),
    Index("job_observers_by_peer", "peer_id"),
    sqlite_with_rowid=False,
)
"""Whose view a job will change."""

answers = _table(
    "answers",
    *_key("workspace_id", "session_id"),
    Column("route", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    _text("digest"),
    Column("status", Whole, nullable=False),
    _text("answer"),
    Column("kept_at", Whole, nullable=False),
    Index("answers_by_age", "kept_at"),
    _partial("answers_of_clones", "workspace_id", "answer", where="route = 'clone'"),
    sqlite_with_rowid=False,
)
"""First answers to requests that carried a key. `session_id` is 0 where the route is not a session's."""

merges = _table(
    "merges",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    _reference("workspace_id", "workspaces"),
    _reference("from_id", "peers"),
    _reference("into_id", "peers"),
    _text("from_name"),
    _text("into_name"),
    _text("state"),
    Column("created_at", Whole, nullable=False),
    Index("merges_by_name", "workspace_id", "from_name"),
)
"""Peers that became a part of another. While `state` is `done`, the name of one leads to the other."""

merge_rows = _table(
    "merge_rows",
    Column("id", Whole, primary_key=True),
    Column("merge_id", Whole, nullable=False),
    _text("kind"),
    Column("row_id", Whole, nullable=False),
    Column("before", Text),
    Index("merge_rows_by_merge", "merge_id", "kind", "id"),
)
"""What a merge moved, so that it can be moved back."""

model_calls = _table(
    "model_calls",
    Column("id", Whole, primary_key=True),
    Column("workspace_id", Whole, nullable=False),
    Column("day", Whole, nullable=False),
    _text("purpose"),
    _text("model"),
    Column("prompt_tokens", Whole, nullable=False),
    Column("completion_tokens", Whole, nullable=False),
    Column("milliseconds", Whole, nullable=False),
    _text("outcome"),
    Column("created_at", Whole, nullable=False),
    Index("model_calls_by_day", "day"),
    Index("model_calls_by_workspace", "workspace_id", "day"),
)
"""Requests to a model. `workspace_id` is 0 for the self-test; `day` counts from 1970, in UTC."""

dreams = _table(
    "dreams",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    Column("workspace_id", Whole, nullable=False),
    Column("collection_id", Whole, nullable=False),
    _text("report"),
    Column("created_at", Whole, nullable=False),
    Column("undone_at", Whole),
    Index("dreams_by_workspace", "workspace_id", "id"),
)
"""What each dream added and retired, by ids."""

oauth_clients = _table(
    "oauth_clients",
    Column("name", Text, primary_key=True),
    _text("redirects"),
    Column("created_at", Whole, nullable=False),
)
"""Programs that the owner added to those that every server knows; `redirects` is a JSON list of URLs."""

sign_ins = _table(
    "sign_ins",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    _text("client"),
    _text("source"),
    _text("address"),
    _text("redirect_uri"),
    _text("state"),
    _text("challenge"),
    _text("browser"),
    _text("config_path"),
    Column("device_hash", Text, unique=True),
    Column("user_code_hash", Text, unique=True),
    Column("approval_hash", Text),
    _text("decision"),
    Column("grant_id", Whole),
    Column("polled_at", Whole, nullable=False),
    Column("interval_seconds", Whole, nullable=False),
    Column("created_at", Whole, nullable=False),
    Column("expires_at", Whole, nullable=False),
    Index("sign_ins_by_expiry", "expires_at"),
)
"""Requests to sign in, by a browser or a device. `decision` is `open`, `allowed`, `denied`, or `spent` once the tokens
were handed out."""

grants = _table(
    "grants",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    _text("client"),
    _text("source"),
    Column("workspace_id", Whole, nullable=False),
    _text("person"),
    Column("created_at", Whole, nullable=False),
    Column("renewed_at", Whole, nullable=False),
    Index("grants_by_workspace", "workspace_id"),
    sqlite_autoincrement=True,
)
"""What the owner allowed a client: one workspace. `person` is the name given at consent."""

grant_tokens = _table(
    "grant_tokens",
    Column("hash", Text, primary_key=True),
    Column("grant_id", Whole, nullable=False),
    _text("kind"),
    Column("expires_at", Whole, nullable=False),
    Column("spent_at", Whole),
    Index("grant_tokens_by_grant", "grant_id"),
    Index("grant_tokens_by_expiry", "expires_at"),
    sqlite_with_rowid=False,
)
"""Hashes of access and refresh tokens; a refresh token is spent by its first exchange."""

meta = _table("meta", Column("name", Text, primary_key=True), _text("value"))
"""What a folder says of itself; `db.schema` reads it."""
