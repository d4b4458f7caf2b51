"""Migrations of the tables; `db.schema` applies those that are missing.

A folder is upgraded in one transaction. In PostgreSQL each migration has a transaction of its own, whose statements
wait two seconds for a table lock and are then retried, since all other statements queue behind them. To keep large
tables available, a migration adds tables and columns (with constant defaults), computes new values in a job (as
`catch_up` and `reread` do), and creates indexes with `add_index`."""

from __future__ import annotations

from alembic import op

from hermes.memory_server.db.dialects import SQLITE
from hermes.memory_server.db.tables import metadata


def add_index(name: str) -> None:
    """Create an index of `tables` in a file. In PostgreSQL `add_missing_indexes` creates it afterwards."""
    connection = op.get_bind()
    if connection.dialect.name == SQLITE:
        next(index for table in metadata.tables.values() for index in table.indexes if index.name == name).create(
            connection
        )
