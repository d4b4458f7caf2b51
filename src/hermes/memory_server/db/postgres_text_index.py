"""The words of messages in PostgreSQL: one `tsvector` of SQLite's tokens per message, with a GIN index.

Three more lexemes hold the scope of a message (workspace, session, author). They are capitalized, and tokens never are.
So the cost of a search depends on the size of its scope.

Tokens of a text, exactly as SQLite's full-text index splits and stems it, for other databases. An in-memory SQLite
computes them, since a second tokenizer could differ.

SQLite itself does it, in memory: no second tokenizer could differ.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from sqlalchemy import text

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.text_index import Match, MessageIds, SearchArea
from hermes.ranking.words import segment

TOKENIZE = "porter unicode61 remove_diacritics 2"
MAX_TOKEN_CHARS = 500
"""Longer tokens are cut, in texts and queries alike: PostgreSQL limits lexemes to 2 KB."""
_local = threading.local()


def split_tokens(texts: Sequence[str]) -> list[list[str]]:
    """Return the tokens of each text, in order."""
    memory = _memory()
    memory.execute("BEGIN")
    try:
        memory.executemany("INSERT INTO texts (rowid, content) VALUES (?, ?)", enumerate(texts))
        found = memory.execute('SELECT doc, "offset", term FROM tokens').fetchall()
    finally:
        memory.execute("ROLLBACK")
    tokens: list[list[str]] = [[] for _ in texts]
    for doc, _, term in sorted(found):
        tokens[doc].append(term[:MAX_TOKEN_CHARS])
    return tokens


def _memory() -> sqlite3.Connection:
    """Return this thread's in-memory database."""
    memory: sqlite3.Connection | None = getattr(_local, "memory", None)
    if memory is None:
        memory = _local.memory = sqlite3.connect(":memory:", isolation_level=None)
        memory.execute(f"CREATE VIRTUAL TABLE texts USING fts5(content, content = '', tokenize = '{TOKENIZE}')")
        memory.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab(texts, 'instance')")
    return memory


TABLE = "CREATE TABLE message_words (message_id BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)"
INDEX = "CREATE INDEX message_words_by_word ON message_words USING gin (words)"
ADD = PreparedStatement(
    text("INSERT INTO message_words (message_id, words) VALUES (:id, CAST(CAST(:words AS TEXT) AS TSVECTOR))")
)
PART = (
    "SELECT id, workspace_id, peer_id, content FROM messages "
    "WHERE session_id = :session_id AND seq >= :first AND seq <= :last"
)
REMOVE_PART = text(
    "DELETE FROM message_words WHERE message_id IN "
    "(SELECT id FROM messages WHERE session_id = :session_id AND seq >= :first AND seq <= :last)"
)
# MATERIALIZED, since the planner might otherwise read all messages, newest first, until enough match.
FIND = PreparedStatement(
    text(
        "WITH found AS MATERIALIZED (SELECT message_id FROM message_words "
        "WHERE words @@ CAST(CAST(:query AS TEXT) AS TSQUERY)) "
        "SELECT message_id FROM found WHERE message_id >= :first AND message_id <= :last "
        "ORDER BY message_id DESC LIMIT CAST(:most AS BIGINT)"
    )
)
MAX_POSITION = 16_383
MAX_POSITIONS = 255
"""PostgreSQL's bounds on a `tsvector`: later positions count as MAX_POSITION, and further
occurrences of a word are dropped."""
MAX_ID = 2**63 - 1


class PostgresTextIndex:
    """A table with the words of messages, changed in the same transaction as they are."""

    def create(self, tx: Tx) -> None:
        tx.exec_driver_sql(TABLE)
        tx.exec_driver_sql(INDEX)

    def add(self, tx: Tx, workspace_id: int, session_id: int, given: Iterable[tuple[int, int, str]]) -> None:
        messages = list(given)
        tokens = split_tokens([segment(content) for *_, content in messages])
        scope = f"'W{workspace_id}':1 'S{session_id}':1 'P"
        rows = [
            {"id": message_id, "words": f"{scope}{peer}':1 {_vector(words)}"}
            for (message_id, peer, _), words in zip(messages, tokens, strict=True)
        ]
        ADD.run_many(tx, rows)

    def add_part(self, tx: Tx, session_id: int, first: int, last: int) -> None:
        rows = tx.execute(text(PART), {"session_id": session_id, "first": first, "last": last}).all()
        if rows:
            self.add(tx, rows[0].workspace_id, session_id, [(row.id, row.peer_id, row.content) for row in rows])

    def remove_part(self, tx: Tx, session_id: int, first: int, last: int) -> None:
        tx.execute(REMOVE_PART, {"session_id": session_id, "first": first, "last": last})

    def mend(self, tx: Tx) -> bool:  # noqa: ARG002
        """Return False: a table in the same transactions cannot lose rows."""
        return False

    def respell(self, tx: Tx, after: int, last: int) -> None:
        """Do nothing: no earlier version wrote to PostgreSQL."""

    def within(self, tx: Tx, place: SearchArea) -> Match:
        return partial(_match, tx, _scope(place))

    def tidy(self, tx: Tx, *, begin: bool) -> bool:  # noqa: ARG002
        """Return False: PostgreSQL's vacuum removes deleted words."""
        return False


def _match(tx: Tx, scope: str, words: Sequence[str], limit: int | None, between: tuple[int, int] | None) -> MessageIds:
    phrases = [
        _phrase(tokens, is_prefix=word.endswith("*")) for word, tokens in zip(words, split_tokens(words), strict=True)
    ]
    if not all(phrases):
        return np.zeros(0, dtype=np.int64)
    first, last = between or (0, MAX_ID)
    query = " & ".join([scope, *phrases])
    rows = FIND.rows(tx, query=query, first=first, last=last, most=limit)
    return np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))


def _scope(place: SearchArea) -> str:
    terms = [f"'W{place.workspace_id}'"]
    if place.peer is not None:
        terms.append(f"'P{place.peer}'")
    if place.sessions is not None:
        terms.append("(" + " | ".join(f"'S{session}'" for session in place.sessions or (0,)) + ")")
    return " & ".join(terms)


def _phrase(tokens: Sequence[str], *, is_prefix: bool) -> str:
    """Return a query for adjacent tokens, the last one as a prefix if `is_prefix`; "" for no tokens."""
    quoted = [_quoted(token) for token in tokens]
    if is_prefix and quoted:
        quoted[-1] += ":*"
    return "(" + " <-> ".join(quoted) + ")" if quoted else ""


def _vector(tokens: Sequence[str]) -> str:
    places: dict[str, list[int]] = {}
    for place, token in enumerate(tokens, start=1):
        places.setdefault(token, []).append(min(place, MAX_POSITION))
    return " ".join(f"{_quoted(token)}:{','.join(map(str, at[:MAX_POSITIONS]))}" for token, at in places.items())


def _quoted(token: str) -> str:
    doubled = token.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"
