"""Which messages a memory provider was told of, or is to be told: for good, unlike the rows of the outbox."""

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
"""What was told before there was this table is not known message by message: where any of a session was, all counts."""


EVERYONE = ""
"""Stands for all providers, also those to come, where none is to be told of a message."""


def mark_told(tx: Tx, provider: str, messages: Iterable[int]) -> set[int]:
    """A provider is to be told of these messages: those of them that it was not to be told of before."""
    rows = tx.execute(
        "INSERT INTO hermes_memory_told (message_id, provider) SELECT value, ? FROM json_each(?) WHERE true "
        "ON CONFLICT DO NOTHING RETURNING message_id",
        (provider, json.dumps(list(messages))),
    )
    return {row["message_id"] for row in rows}


def unmark_told(tx: Tx, provider: str, messages: Iterable[int]) -> None:
    """A provider was not told of these messages after all, and can be later."""
    tx.execute(
        "DELETE FROM hermes_memory_told WHERE provider = ? AND message_id IN (SELECT value FROM json_each(?))",
        (provider, json.dumps(list(messages))),
    )


def told_among(tx: Tx, messages: Iterable[int]) -> list[tuple[str, int]]:
    """Who was told, or is to be told, of which of these messages: provider and message."""
    rows = tx.execute(
        "SELECT provider, message_id FROM hermes_memory_told WHERE provider <> ? "
        "AND message_id IN (SELECT value FROM json_each(?)) ORDER BY provider, message_id",
        (EVERYONE, json.dumps(list(messages))),
    )
    return [(row["provider"], row["message_id"]) for row in rows]


def told_providers(tx: Tx) -> list[str]:
    """The providers that were ever told anything that was said."""
    rows = tx.execute(
        "SELECT DISTINCT provider FROM hermes_memory_told WHERE provider <> ? ORDER BY provider", (EVERYONE,)
    )
    return [row["provider"] for row in rows]


def is_any_told(tx: Tx, provider: str) -> bool:
    """Whether a provider was ever told anything that was said."""
    row = tx.execute("SELECT 1 FROM hermes_memory_told WHERE provider = ? LIMIT 1", (provider,))
    return row.fetchone() is not None
