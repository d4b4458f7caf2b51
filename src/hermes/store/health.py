"""Checks of a store file that do not change it.

Reading a store file of any version without changing it.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from hermes.db import queue_items
from hermes.db.engine import Tx, current_version
from hermes.db.queue_items import QueueStats
from hermes.sqlite.connection import read_text, translate
from hermes.store.schema import MIGRATIONS

OUR_TABLE = re.compile(r"\A\s*(CREATE TABLE|ALTER TABLE|INSERT INTO) (hermes_\w+)")


@contextmanager
def open_unchanged(path: Path, *, lock_timeout: float) -> Iterator[Tx]:
    """Yield one consistent snapshot of an existing file. Raises StoreError for every SQLite error."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode={_mode(path)}", uri=True)) as tx:
            tx.row_factory = sqlite3.Row
            tx.text_factory = read_text
            tx.isolation_level = None
            tx.execute(f"PRAGMA busy_timeout = {int(lock_timeout * 1000)}")
            tx.execute("PRAGMA temp_store = MEMORY")
            tx.execute("BEGIN")
            yield tx
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise translate(error, path) from error


def lend_tables(tx: Tx) -> None:
    """Create those of our tables that the file lacks as temporary tables of this connection, with the rows that a
    migration would give them. The file does not change."""
    there, is_ours = {row["name"] for row in tx.execute("SELECT name FROM sqlite_master")}, current_version(tx) > 0
    for statement in (statement for migration in MIGRATIONS for statement in migration.statements):
        found = OUR_TABLE.match(statement)
        if found and found[2] not in there and (is_ours or found[1] != "INSERT INTO"):
            tx.execute(statement.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))


def _mode(path: Path) -> str:
    """Return "ro" or "rw". A read-only connection leaves an empty log beside a file that had none; a writable one
    removes it.

    But a writable one would also apply the log of a killed process, which we must not.
    """
    left = any(path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal"))
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return "ro" if left or not writable else "rw"


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
