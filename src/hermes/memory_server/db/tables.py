"""All tables. Times are microseconds (`times`), JSON is text, vectors are half floats.

Ids are integers that are never reused. Ids of messages in a workspace, and of conclusions in a collection, grow in
commit order, since inserting them requires the lock of the workspace or collection: "newer than N" is a safe way to
follow them."""

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
"""64-bit integers, since times are microseconds. In SQLite every INTEGER has 64 bits."""
OPEN_JOB = "state IN ('pending', 'running')"
"""The condition of the partial index of open jobs. A query must repeat it literally, or SQLite does not use the
index."""

OBSERVING = "memberships.left_seq IS NULL AND memberships.observe_others"
"""The condition of the partial index of members that observe others, also repeated literally."""


def _table(name: str, *parts: SchemaItem, **options: Any) -> Table:
    return Table(name, metadata, *parts, **options)


def _key(*names: str) -> list[Column[int]]:
    return [Column(name, Whole, primary_key=True) for name in names]


def _reference(name: str, target: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, Whole, ForeignKey(f"{target}.id"), nullable=nullable)


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Return an index of the rows that meet a condition."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where), info={"where": where})


@compiles(CreateIndex, "postgresql")
def _create_on_postgresql(creating: CreateIndex, compiler: DDLCompiler, **options: Any) -> str:
    """Add the condition of a partial index. Naming PostgreSQL's option above would import its dialect at every
    start."""
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
"""`generation` grows when messages disappear or change their author. Caches of messages compare it."""

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
"""`kind` is `peer`, `scope` (a silent observer) or `deleted`, which is hidden and awaits its removal."""

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
"""`message_count` is the number of the last message. `removals` grows whenever messages are removed, which leaves gaps
in the numbers; readers of earlier messages must read them again."""

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
"""One row per stay of a member, who saw the messages with `joined_seq < seq <= left_seq`, whatever their dates."""

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
"""`seq` counts from 1 within the session; removed messages leave gaps. `file` describes the upload."""

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
"""Data of a message that searches cache. `traits` are those of `hermes.ranking.traits`, `said_at` is its date."""

finer_vectors = _table(
    "finer_vectors",
    *_key("workspace_id", "message_id", "piece"),
    _text("space"),
    Column("vector", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
"""Vectors of a second embedder, computed in the background. Only vectors of one `space` can be compared."""

finer_progress = _table(
    "finer_progress",
    Column("workspace_id", Whole, primary_key=True, autoincrement=False),
    _text("space"),
    Column("upto", Whole, nullable=False),
)
"""The last message of a workspace that has a vector of the second embedder, and the embedder's space."""

finer_again = _table(
    "finer_again",
    *_key("workspace_id", "message_id"),
    Column("failures", Whole, nullable=False),
    Index("finer_again_by_failures", "failures"),
    sqlite_with_rowid=False,
)
"""Messages before `finer_progress` that have no vector, and how often the second embedder refused each."""

departures = _table(
    "departures",
    *_key("workspace_id", "generation", "message_id"),
    sqlite_with_rowid=False,
)
"""Messages removed from their workspace, by the generation in which they disappeared (`engine.departures`)."""

message_facts = _table(
    "message_facts",
    *_key("workspace_id", "fact", "message_id"),
    sqlite_with_rowid=False,
)
"""Hashes of message metadata (`matching`), which find the messages that may contain a pattern."""

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
"""The conclusions of one peer about another. `generation` grows when a conclusion disappears."""

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
"""`source_ids` are the conclusions from which it was derived. `standing` is its kind if it always holds
(`engine.standing_kinds`). It was stated at `created_at`, is about `happened_at` (NULL: when it was stated), and held
until `valid_until`; then `superseded_by` holds instead, as recorded in `supersessions`. A retired conclusion is hidden
and can be restored."""

conclusion_messages = _table(
    "conclusion_messages",
    *_key("message_id", "conclusion_id"),
    Index("conclusion_messages_by_conclusion", "conclusion_id"),
    sqlite_with_rowid=False,
)
"""The messages from which conclusions were read."""

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
"""Claims of conclusions (`hermes.ranking.claims`), which find the conclusions about one attribute."""

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
"""Pairs of conclusions. `kind` is `change` if the newer one changed the older one, or `contradiction` if they
contradict each other and both hold. A pair that a person undid is not created again."""

tombstones = _table(
    "tombstones",
    *_key("workspace_id", "observed_id"),
    Column("hash", Text, primary_key=True),
    Column("deleted_at", Whole, nullable=False),
    sqlite_with_rowid=False,
)
"""Keyed hashes of what was deleted about a peer (`engine.tombstones`), so that it is not derived again."""

conclusion_versions = _table(
    "conclusion_versions",
    *_key("conclusion_id", "number"),
    _text("content"),
    Column("replaced_at", Whole, nullable=False),
    sqlite_with_rowid=False,
)
"""Earlier texts of an edited conclusion; the first version is number 1."""

cards = _table(
    "cards",
    Column("collection_id", Whole, ForeignKey("collections.id"), primary_key=True),
    _text("lines"),
    Column("written_by", Text, nullable=False),
    Column("updated_at", Whole, nullable=False),
)
"""`written_by` is `person` or `dream`; a dream does not overwrite a person's card."""

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
"""Background jobs. Jobs of one `unit` run one after another, in order; an expired lease can be taken over."""

job_observers = _table(
    "job_observers",
    *_key("job_id", "peer_id"),
    Index("job_observers_by_peer", "peer_id"),
    sqlite_with_rowid=False,
)
"""The observers whose view a job changes."""

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
"""First responses to requests with an idempotency key. `session_id` is 0 for routes outside sessions."""

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
"""Merges of one peer into another. While `state` is `done`, the name of the merged peer refers to the other."""

merge_rows = _table(
    "merge_rows",
    Column("id", Whole, primary_key=True),
    Column("merge_id", Whole, nullable=False),
    _text("kind"),
    Column("row_id", Whole, nullable=False),
    Column("before", Text),
    Index("merge_rows_by_merge", "merge_id", "kind", "id"),
)
"""Rows that a merge moved, so that it can be undone."""

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
"""Reports of dreams: ids of conclusions that each added and retired."""

oauth_clients = _table(
    "oauth_clients",
    Column("name", Text, primary_key=True),
    _text("redirects"),
    Column("created_at", Whole, nullable=False),
)
"""Programs that the owner added to the built-in clients; `redirects` is a JSON list of URLs."""

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
"""Requests to sign in, from a browser or a device. `decision` is `open`, `allowed`, `denied`, or `spent` after the
tokens were issued."""

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
"""Access that the owner granted to a client: one workspace. `person` is the name given at consent."""

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
"""Properties of the memory, such as its format and embedder (see `db.schema`)."""
