"""Host-side rows of memory providers, beside their queue: where a conversation's entries go, small values, and health.

Each row is written in the transaction of the event that it records. A place is a session id, or the name of a notebook.
"""

from __future__ import annotations

import json
import sqlite3
from hashlib import sha256

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.types import Json

EVERYONE = ""
"""Stands for all providers, present and future, if none may receive something."""
TITLE = "hidden title"
"""Kind of the value that identifies a session title which providers must not receive."""
SCHEMA = (
    """
    CREATE TABLE hermes_memory_places (
        provider TEXT NOT NULL,
        place TEXT NOT NULL,
        about TEXT NOT NULL,
        address TEXT,
        bound TEXT,
        turns INTEGER NOT NULL DEFAULT 0,
        last_said INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (provider, place)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE hermes_memory_values (
        provider TEXT NOT NULL,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (provider, kind, key)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE hermes_memory_health (
        provider TEXT PRIMARY KEY,
        last_success REAL,
        last_error TEXT,
        last_error_at REAL,
        failing_since REAL
    ) WITHOUT ROWID
    """,
)

SYNCED_SCHEMA = (
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

EARLIER = "ALTER TABLE hermes_memory_places ADD COLUMN earlier TEXT"
"""Column of a later version: the addresses that a place had before."""


class EntryPlace(Struct, frozen=True):
    """Destination of a conversation's or notebook's entries; `address` is unset until the provider has returned one.

    `bound` is the content of its first address, `earlier` are its previous addresses.
    """

    about: Json
    address: Json
    bound: Json
    earlier: list[Json]


class DeliveryHealth(Struct, frozen=True):
    """Health of the deliveries to a provider, over all processes."""

    last_success: float | None = None
    last_error: str | None = None
    last_error_at: float | None = None
    failing_since: float | None = None


def find_place(tx: Tx, provider: str, place: str) -> EntryPlace | None:
    """Return the stored place, or None."""
    row = tx.execute(
        "SELECT * FROM hermes_memory_places WHERE provider = ? AND place = ?", (provider, place)
    ).fetchone()
    return None if row is None else _place(row)


def _place(row: sqlite3.Row) -> EntryPlace:
    about, address, bound, earlier = (_loads(row[name]) for name in ("about", "address", "bound", "earlier"))
    return EntryPlace(about, address, bound, earlier or [])


def all_places(tx: Tx, provider: str) -> list[EntryPlace]:
    """Return every place of a provider."""
    rows = tx.execute("SELECT * FROM hermes_memory_places WHERE provider = ? ORDER BY place", (provider,))
    return [_place(row) for row in rows]


def providers_of(tx: Tx, place: str) -> list[str]:
    """Return the providers that have an address for a place."""
    rows = tx.execute(
        "SELECT provider FROM hermes_memory_places WHERE place = ? AND address IS NOT NULL ORDER BY provider", (place,)
    )
    return [row["provider"] for row in rows]


def set_place(tx: Tx, provider: str, place: str, about: Json, address: Json, bound: Json) -> None:
    """Store what a place is about and its address. The first `bound` stays, and a replaced address is added to
    `earlier`."""
    known = find_place(tx, provider, place)
    earlier = [] if known is None else known.earlier
    if known is not None and None not in (address, known.address) and known.address not in (address, *earlier):
        earlier = [*earlier, known.address]
    tx.execute(
        """
        INSERT INTO hermes_memory_places (provider, place, about, address, bound, earlier) VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (provider, place) DO UPDATE SET about = excluded.about, earlier = excluded.earlier,
            address = coalesce(excluded.address, address), bound = coalesce(bound, excluded.bound)
        """,
        (provider, place, *map(_dumps, (about, address, bound, earlier))),
    )


def count_turn(tx: Tx, provider: str, place: str, last_said: int) -> int:
    """Count a turn that begins with message `last_said` and return its number, from 1. A repeated turn counts once."""
    row = tx.execute(
        "UPDATE hermes_memory_places SET turns = turns + (last_said < :said), last_said = max(last_said, :said) "
        "WHERE provider = :provider AND place = :place RETURNING turns",
        {"provider": provider, "place": place, "said": last_said},
    ).fetchone()
    return 1 if row is None else int(row["turns"])


def get_value(tx: Tx, provider: str, kind: str, key: str) -> Json:
    """Return a small value, or None."""
    row = tx.execute(
        "SELECT value FROM hermes_memory_values WHERE provider = ? AND kind = ? AND key = ?", (provider, kind, key)
    ).fetchone()
    return None if row is None else json.loads(row["value"])


def set_value(tx: Tx, provider: str, kind: str, key: str, value: Json) -> None:
    """Store a small value; None deletes it."""
    tx.execute("DELETE FROM hermes_memory_values WHERE provider = ? AND kind = ? AND key = ?", (provider, kind, key))
    if value is not None:
        tx.execute("INSERT INTO hermes_memory_values VALUES (?, ?, ?, ?)", (provider, kind, key, _dumps(value)))


def get_health(tx: Tx, provider: str) -> DeliveryHealth:
    row = tx.execute("SELECT * FROM hermes_memory_health WHERE provider = ?", (provider,)).fetchone()
    if row is None:
        return DeliveryHealth()
    return DeliveryHealth(row["last_success"], row["last_error"], row["last_error_at"], row["failing_since"])


def record_delivery(tx: Tx, provider: str, error: str | None, *, now: float) -> None:
    """Record the outcome of a delivery; `error` explains a failure."""
    tx.execute(
        """
        INSERT INTO hermes_memory_health (provider, last_success, last_error, last_error_at, failing_since)
        VALUES (
            :provider, iif(:error IS NULL, :now, NULL), :error, iif(:error IS NULL, NULL, :now),
            iif(:error IS NULL, NULL, :now)
        )
        ON CONFLICT (provider) DO UPDATE SET
            last_success = coalesce(excluded.last_success, last_success),
            last_error = coalesce(excluded.last_error, last_error),
            last_error_at = coalesce(excluded.last_error_at, last_error_at),
            failing_since = iif(:error IS NULL, NULL, coalesce(failing_since, :now))
        """,
        {"provider": provider, "error": error, "now": now},
    )


def hide_title(tx: Tx, session_id: str, title: str | None) -> None:
    """Keep a title that was given incognito from all providers, for as long as the session has it."""
    if title is not None:
        set_value(tx, EVERYONE, TITLE, session_id, _digest(title))


def title_for_providers(tx: Tx, session_id: str, title: str | None) -> str | None:
    """Return the title that a provider may receive; None for one that was given incognito."""
    is_hidden = title is not None and get_value(tx, EVERYONE, TITLE, session_id) == _digest(title)
    return None if is_hidden else title


def _digest(title: str) -> str:
    return sha256(title.encode(errors="replace")).hexdigest()


def forget_place(tx: Tx, place: str) -> None:
    """Delete the addresses and the hidden title of a deleted session."""
    tx.execute("DELETE FROM hermes_memory_places WHERE place = ?", (place,))
    set_value(tx, EVERYONE, TITLE, place, None)


def _dumps(value: Json) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _loads(text: str | None) -> Json:
    return None if text is None else json.loads(text)
