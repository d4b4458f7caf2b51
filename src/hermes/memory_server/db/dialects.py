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
