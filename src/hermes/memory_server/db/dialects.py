"""What each kind of database does in its own way, found by the name that a transaction gives its kind."""

from __future__ import annotations

from collections.abc import Mapping

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.sqlite_text_index import SqliteTextIndex
from hermes.memory_server.db.text_index import TextIndex

TEXT_INDEXES: Mapping[str, TextIndex] = {"sqlite": SqliteTextIndex()}


def text_index(tx: Tx) -> TextIndex:
    """The index of texts in this transaction's database."""
    return TEXT_INDEXES[tx.dialect.name]


def find_damage(tx: Tx) -> str | None:
    """The first thing that does not fit, after a look at every page; None when all does."""
    found = str(tx.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
    return None if found == "ok" else found
