"""Implementations for each kind of database, selected by the dialect of the transaction.

The words of messages in SQLite's full-text index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from sqlalchemy import Select, bindparam, column, func, select, table, text

from hermes.errors import StoreError
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.neighbours import NeighbourIndex
from hermes.memory_server.db.sqlite import driver
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import messages
from hermes.memory_server.db.text_index import UNREAD_AFTER, UNREAD_UNTIL, Match, MessageIds, SearchArea, TextIndex
from hermes.ranking.words import segment

TEXTS = """
CREATE VIEW message_texts AS
SELECT id, 'w' || workspace_id || ' s' || session_id || ' p' || peer_id AS scope, content FROM messages
"""
INDEX = """
CREATE VIRTUAL TABLE message_index USING fts5(
    scope, content, content = 'message_texts', content_rowid = 'id', tokenize = 'porter unicode61 remove_diacritics 2'
)
"""
"""`scope` is searched together with the words, so that the cost of a search depends on the size of its scope. Text
without spaces is indexed in pairs of characters (`segment`); since SQLite does not know them, its own `rebuild` must
not be used."""
MERGE_PAGES_PER_STEP = 16
"""Pages of the index that one step merges while it holds the write lock."""
PART = (
    "FROM message_texts WHERE id IN "
    "(SELECT id FROM messages WHERE session_id = :session_id AND seq >= :first AND seq <= :last)"
)
INDEXED_TEXT = (
    f"CASE WHEN id > (SELECT CAST(value AS INTEGER) FROM meta WHERE name = '{UNREAD_AFTER}') "
    f"AND id <= (SELECT CAST(value AS INTEGER) FROM meta WHERE name = '{UNREAD_UNTIL}') "
    "THEN content ELSE segmented(content) END"
)
"""The text of a message as it was indexed: to remove words, SQLite needs exactly the text that was added."""
RESPELLED = "FROM message_texts WHERE id > :after AND id <= :last AND segmented(content) <> content"
ADD = PreparedStatement(text("INSERT INTO message_index (rowid, scope, content) VALUES (:id, :scope, :content)"))
ADD_PART = text(f"INSERT INTO message_index (rowid, scope, content) SELECT id, scope, {INDEXED_TEXT} {PART}")
REMOVE_PART = text(
    "INSERT INTO message_index (message_index, rowid, scope, content) "
    f"SELECT 'delete', id, scope, {INDEXED_TEXT} {PART}"
)
FORGET_RESPELLED = text(
    f"INSERT INTO message_index (message_index, rowid, scope, content) SELECT 'delete', id, scope, content {RESPELLED}"
)
ADD_RESPELLED = text(
    f"INSERT INTO message_index (rowid, scope, content) SELECT id, scope, segmented(content) {RESPELLED}"
)
ADD_ALL = (
    f"INSERT INTO message_index (rowid, scope, content) SELECT id, scope, {INDEXED_TEXT} FROM message_texts ORDER BY id"
)
NEWEST_WORDS, NEWEST_MESSAGE = "SELECT max(id) FROM message_index_docsize", "SELECT max(id) FROM messages"
PROBES = """
SELECT id, scope, content, id IN (SELECT id FROM message_index_docsize) FROM message_texts WHERE id IN (
    SELECT min(id) FROM messages UNION SELECT max(id) FROM messages UNION
    SELECT min(id) FROM messages WHERE id >= (SELECT (min(id) + max(id)) / 2 FROM messages)
)
"""
COMMON_WORD = re.compile(r"(?<![^\W_])[A-Za-z0-9]{3,40}(?![^\W_])")
FOUND = "SELECT rowid FROM message_index WHERE message_index MATCH ? AND rowid = ?"
MERGE = text("INSERT INTO message_index (message_index, rank) VALUES ('merge', :pages)")
message_index = table("message_index", column("rowid"))
HOLDING = (
    select(message_index.c.rowid)
    .where(text("message_index MATCH :match"))
    .order_by(message_index.c.rowid.desc())
    .limit(bindparam("most"))
)
NO_LIMIT = -1
"""As a LIMIT in SQLite: all rows."""


def _in_one_row(query: Select[Any]) -> PreparedStatement:
    """Return all ids in one row, as text: rows are fetched one by one, and each fetch waits for the interpreter
    lock."""
    return PreparedStatement(select(func.group_concat(query.subquery().c.rowid).label("ids")))


NEWEST = _in_one_row(HOLDING)
BETWEEN = _in_one_row(
    HOLDING.where(message_index.c.rowid >= bindparam("first"), message_index.c.rowid <= bindparam("last"))
)
EDGES = PreparedStatement(
    select(
        select(func.min(messages.c.workspace_id)).scalar_subquery().label("first"),
        select(func.max(messages.c.workspace_id)).scalar_subquery().label("last"),
    )
)
"""Lowest and highest id of the workspaces with messages: two lookups in an index."""


class SqliteTextIndex:
    """An FTS5 index over a view of the messages: the index stores the words, the table the texts."""

    def create(self, tx: Tx) -> None:
        tx.exec_driver_sql(TEXTS)
        tx.exec_driver_sql(INDEX)

    def add(self, tx: Tx, workspace_id: int, session_id: int, given: Iterable[tuple[int, int, str]]) -> None:
        scope = f"w{workspace_id} s{session_id} p"
        rows = [{"id": row_id, "scope": f"{scope}{peer}", "content": segment(text)} for row_id, peer, text in given]
        ADD.run_many(tx, rows)

    def add_part(self, tx: Tx, session_id: int, first: int, last: int) -> None:
        tx.execute(ADD_PART, {"session_id": session_id, "first": first, "last": last})

    def remove_part(self, tx: Tx, session_id: int, first: int, last: int) -> None:
        tx.execute(REMOVE_PART, {"session_id": session_id, "first": first, "last": last})

    def mend(self, tx: Tx) -> bool:
        if _is_whole(tx):
            return False
        # A virtual table with missing shadow tables cannot be dropped, so its schema row is deleted.
        tx.exec_driver_sql("PRAGMA writable_schema = ON")
        tx.exec_driver_sql("DELETE FROM sqlite_master WHERE name = 'message_index' AND type = 'table'")
        tx.exec_driver_sql("PRAGMA writable_schema = RESET")
        for part in ("data", "idx", "docsize", "config"):
            tx.exec_driver_sql(f"DROP TABLE IF EXISTS message_index_{part}")
        tx.exec_driver_sql(INDEX)
        tx.exec_driver_sql(ADD_ALL)
        return True

    def respell(self, tx: Tx, after: int, last: int) -> None:
        for statement in (FORGET_RESPELLED, ADD_RESPELLED):
            tx.execute(statement, {"after": after, "last": last})

    def within(self, tx: Tx, place: SearchArea) -> Match:
        return partial(_match, tx, place)

    def tidy(self, tx: Tx, *, begin: bool) -> bool:
        before = driver(tx).total_changes
        pages = -MERGE_PAGES_PER_STEP if begin else MERGE_PAGES_PER_STEP  # a negative number starts a new merge
        tx.execute(MERGE, {"pages": pages})
        return driver(tx).total_changes - before >= 2  # fewer changes mean that the merge is complete


def _is_whole(tx: Tx) -> bool:
    """Return True if the first, the last and a middle message are each found by one of their words. A full check is too
    slow."""
    try:
        if tx.exec_driver_sql(NEWEST_WORDS).scalar_one() != tx.exec_driver_sql(NEWEST_MESSAGE).scalar_one():
            return False
        return all(_is_found(tx, *row) for row in tx.exec_driver_sql(PROBES).all())
    except StoreError:
        return False


def _is_found(tx: Tx, message_id: int, scope: str, content: str, is_listed: int) -> bool:
    match = " AND ".join(
        [f"scope : {scope.split()[0]}", *(f"content : {_quoted(word)}" for word in _common_words(content))]
    )
    return bool(is_listed) and tx.exec_driver_sql(FOUND, (match, message_id)).first() is not None


def _common_words(text: str) -> list[str]:
    """Return one word that SQLite certainly tokenizes as we do, if there is one. It, like earlier versions, splits and
    normalizes other words differently."""
    found = COMMON_WORD.search(text) if text.isascii() and "\0" not in text else None
    return [] if found is None else [found[0]]


def _match(
    tx: Tx, place: SearchArea, words: Sequence[str], limit: int | None, between: tuple[int, int] | None
) -> MessageIds:
    all_of_them = "content : (" + " AND ".join(map(_quoted, words)) + ")"
    scope = _scope_terms(tx, place)
    match = f"({scope}) AND {all_of_them}" if scope else all_of_them
    given = {"match": match, "most": limit or NO_LIMIT}
    if between is None:
        [(ids,)] = NEWEST.rows(tx, **given)
    else:
        [(ids,)] = BETWEEN.rows(tx, first=between[0], last=between[1], **given)
    return np.sort(np.fromstring(str(ids), dtype=np.int64, sep=","))[::-1] if ids else np.zeros(0, dtype=np.int64)


def _quoted(word: str) -> str:
    return f'"{word[:-1]}"*' if word.endswith("*") else f'"{word}"'


def _scope_terms(tx: Tx, place: SearchArea) -> str:
    """Return the terms that limit a search to an area; "" for a file's only workspace, where they would be most of the
    cost."""
    terms = [] if place.peer is None else [f"scope : p{place.peer}"]
    if place.sessions is not None:
        terms.append("scope : (" + " OR ".join(f"s{session}" for session in place.sessions) + ")")
    if terms:
        return " AND ".join(terms)
    [(first, last)] = EDGES.rows(tx)
    return "" if first == last == place.workspace_id else f"scope : w{place.workspace_id}"


SQLITE = "sqlite"
_text_indexes: dict[str, TextIndex] = {SQLITE: SqliteTextIndex()}


def text_index(tx: Tx) -> TextIndex:
    """Return the text index of this transaction's database."""
    name = tx.dialect.name
    if name not in _text_indexes:  # imported only if used
        from hermes.memory_server.db.postgres_text_index import PostgresTextIndex

        _text_indexes[name] = PostgresTextIndex()
    return _text_indexes[name]


def neighbour_index(tx: Tx) -> NeighbourIndex | None:
    """Return the vector index of this transaction's database; None if searches compare every vector."""
    if tx.dialect.name == SQLITE:
        return None
    from hermes.memory_server.db.postgres_neighbours import PostgresNeighbours

    return PostgresNeighbours()


def find_damage(tx: Tx) -> str | None:
    """Check every page; return the first problem, None for a sound database or one that cannot be checked."""
    if tx.dialect.name != SQLITE:
        return None
    found = str(tx.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
    return None if found == "ok" else found


def announce_work(tx: Tx) -> None:
    """Notify other processes of work that this transaction queues, if the database can do so."""
    if tx.dialect.name != SQLITE:
        from hermes.memory_server.db.postgres import mark_queued

        mark_queued(tx)


def create_functions(tx: Tx) -> None:
    """Create the SQL functions of `matching` in a new database. SQLite gets them with each connection."""
    if tx.dialect.name != SQLITE:
        from hermes.memory_server.db.postgres_schema import create_postgres_functions

        create_postgres_functions(tx)
