"""How a file of an earlier version becomes what `tables` describes: a script for each version, in order, and what SQL
cannot fill in. A large file is read part by part while it is served. Only SQLite files are so old."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, text, update

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.matching import facts_of
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import message_vectors, messages, meta
from hermes.memory_server.db.text_index import UNREAD_AFTER, UNREAD_UNTIL
from hermes.ranking.traits import traits_of

FIRST = "0001"
SCRIPTS: Mapping[str, str] = {
    "0002": """
        -- What a folder says of itself, and an index that finds the next job of each kind.
        CREATE TABLE meta (name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (name));
        INSERT INTO meta VALUES ('format', '1'), ('embedder', 'wordllama/l2_supercat_256'), ('dimension', '256');
        DROP INDEX jobs_open;
        CREATE INDEX jobs_open_by_kind ON jobs (kind, id) WHERE state IN ('pending', 'running')
    """,
    "0003": """
        -- Indexes for filters on dates and metadata, and for members that observe. Deleted conclusions leave the file.
        CREATE INDEX messages_by_session_date ON messages (session_id, created_at);
        CREATE INDEX messages_by_workspace_date ON messages (workspace_id, created_at);
        CREATE INDEX memberships_observing ON memberships (session_id) WHERE left_seq IS NULL AND observe_others;
        CREATE TABLE message_facts (
            workspace_id INTEGER NOT NULL, fact INTEGER NOT NULL, message_id INTEGER NOT NULL,
            PRIMARY KEY (workspace_id, fact, message_id)
        ) WITHOUT ROWID;
        DELETE FROM conclusions WHERE deleted_at IS NOT NULL
    """,
    "0004": """
        -- First answers to requests that carry a key. Where conclusions came from, and what they said before.
        CREATE TABLE answers (
            workspace_id INTEGER NOT NULL, session_id INTEGER NOT NULL, route TEXT NOT NULL, "key" TEXT NOT NULL,
            digest TEXT NOT NULL, status INTEGER NOT NULL, answer TEXT NOT NULL, kept_at INTEGER NOT NULL,
            PRIMARY KEY (workspace_id, session_id, route, "key")
        ) WITHOUT ROWID;
        CREATE INDEX answers_by_age ON answers (kept_at);
        ALTER TABLE sessions ADD COLUMN removals INTEGER DEFAULT '0' NOT NULL;
        CREATE TABLE conclusion_messages (
            message_id INTEGER NOT NULL, conclusion_id INTEGER NOT NULL, PRIMARY KEY (message_id, conclusion_id)
        ) WITHOUT ROWID;
        CREATE INDEX conclusion_messages_by_conclusion ON conclusion_messages (conclusion_id);
        CREATE TABLE conclusion_versions (
            conclusion_id INTEGER NOT NULL, number INTEGER NOT NULL, content TEXT NOT NULL,
            replaced_at INTEGER NOT NULL, PRIMARY KEY (conclusion_id, number)
        ) WITHOUT ROWID
    """,
    "0005": """
        -- Merges of peers, and what they moved. Conclusions that were drawn from others are found fast.
        CREATE INDEX conclusions_drawn ON conclusions (collection_id) WHERE source_ids IS NOT NULL;
        CREATE TABLE merges (
            id INTEGER NOT NULL, public_id TEXT NOT NULL, workspace_id INTEGER NOT NULL, from_id INTEGER NOT NULL,
            into_id INTEGER NOT NULL, from_name TEXT NOT NULL, into_name TEXT NOT NULL, state TEXT NOT NULL,
            created_at INTEGER NOT NULL, PRIMARY KEY (id), UNIQUE (public_id),
            FOREIGN KEY(workspace_id) REFERENCES workspaces (id), FOREIGN KEY(from_id) REFERENCES peers (id),
            FOREIGN KEY(into_id) REFERENCES peers (id)
        );
        CREATE INDEX merges_by_name ON merges (workspace_id, from_name);
        CREATE TABLE merge_rows (
            id INTEGER NOT NULL, merge_id INTEGER NOT NULL, kind TEXT NOT NULL, row_id INTEGER NOT NULL, "before" TEXT,
            PRIMARY KEY (id)
        );
        CREATE INDEX merge_rows_by_merge ON merge_rows (merge_id, kind, id)
    """,
    "0006": """
        -- What a search knows of a message beside its vector. Words of scripts without spaces are found.
        ALTER TABLE message_vectors ADD COLUMN traits INTEGER DEFAULT '0' NOT NULL;
        ALTER TABLE message_vectors ADD COLUMN said_at INTEGER DEFAULT '0' NOT NULL
    """,
    "0007": """
        -- The answers that show a copy of a session are found by its name. What was promised and given up waits again.
        CREATE INDEX answers_of_clones ON answers (workspace_id, answer) WHERE route = 'clone';
        UPDATE jobs SET state = 'pending', attempts = 0, finished_at = NULL WHERE state = 'failed' AND kind IN
            ('delete_session', 'delete_workspace', 'delete_peer', 'delete_messages', 'merge_peers', 'tidy')
    """,
    "0008": """
        -- Vectors of a second embedder, which are made in the background.
        CREATE TABLE finer_vectors (
            workspace_id INTEGER NOT NULL, message_id INTEGER NOT NULL, piece INTEGER NOT NULL, space TEXT NOT NULL,
            vector BLOB NOT NULL, PRIMARY KEY (workspace_id, message_id, piece)
        ) WITHOUT ROWID;
        CREATE TABLE finer_progress (
            workspace_id INTEGER NOT NULL, space TEXT NOT NULL, upto INTEGER NOT NULL, PRIMARY KEY (workspace_id)
        )
    """,
    "0009": """
        -- Which messages left a workspace. Of what left before, nobody knows: who was behind then reads everything.
        CREATE TABLE departures (
            workspace_id INTEGER NOT NULL, generation INTEGER NOT NULL, message_id INTEGER NOT NULL,
            PRIMARY KEY (workspace_id, generation, message_id)
        ) WITHOUT ROWID
    """,
    "0010": """
        -- Which messages are embedded again: so far those that lost their vector because one before them was deleted.
        CREATE TABLE finer_again (
            workspace_id INTEGER NOT NULL, message_id INTEGER NOT NULL, failures INTEGER NOT NULL,
            PRIMARY KEY (workspace_id, message_id)
        ) WITHOUT ROWID;
        CREATE INDEX finer_again_by_failures ON finer_again (failures);
        INSERT INTO finer_again (workspace_id, message_id, failures)
        SELECT m.workspace_id, m.id, 0 FROM finer_progress AS p
        JOIN messages AS m ON m.workspace_id = p.workspace_id AND m.id <= p.upto
        WHERE NOT EXISTS
            (SELECT 1 FROM finer_vectors AS v WHERE v.workspace_id = m.workspace_id AND v.message_id = m.id)
    """,
}
AT_ONCE = 5000
"""How many messages are read before the folder is served; a larger one is read while it is."""
MARKS = meta.c.name.in_((UNREAD_AFTER, UNREAD_UNTIL))
UNREAD = PreparedStatement(select(meta.c.value).where(meta.c.name == UNREAD_UNTIL))
KNOW = PreparedStatement(
    update(message_vectors)
    .where(message_vectors.c.workspace_id == bindparam("of"), message_vectors.c.message_id == bindparam("id"))
    .values(traits=bindparam("found"), said_at=bindparam("at"))
)


def migrate(tx: Tx, version: str) -> None:
    """Bring a file of this version, which is one of ours, to the newest."""
    for number, script in SCRIPTS.items():
        if number > version:
            for statement in script.split(";"):
                tx.exec_driver_sql(statement)
            if number in FILL:
                FILL[number](tx)


def _keep_facts(tx: Tx) -> None:
    query = "SELECT id, workspace_id, metadata FROM messages WHERE id > :last AND metadata <> '{}'"
    for message_id, workspace_id, metadata in _rows(tx, query):
        for fact in facts_of(metadata):
            tx.exec_driver_sql("INSERT INTO message_facts VALUES (?, ?, ?)", (workspace_id, fact, message_id))


def _link_messages(tx: Tx) -> None:
    query = "SELECT id, message_ids FROM conclusions WHERE id > :last AND message_ids IS NOT NULL"
    for conclusion_id, message_ids in _rows(tx, query):
        for message_id in {*json.loads(message_ids)}:
            tx.exec_driver_sql("INSERT INTO conclusion_messages VALUES (?, ?)", (message_id, conclusion_id))


def _rows(tx: Tx, query: str) -> Iterator[Any]:
    """All rows of a query for those after the id `last`, which is their first column, read part by part."""
    last = 0
    while rows := tx.execute(text(f"{query} ORDER BY id LIMIT 1000"), {"last": last}).all():
        yield from rows
        last = rows[-1][0]


def _read_messages(tx: Tx) -> None:
    if begin_catching_up(tx) and catch_up(tx, AT_ONCE):
        columns = "kind, unit, workspace_id, payload, created_at"
        job = ("catch_up", "catch_up", 0, "{}", time.time_ns() // 1000)
        tx.exec_driver_sql(f"INSERT INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?)", job)


FILL: Mapping[str, Callable[[Tx], None]] = {
    "0003": _keep_facts,
    "0004": _link_messages,
    "0006": _read_messages,
}
"""What follows the script of a version."""


def begin_catching_up(tx: Tx) -> bool:
    """Mark all messages as not read. Until they are, their words are indexed in the earlier way, and what searches keep
    beside their vectors (traits and date) is missing. Are there any?"""
    newest = tx.execute(select(func.max(messages.c.id))).scalar_one_or_none()
    if newest is None:
        return False
    marks: list[dict[str, Any]] = [{"name": UNREAD_AFTER, "value": "0"}, {"name": UNREAD_UNTIL, "value": str(newest)}]
    tx.execute(insert(meta), marks)
    return True


def has_caught_up(tx: Tx) -> bool:
    """Is every message read?"""
    return UNREAD.first(tx) is None


def catch_up(tx: Tx, most: int) -> bool:
    """Read so many messages. Is there more?"""
    marks = {row.name: int(row.value) for row in tx.execute(select(meta).where(MARKS))}
    if not marks:
        return False
    after, until = marks[UNREAD_AFTER], marks[UNREAD_UNTIL]
    query = select(messages.c.id, messages.c.workspace_id, messages.c.created_at, messages.c.content)
    unread = query.where(messages.c.id > after, messages.c.id <= until).order_by(messages.c.id).limit(most)
    rows = tx.execute(unread).all()
    if rows:
        known = [{"of": r.workspace_id, "id": r.id, "found": traits_of(r.content), "at": r.created_at} for r in rows]
        KNOW.run_many(tx, known)
        text_index(tx).respell(tx, after, rows[-1].id)
        tx.execute(update(meta).where(meta.c.name == UNREAD_AFTER).values(value=str(rows[-1].id)))
    if len(rows) < most:
        tx.execute(delete(meta).where(MARKS))
    return len(rows) == most
