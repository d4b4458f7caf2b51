"""All tables; those of signing in are in `sign_in_tables`. Times are microseconds (`times`), JSON is text, vectors are
half floats.

Ids are integers that are never reused. Ids of messages in a workspace, and of conclusions in a collection, grow in
commit order, since inserting them requires the lock of the workspace or collection: "newer than N" is a safe way to
follow them.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    Text,
    UniqueConstraint,
)

from hermes.memory_server.db import sign_in_tables  # noqa: F401 - they are part of `metadata`
from hermes.memory_server.db.columns import Whole, key_columns, new_table, partial_index, reference, text_column
from hermes.memory_server.db.columns import metadata as metadata

OPEN_JOB = "state IN ('pending', 'running')"
"""The condition of the partial index of open jobs. A query must repeat it literally, or SQLite does not use the
index."""

OBSERVING = "memberships.left_seq IS NULL AND memberships.observe_others"
"""The condition of the partial index of members that observe others, also repeated literally."""

workspaces = new_table(
    "workspaces",
    Column("id", Whole, primary_key=True),
    text_column("uid"),
    Column("name", Text, nullable=False, unique=True),
    text_column("metadata", "{}"),
    text_column("configuration", "{}"),
    Column("created_at", Whole, nullable=False),
    Column("generation", Whole, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)
"""`generation` grows when messages disappear or change their author. Caches of messages compare it."""

peers = new_table(
    "peers",
    Column("id", Whole, primary_key=True),
    text_column("uid"),
    reference("workspace_id", "workspaces"),
    text_column("name"),
    text_column("kind", "peer"),
    text_column("metadata", "{}"),
    text_column("configuration", "{}"),
    Column("created_at", Whole, nullable=False),
    UniqueConstraint("workspace_id", "name", name="peers_by_name"),
    Index("peers_in_order", "workspace_id", "kind", "created_at", "id"),
    sqlite_autoincrement=True,
)
"""`kind` is `peer`, `scope` (a silent observer) or `deleted`, which is hidden and awaits its removal."""

sessions = new_table(
    "sessions",
    Column("id", Whole, primary_key=True),
    text_column("uid"),
    reference("workspace_id", "workspaces"),
    text_column("name"),
    Column("is_active", Boolean, nullable=False, server_default="1"),
    text_column("metadata", "{}"),
    text_column("configuration", "{}"),
    Column("message_count", Whole, nullable=False, server_default="0"),
    Column("created_at", Whole, nullable=False),
    Column("removals", Whole, nullable=False, server_default="0"),
    UniqueConstraint("workspace_id", "name", name="sessions_by_name"),
    Index("sessions_in_order", "workspace_id", "is_active", "created_at", "id"),
    sqlite_autoincrement=True,
)
"""`message_count` is the number of the last message. `removals` grows whenever messages are removed, which leaves gaps
in the numbers; readers of earlier messages must read them again."""

memberships = new_table(
    "memberships",
    Column("id", Whole, primary_key=True),
    reference("session_id", "sessions"),
    reference("peer_id", "peers"),
    Column("observe_me", Boolean),
    Column("observe_others", Boolean),
    Column("joined_seq", Whole, nullable=False),
    Column("left_seq", Whole),
    Column("joined_at", Whole, nullable=False),
    partial_index("memberships_active", "session_id", "peer_id", where="left_seq IS NULL", unique=True),
    partial_index("memberships_observing", "session_id", where="left_seq IS NULL AND observe_others"),
    Index("memberships_by_session", "session_id", "peer_id"),
    Index("memberships_by_peer", "peer_id", "session_id"),
)
"""One row per stay of a member, who saw the messages with `joined_seq < seq <= left_seq`, whatever their dates."""

messages = new_table(
    "messages",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    reference("workspace_id", "workspaces"),
    reference("session_id", "sessions"),
    reference("peer_id", "peers"),
    Column("seq", Whole, nullable=False),
    text_column("content"),
    text_column("metadata", "{}"),
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

message_vectors = new_table(
    "message_vectors",
    *key_columns("workspace_id", "message_id", "piece"),
    Column("session_id", Whole, nullable=False),
    Column("peer_id", Whole, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Column("traits", Whole, nullable=False, server_default="0"),
    Column("said_at", Whole, nullable=False, server_default="0"),
    Index("message_vectors_by_session", "session_id"),
    sqlite_with_rowid=False,
)
"""Data of a message that searches cache. `traits` are those of `hermes.ranking.traits`, `said_at` is its date."""

finer_vectors = new_table(
    "finer_vectors",
    *key_columns("workspace_id", "message_id", "piece"),
    text_column("space"),
    Column("vector", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
"""Vectors of a second embedder, computed in the background. Only vectors of one `space` can be compared."""

finer_progress = new_table(
    "finer_progress",
    Column("workspace_id", Whole, primary_key=True, autoincrement=False),
    text_column("space"),
    Column("upto", Whole, nullable=False),
)
"""The last message of a workspace that has a vector of the second embedder, and the embedder's space."""

