"""What each kind of database does in its own way, found by the name that a transaction gives its kind."""

from __future__ import annotations

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.neighbours import NeighbourIndex
from hermes.memory_server.db.sqlite_text_index import SqliteTextIndex
from hermes.memory_server.db.text_index import TextIndex

SQLITE = "sqlite"
_text_indexes: dict[str, TextIndex] = {SQLITE: SqliteTextIndex()}


def text_index(tx: Tx) -> TextIndex:
    """The index of texts in this transaction's database."""
    name = tx.dialect.name
    if name not in _text_indexes:  # loaded by who uses it alone
        from hermes.memory_server.db.postgres_text_index import PostgresTextIndex

        _text_indexes[name] = PostgresTextIndex()
    return _text_indexes[name]


def neighbour_index(tx: Tx) -> NeighbourIndex | None:
    """The indexes of vectors in this transaction's database; None where every vector is compared."""
    if tx.dialect.name == SQLITE:
        return None
    from hermes.memory_server.db.postgres_neighbours import PostgresNeighbours

    return PostgresNeighbours()


def find_damage(tx: Tx) -> str | None:
    """The first thing that does not fit, after a look at every page; None when all does, or nobody can look."""
    if tx.dialect.name != SQLITE:
        return None
    found = str(tx.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
    return None if found == "ok" else found


def announce_work(tx: Tx) -> None:
    """Let other processes know of work that this transaction queues, where the database can tell them."""
    if tx.dialect.name != SQLITE:
        from hermes.memory_server.db.postgres import mark_queued

        mark_queued(tx)


def create_functions(tx: Tx) -> None:
    """Make the functions that `matching` needs in a new database. SQLite gets them with each connection."""
    if tx.dialect.name != SQLITE:
        from hermes.memory_server.db.postgres_schema import create_postgres_functions

        create_postgres_functions(tx)
