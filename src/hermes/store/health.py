"""Checks of a store file that do not change it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from hermes.db import queue_items
from hermes.db.engine import Tx, current_version
from hermes.db.queue_items import QueueStats
from hermes.store.reading import open_unchanged
from hermes.store.schema import MIGRATIONS


class Undecodable(Struct, frozen=True):
    """A row of a shared table with text that is not UTF-8. `session_id` is shown with U+FFFD in place of bad bytes."""

    table: str
    key: str
    session_id: str


class StoreHealth(Struct, frozen=True):
    """Result of a check. `damage` is empty for an intact file."""

    damage: tuple[str, ...]
    journal_mode: str
    version: int
    known_version: int
    sessions: int
    messages: int
    orphans: int
    dangling_routes: int
    unindexed: int
    queues: dict[str, QueueStats]
    undecodable: tuple[Undecodable, ...] = ()


def inspect(path: Path, *, lock_timeout: float, now: float) -> StoreHealth:
    """Read the whole file and check it. Raises a StoreError if it cannot be read."""
    with open_unchanged(path, lock_timeout=lock_timeout) as tx:
        return _inspect(tx, now)


def _inspect(tx: Tx, now: float) -> StoreHealth:
    journal_mode = str(tx.execute("PRAGMA journal_mode").fetchone()[0])
    found = [str(row[0]) for row in tx.execute("PRAGMA integrity_check(20)")]
    tables = {row["name"] for row in tx.execute("SELECT name FROM sqlite_master")}
    ours = "hermes_search_state" in tables
    shared = {"sessions", "messages"} <= tables
    return StoreHealth(
        damage=tuple(line for line in found if line != "ok"),
        journal_mode=journal_mode,
        version=current_version(tx),
        known_version=MIGRATIONS[-1].version,
        sessions=_count(tx, shared, "sessions"),
        messages=_count(tx, shared, "messages"),
        orphans=_count(tx, shared, "messages WHERE session_id NOT IN (SELECT id FROM sessions)"),
        dangling_routes=_count(tx, ours, "hermes_routes WHERE session_id NOT IN (SELECT id FROM sessions)"),
        unindexed=_count(tx, ours, "messages WHERE id > (SELECT indexed_upto FROM hermes_search_state)"),
        queues={name: queue_items.stats(tx, name, now=now) for name in queue_items.queues(tx)} if ours else {},
        undecodable=tuple(_find_undecodable(tx)) if shared and found == ["ok"] else (),
    )


def _find_undecodable(tx: Tx) -> Iterator[Undecodable]:
    tx.create_function("is_utf8", 1, _is_utf8, deterministic=True)
    for table, session in (("sessions", "id"), ("messages", "session_id")):
        columns = [row["name"] for row in tx.execute(f"PRAGMA table_info({table})")]
        if not {"id", session} <= set(columns):
            continue  # it is not ours; opening it says so
        whole = " || char(10) || ".join(f"""iif(typeof("{name}") = 'text', "{name}", '')""" for name in columns)
        rows = tx.execute(f"SELECT id, {session} FROM {table} WHERE NOT is_utf8(cast({whole} AS BLOB))")
        yield from (Undecodable(table, str(row[0]), str(row[1])) for row in rows)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _count(tx: Tx, is_there: bool, rows: str) -> int:
    """Return the number of rows, or 0 if the tables do not exist."""
    return int(tx.execute(f"SELECT count(*) FROM {rows}").fetchone()[0]) if is_there else 0