finer_again = new_table(
    "finer_again",
    *key_columns("workspace_id", "message_id"),
    Column("failures", Whole, nullable=False),
    Index("finer_again_by_failures", "failures"),
    sqlite_with_rowid=False,
)
"""Messages before `finer_progress` that have no vector, and how often the second embedder refused each."""

departures = new_table(
    "departures",
    *key_columns("workspace_id", "generation", "message_id"),
    sqlite_with_rowid=False,
)
"""Messages removed from their workspace, by the generation in which they disappeared (`engine.departures`)."""

message_facts = new_table(
    "message_facts",
    *key_columns("workspace_id", "fact", "message_id"),
    sqlite_with_rowid=False,
)
"""Hashes of message metadata (`matching`), which find the messages that may contain a pattern."""

collections = new_table(
    "collections",
    Column("id", Whole, primary_key=True),
    reference("workspace_id", "workspaces"),
    reference("observer_id", "peers"),
    reference("observed_id", "peers"),
    Column("generation", Whole, nullable=False, server_default="0"),
    UniqueConstraint("observer_id", "observed_id", name="collections_by_pair"),
    Index("collections_by_workspace", "workspace_id"),
    sqlite_autoincrement=True,
)
"""The conclusions of one peer about another. `generation` grows when a conclusion disappears."""

conclusions = new_table(
    "conclusions",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    reference("workspace_id", "workspaces"),
    reference("collection_id", "collections"),
    reference("session_id", "sessions", nullable=True),
    text_column("level", "explicit"),
    text_column("content"),
    text_column("digest"),
    Column("source_ids", Text),
    Column("times_derived", Whole, nullable=False, server_default="1"),
    text_column("metadata", "{}"),
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
    partial_index("conclusions_live", "collection_id", "id", where="deleted_at IS NULL"),
    partial_index("conclusions_frequent", "collection_id", "times_derived", "id", where="deleted_at IS NULL"),
    Index("conclusions_by_digest", "collection_id", "digest"),
    partial_index("conclusions_by_workspace", "workspace_id", "id", where="deleted_at IS NULL"),
    Index("conclusions_by_session", "session_id"),
    partial_index("conclusions_drawn", "collection_id", where="source_ids IS NOT NULL"),
    partial_index("conclusions_standing", "collection_id", "standing", "id", where="standing IS NOT NULL"),
    partial_index("conclusions_superseded", "superseded_by", where="superseded_by IS NOT NULL"),
    partial_index("conclusions_retired", "workspace_id", "id", where="retired_at IS NOT NULL"),
    sqlite_autoincrement=True,
)
"""`source_ids` are the conclusions from which it was derived. `standing` is its kind if it always holds
(`engine.standing_kinds`). It was stated at `created_at`, is about `happened_at` (NULL: when it was stated), and held
until `valid_until`; then `superseded_by` holds instead, as recorded in `supersessions`. A retired conclusion is hidden
and can be restored."""

conclusion_messages = new_table(
    "conclusion_messages",
    *key_columns("message_id", "conclusion_id"),
    Index("conclusion_messages_by_conclusion", "conclusion_id"),
    sqlite_with_rowid=False,
)
"""The messages from which conclusions were read."""

claims = new_table(
    "claims",
    *key_columns("collection_id"),
    Column("attribute", Text, primary_key=True),
    *key_columns("conclusion_id"),
    text_column("value"),
    Column("is_denied", Boolean, nullable=False),
    Index("claims_by_conclusion", "conclusion_id"),
    sqlite_with_rowid=False,
)
"""Claims of conclusions (`hermes.ranking.claims`), which find the conclusions about one attribute."""

supersessions = new_table(
    "supersessions",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    Column("older_id", Whole, nullable=False),
    Column("newer_id", Whole, nullable=False),
    text_column("kind"),
    text_column("why"),
    Column("created_at", Whole, nullable=False),
    Column("undone_at", Whole),
    UniqueConstraint("older_id", "newer_id", name="supersessions_by_pair"),
    Index("supersessions_by_newer", "newer_id"),
)
"""Pairs of conclusions. `kind` is `change` if the newer one changed the older one, or `contradiction` if they
contradict each other and both hold. A pair that a person undid is not created again."""

tombstones = new_table(
    "tombstones",
    *key_columns("workspace_id", "observed_id"),
    Column("hash", Text, primary_key=True),
    Column("deleted_at", Whole, nullable=False),
    sqlite_with_rowid=False,
)
"""Keyed hashes of what was deleted about a peer (`engine.tombstones`), so that it is not derived again."""

conclusion_versions = new_table(
    "conclusion_versions",
    *key_columns("conclusion_id", "number"),
    text_column("content"),
    Column("replaced_at", Whole, nullable=False),
    sqlite_with_rowid=False,
)
"""Earlier texts of an edited conclusion; the first version is number 1."""

cards = new_table(
    "cards",
    Column("collection_id", Whole, ForeignKey("collections.id"), primary_key=True),
    text_column("lines"),
    Column("written_by", Text, nullable=False),
    Column("updated_at", Whole, nullable=False),
)
"""`written_by` is `person` or `dream`; a dream does not overwrite a person's card."""

