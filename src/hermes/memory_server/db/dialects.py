"""Implementations for each kind of database, selected by the dialect of the transaction."""

from __future__ import annotations

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.neighbours import NeighbourIndex
from hermes.memory_server.db.sqlite_text_index import SqliteTextIndex
from hermes.memory_server.db.text_index import TextIndex

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
