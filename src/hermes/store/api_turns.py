"""Fingerprints of what clients of the HTTP API said in conversations that they send whole with each request, by which
such a conversation is recognised as one session. A row lives as long as its session."""

from __future__ import annotations

import sqlite3

from msgspec import Struct

from hermes.db.engine import Tx

SCHEMA = (
    """
    CREATE TABLE hermes_api_turns (
        id INTEGER PRIMARY KEY,
        chain TEXT NOT NULL UNIQUE,
        words TEXT NOT NULL,
        session_id TEXT NOT NULL,
        item TEXT NOT NULL,
        is_delivered INTEGER NOT NULL DEFAULT 0
    )
    """,
    "CREATE INDEX hermes_api_turns_by_words ON hermes_api_turns (words)",
    "CREATE INDEX hermes_api_turns_by_session ON hermes_api_turns (session_id)",
)
CANDIDATES = 8
"""Turns with the same words that are looked at, the newest first."""


class ApiTurn(Struct, frozen=True):
    """One message of a person. `chain` is the hash of it and all before it, `words` of its own text; both differ from
    person to person. `item` is its message id in the inbox: of the last request that had it answered."""

    id: int
    chain: str
    words: str
    session_id: str
    item: str
    is_delivered: bool
    """Whether a client took the reply to `item` whole."""


def find_turn(tx: Tx, chain: str) -> ApiTurn | None:
    row = tx.execute("SELECT * FROM hermes_api_turns WHERE chain = ?", (chain,)).fetchone()
    return None if row is None else _turn(row)


def turns_with_words(tx: Tx, words: str) -> list[ApiTurn]:
    """The newest turns with these words, of any conversation of the person."""
    query = "SELECT * FROM hermes_api_turns WHERE words = ? ORDER BY id DESC LIMIT ?"
    return [_turn(row) for row in tx.execute(query, (words, CANDIDATES))]


def words_until(tx: Tx, turn: ApiTurn, count: int) -> list[str]:
    """Return the words of a turn and of those before it in its session, the newest first, at most `count`."""
    query = "SELECT words FROM hermes_api_turns WHERE session_id = ? AND id <= ? ORDER BY id DESC LIMIT ?"
    return [row[0] for row in tx.execute(query, (turn.session_id, turn.id, count))]


def extent_of(tx: Tx, session_id: str) -> tuple[int, int]:
    """How many turns a session has, and the id of the last one."""
    query = "SELECT count(*), coalesce(max(id), 0) FROM hermes_api_turns WHERE session_id = ?"
    count, last = tx.execute(query, (session_id,)).fetchone()
    return int(count), int(last)


def add_turn(tx: Tx, chain: str, words: str, session_id: str, item: str) -> None:
    tx.execute(
        "INSERT INTO hermes_api_turns (chain, words, session_id, item) VALUES (?, ?, ?, ?)",
        (chain, words, session_id, item),
    )


def answer_anew(tx: Tx, turn: ApiTurn, item: str) -> None:
    """Another request has the message of a turn answered anew."""
    tx.execute("UPDATE hermes_api_turns SET item = ?, is_delivered = 0 WHERE id = ?", (item, turn.id))


def drop_turn(tx: Tx, turn: ApiTurn) -> None:
    tx.execute("DELETE FROM hermes_api_turns WHERE id = ?", (turn.id,))


def mark_delivered(tx: Tx, session_id: str, item: str) -> None:
    """A client took the reply whole."""
    tx.execute("UPDATE hermes_api_turns SET is_delivered = 1 WHERE session_id = ? AND item = ?", (session_id, item))


def _turn(row: sqlite3.Row) -> ApiTurn:
    key, chain, words, session_id, item, is_delivered = row
    return ApiTurn(key, chain, words, session_id, item, bool(is_delivered))
