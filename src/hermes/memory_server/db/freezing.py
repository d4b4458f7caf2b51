"""Write protection for a memory that is being moved to another database, or was moved. Triggers on its tables bind all
processes immediately, whatever their version."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct
from sqlalchemy import delete, select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.dialects import SQLITE
from hermes.memory_server.db.statements import upsert
from hermes.memory_server.db.tables import meta, metadata

NAME = "move"
"""Row of `meta` that holds the move."""
TRIGGER = "refuse_writes"
FUNCTION = f"""
CREATE OR REPLACE FUNCTION {TRIGGER}() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'HM001', MESSAGE = TG_ARGV[0]; END $$
"""
LOCK_TABLES = f"LOCK TABLE {', '.join(metadata.tables)} IN SHARE ROW EXCLUSIVE MODE"
"""Waits for open write transactions, and blocks new ones."""
OPERATIONS = ("INSERT", "UPDATE", "DELETE")


class Move(Struct, frozen=True):
    """A move of a memory, as stored at its source and its target."""

    id: str
    source: str
    target: str
    state: Literal["moving", "moved"] = "moving"

    def reason(self) -> str:
        """Return the reason why the source refuses writes."""
        told = "this memory is being moved" if self.state == "moving" else "this memory was moved"
        return f"{told} to {self.target} and takes no writes here"


def read_move(tx: Tx) -> Move | None:
    """Return the move whose source is this memory, or None."""
    value = tx.execute(select(meta.c.value).where(meta.c.name == NAME)).scalar()
    return None if value is None else msgspec.json.decode(value, type=Move)


def freeze(tx: Tx, move: Move) -> None:
    """Refuse every write to this memory once the transaction commits."""
    thaw(tx)
    upsert(tx, meta, ("name",), {"name": NAME, "value": msgspec.json.encode(move).decode()})
    said = "'" + move.reason().replace("'", "''") + "'"
    if tx.dialect.name != SQLITE:
        said = said.replace("%", "%%")  # otherwise a placeholder for the driver
        tx.exec_driver_sql(FUNCTION)
    for table in metadata.tables:
        if tx.dialect.name == SQLITE:
            for operation in OPERATIONS:
                begin = f"CREATE TRIGGER {_sqlite_trigger(table, operation)} BEFORE {operation} ON {table}"
                tx.exec_driver_sql(f"{begin} BEGIN SELECT RAISE(ABORT, {said}); END")
        else:
            every = f"CREATE TRIGGER {TRIGGER} BEFORE {' OR '.join(OPERATIONS)} OR TRUNCATE ON {table}"
            tx.exec_driver_sql(f"{every} FOR EACH STATEMENT EXECUTE FUNCTION {TRIGGER}({said})")


def thaw(tx: Tx) -> None:
    """Accept writes again once the transaction commits. A memory that is not frozen is unchanged."""
    if tx.dialect.name != SQLITE:
        tx.exec_driver_sql(LOCK_TABLES)
    for table in metadata.tables:
        if tx.dialect.name == SQLITE:
            for operation in OPERATIONS:
                tx.exec_driver_sql(f"DROP TRIGGER IF EXISTS {_sqlite_trigger(table, operation)}")
        else:
            tx.exec_driver_sql(f"DROP TRIGGER IF EXISTS {TRIGGER} ON {table}")
    tx.execute(delete(meta).where(meta.c.name == NAME))


def _sqlite_trigger(table: str, operation: str) -> str:
    return f"{TRIGGER}_{operation.lower()}_{table}"