summaries = new_table(
    "summaries",
    Column("session_id", Whole, ForeignKey("sessions.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    text_column("content"),
    Column("message_id", Whole, nullable=False),
    Column("seq", Whole, nullable=False),
    Column("token_count", Whole, nullable=False),
    Column("created_at", Whole, nullable=False),
)

scope_sessions = new_table(
    "scope_sessions",
    Column("scope_id", Whole, ForeignKey("peers.id"), primary_key=True),
    Column("session_id", Whole, ForeignKey("sessions.id"), primary_key=True),
    text_column("state", "pending"),
    Column("copied", Whole),
    Column("updated_at", Whole, nullable=False),
    Index("scope_sessions_by_session", "session_id"),
)

webhooks = new_table(
    "webhooks",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    reference("workspace_id", "workspaces"),
    text_column("url"),
    Column("created_at", Whole, nullable=False),
    UniqueConstraint("workspace_id", "url", name="webhooks_by_url"),
)

jobs = new_table(
    "jobs",
    Column("id", Whole, primary_key=True),
    text_column("kind"),
    text_column("unit"),
    Column("workspace_id", Whole, nullable=False),
    Column("session_id", Whole),
    Column("sender_id", Whole),
    text_column("payload"),
    text_column("state", "pending"),
    Column("attempts", Whole, nullable=False, server_default="0"),
    Column("not_before", Whole, nullable=False, server_default="0"),
    Column("owner", Text),
    Column("lease_until", Whole),
    Column("error", Text),
    Column("created_at", Whole, nullable=False),
    Column("finished_at", Whole),
    partial_index("jobs_open_by_kind", "kind", "id", where=OPEN_JOB),
    partial_index("jobs_open_by_unit", "unit", "id", where=OPEN_JOB),
    Index("jobs_by_workspace", "workspace_id", "state", "session_id"),
    partial_index("jobs_finished", "finished_at", where="finished_at IS NOT NULL"),
    sqlite_autoincrement=True,
)
"""Background jobs. Jobs of one `unit` run one after another, in order; an expired lease can be taken over."""

job_observers = new_table(
    "job_observers",
    *key_columns("job_id", "peer_id"),
    Index("job_observers_by_peer", "peer_id"),
    sqlite_with_rowid=False,
)
"""The observers whose view a job changes."""

answers = new_table(
    "answers",
    *key_columns("workspace_id", "session_id"),
    Column("route", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    text_column("digest"),
    Column("status", Whole, nullable=False),
    text_column("answer"),
    Column("kept_at", Whole, nullable=False),
    Index("answers_by_age", "kept_at"),
    partial_index("answers_of_clones", "workspace_id", "answer", where="route = 'clone'"),
    sqlite_with_rowid=False,
)
"""First responses to requests with an idempotency key. `session_id` is 0 for routes outside sessions."""

merges = new_table(
    "merges",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    reference("workspace_id", "workspaces"),
    reference("from_id", "peers"),
    reference("into_id", "peers"),
    text_column("from_name"),
    text_column("into_name"),
    text_column("state"),
    Column("created_at", Whole, nullable=False),
    Index("merges_by_name", "workspace_id", "from_name"),
)
"""Merges of one peer into another. While `state` is `done`, the name of the merged peer refers to the other."""

merge_rows = new_table(
    "merge_rows",
    Column("id", Whole, primary_key=True),
    Column("merge_id", Whole, nullable=False),
    text_column("kind"),
    Column("row_id", Whole, nullable=False),
    Column("before", Text),
    Index("merge_rows_by_merge", "merge_id", "kind", "id"),
)
"""Rows that a merge moved, so that it can be undone."""

model_calls = new_table(
    "model_calls",
    Column("id", Whole, primary_key=True),
    Column("workspace_id", Whole, nullable=False),
    Column("day", Whole, nullable=False),
    text_column("purpose"),
    text_column("model"),
    Column("prompt_tokens", Whole, nullable=False),
    Column("completion_tokens", Whole, nullable=False),
    Column("milliseconds", Whole, nullable=False),
    text_column("outcome"),
    Column("created_at", Whole, nullable=False),
    Index("model_calls_by_day", "day"),
    Index("model_calls_by_workspace", "workspace_id", "day"),
)
"""Requests to a model. `workspace_id` is 0 for the self-test; `day` counts from 1970, in UTC."""

dreams = new_table(
    "dreams",
    Column("id", Whole, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    Column("workspace_id", Whole, nullable=False),
    Column("collection_id", Whole, nullable=False),
    text_column("report"),
    Column("created_at", Whole, nullable=False),
    Column("undone_at", Whole),
    Index("dreams_by_workspace", "workspace_id", "id"),
)
"""Reports of dreams: ids of conclusions that each added and retired."""

meta = new_table("meta", Column("name", Text, primary_key=True), text_column("value"))
"""Properties of the memory, such as its format and embedder (see `db.schema`)."""
