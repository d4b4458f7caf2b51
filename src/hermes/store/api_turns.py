"""Fingerprints of the user messages in conversations that HTTP clients resend whole with every request. They identify
the session that such a conversation belongs to. A row is deleted with its session."""

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
MAX_CANDIDATE_TURNS = 8
"""Maximum number of turns with equal `words` that a lookup returns."""


class ApiTurn(Struct, frozen=True):
    """One user message. `chain` hashes it together with all user messages before it, `words` hashes its text alone;
    both hashes depend on the person. `item` is the inbox message id of the latest request that had it answered."""

    id: int
    chain: str
    words: str
    session_id: str
    item: str
    is_delivered: bool
    """True once a client received the whole reply to `item`."""


def find_turn(tx: Tx, chain: str) -> ApiTurn | None:
    row = tx.execute("SELECT * FROM hermes_api_turns WHERE chain = ?", (chain,)).fetchone()
    return None if row is None else _turn(row)


def turns_with_words(tx: Tx, words: str) -> list[ApiTurn]:
    """Return the newest turns with these words, from any conversation of the person."""
    query = "SELECT * FROM hermes_api_turns WHERE words = ? ORDER BY id DESC LIMIT ?"
    return [_turn(row) for row in tx.execute(query, (words, MAX_CANDIDATE_TURNS))]


def words_until(tx: Tx, turn: ApiTurn, count: int) -> list[str]:
    """Return the `words` of a turn and of the turns before it in its session, newest first, at most `count`."""
    query = "SELECT words FROM hermes_api_turns WHERE session_id = ? AND id <= ? ORDER BY id DESC LIMIT ?"
    return [row[0] for row in tx.execute(query, (turn.session_id, turn.id, count))]


def extent_of(tx: Tx, session_id: str) -> tuple[int, int]:
    """Return the number of turns of a session, and the id of its last turn."""
    query = "SELECT count(*), coalesce(max(id), 0) FROM hermes_api_turns WHERE session_id = ?"
    count, last = tx.execute(query, (session_id,)).fetchone()
    return int(count), int(last)


def add_turn(tx: Tx, chain: str, words: str, session_id: str, item: str) -> None:
    tx.execute(
        "INSERT INTO hermes_api_turns (chain, words, session_id, item) VALUES (?, ?, ?, ?)",
        (chain, words, session_id, item),
    )


def answer_anew(tx: Tx, turn: ApiTurn, item: str) -> None:
    """Store the item of a newer request that has the turn's message answered again."""
    tx.execute("UPDATE hermes_api_turns SET item = ?, is_delivered = 0 WHERE id = ?", (item, turn.id))


def drop_turn(tx: Tx, turn: ApiTurn) -> None:
    tx.execute("DELETE FROM hermes_api_turns WHERE id = ?", (turn.id,))


def mark_delivered(tx: Tx, session_id: str, item: str) -> None:
    """Record that a client received the whole reply."""
    tx.execute("UPDATE hermes_api_turns SET is_delivered = 1 WHERE session_id = ? AND item = ?", (session_id, item))


def _turn(row: sqlite3.Row) -> ApiTurn:
    key, chain, words, session_id, item, is_delivered = row
    return ApiTurn(key, chain, words, session_id, item, bool(is_delivered))
