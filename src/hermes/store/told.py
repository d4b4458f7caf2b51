"""Memory delivery marks: the messages that a provider has received or will receive. Unlike outbox rows they are
kept."""

from __future__ import annotations

import json
from collections.abc import Iterable

from hermes.db.engine import Tx

SCHEMA = (
    """
    CREATE TABLE hermes_memory_told (
        message_id INTEGER NOT NULL,
        provider TEXT NOT NULL,
        PRIMARY KEY (message_id, provider)
    ) WITHOUT ROWID
    """,
    """
    INSERT INTO hermes_memory_told
    SELECT m.id, p.provider FROM hermes_memory_places p JOIN messages m ON m.session_id = p.place WHERE p.turns > 0
    """,
)
"""Migration of earlier files, which did not track single messages: if any message of a session was delivered, all count
as delivered."""


EVERYONE = ""
"""Stands for all providers, present and future, if none may receive a message."""


def mark_told(tx: Tx, provider: str, messages: Iterable[int]) -> set[int]:
    """Mark messages for delivery to a provider and return those that were not marked before."""
    rows = tx.execute(
        "INSERT INTO hermes_memory_told (message_id, provider) SELECT value, ? FROM json_each(?) WHERE true "
        "ON CONFLICT DO NOTHING RETURNING message_id",
        (provider, json.dumps(list(messages))),
    )
    return {row["message_id"] for row in rows}


def unmark_told(tx: Tx, provider: str, messages: Iterable[int]) -> None:
    """Remove the marks of messages that a provider did not receive after all, so that they can be delivered later."""
    tx.execute(
        "DELETE FROM hermes_memory_told WHERE provider = ? AND message_id IN (SELECT value FROM json_each(?))",
        (provider, json.dumps(list(messages))),
    )


def told_among(tx: Tx, messages: Iterable[int]) -> list[tuple[str, int]]:
    """Return `(provider, message id)` for each delivery mark of these messages."""
    rows = tx.execute(
        "SELECT provider, message_id FROM hermes_memory_told WHERE provider <> ? "
        "AND message_id IN (SELECT value FROM json_each(?)) ORDER BY provider, message_id",
        (EVERYONE, json.dumps(list(messages))),
    )
    return [(row["provider"], row["message_id"]) for row in rows]


def told_providers(tx: Tx) -> list[str]:
    """Return the providers that have any delivery mark."""
    rows = tx.execute(
        "SELECT DISTINCT provider FROM hermes_memory_told WHERE provider <> ? ORDER BY provider", (EVERYONE,)
    )
    return [row["provider"] for row in rows]


def is_any_told(tx: Tx, provider: str) -> bool:
    """Return True if a provider has any delivery mark."""
    row = tx.execute("SELECT 1 FROM hermes_memory_told WHERE provider = ? LIMIT 1", (provider,))
    return row.fetchone() is not None
