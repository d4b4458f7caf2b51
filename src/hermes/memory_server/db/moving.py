"""Moving a memory to another database: every row is copied, then both sides are read again and compared.

    begin the target ── freeze the source ── copy ── compare ── publish the target ── mark the source as moved

The transaction that copies rows also records the progress, so an interrupted move resumes where it stopped. The source
keeps every row. Nobody serves the target until it is published.

Write protection for a memory that is being moved to another database, or was moved. Triggers on its tables bind all
processes immediately, whatever their version.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any, Literal

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Select, Table, delete, func, literal, select, tuple_

from hermes.errors import StoreBusyError, TransferError
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.dialects import SQLITE, text_index
from hermes.memory_server.db.move_places import KEY_ROWS, PROGRESS, MovePlace
from hermes.memory_server.db.statements import upsert
from hermes.memory_server.db.tables import messages, meta, metadata

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


CHUNK_ROWS = 1000
FREEZE_ATTEMPTS = 20
MOVED_FROM = "moved_from"
"""Row of `meta` in which a memory stores the move that filled it."""
NOT_CARRIED = (NAME, MOVED_FROM, *KEY_ROWS)
"""Rows of `meta` that are not copied, besides those of `PROGRESS`."""
DATA = [table for table in metadata.sorted_tables if table is not meta]
MoveStep = Literal["copied", "compared"]
Tell = Callable[[MoveStep, str, int, int], None]
"""Reports a step: what was done, the table, the rows done, and their total."""


class MoveReport(Struct, frozen=True):
    """The result of a move."""

    id: str
    source: str
    target: str
    state: Literal["moved", "undone", "none"]
    is_new: bool
    """False if the move was already complete."""
    rows: Mapping[str, int]


class MoveProgress(Struct):
    """The progress of a table: the last key that was copied, and the number of rows."""

    key: list[Any] | None = None
    rows: int = 0


def move(source: MovePlace, target: MovePlace, tell: Tell) -> MoveReport:
    """Move a memory, or resume an interrupted move."""
    if not source.exists():
        raise TransferError(
            f"{source} holds no memory", hint="Give a folder with a memory.db, or the URL of a database"
        )
    with source.locked(), target.locked():
        source.upgrade()
        known, found = _read_source(source), _read_target(target)
        begun = _check(source, target, known, found)
        if known is not None and known.state == "moved" and target.exists():
            return MoveReport(begun.id, str(source), str(target), "moved", False, {})
        if not target.exists():
            if not target.is_begun():
                _begin(target, begun)
            _freeze(source, begun)
            _fill(source, target, tell)
            target.publish()
        with target.memory(write=True) as tx:
            tx.execute(delete(meta).where(_is_progress()))
        _freeze(source, msgspec.structs.replace(begun, state="moved"))
        with target.memory() as tx:
            rows = {table.name: _count(tx, table) for table in DATA}
        return MoveReport(begun.id, str(source), str(target), "moved", True, rows)


def undo(source: MovePlace, target: MovePlace) -> MoveReport:
    """Make the source writable again and remove a partly filled target. A published target stays."""
    with source.locked(), target.locked():
        known, found = _read_source(source), _read_target(target)
        if known is not None and known.target != str(target):
            raise TransferError(f"{source} is being moved to {known.target}, not to {target}", hint="Give that target")
        is_left = found is not None and found.source == str(source) and not target.exists()
        if is_left:
            target.discard()
        if known is not None:
            with source.memory(write=True) as tx:
                thaw(tx)
        state: Literal["undone", "none"] = "none" if known is None and not is_left else "undone"
        return MoveReport("" if known is None else known.id, str(source), str(target), state, True, {})


def _read_source(source: MovePlace) -> Move | None:
    if not source.exists():
        return None
    with source.memory() as tx:
        return read_move(tx)


def _read_target(target: MovePlace) -> Move | None:
    """Return the move that filled a target, or is filling it; None otherwise."""
    if not target.exists() and not target.is_begun():
        return None
    with target.memory() if target.exists() else target.filling() as tx:
        value = tx.execute(select(meta.c.value).where(meta.c.name == MOVED_FROM)).scalar()
    return None if value is None else msgspec.json.decode(value, type=Move)


def _check(source: MovePlace, target: MovePlace, known: Move | None, found: Move | None) -> Move:
    """Return the move to start or resume. Raise TransferError if two memories would be mixed."""
    if known is not None and found is not None and known.id == found.id:
        return known
    if target.exists():
        raise TransferError(f"{target} already contains a memory", hint="Choose an empty one; nothing was changed")
    if known is None and found is not None and found.source == str(source):
        return found  # interrupted before the source was frozen
    if target.is_begun():
        whose = "another move" if found is None else f"a move from {found.source}"
        raise TransferError(
            f"{target} contains the unfinished copy of {whose}",
            hint="Resume it with `hermes memory migrate` and that FROM, or remove it with --undo; nothing was changed",
        )
    if known is not None and (known.target != str(target) or known.state == "moved"):
        told = "is being moved" if known.state == "moving" else "was moved"
        raise TransferError(
            f"{source} {told} to {known.target}",
            hint="To make it writable again, run `hermes memory migrate` with that TO and --undo; nothing was changed",
        )
    return known or Move(secrets.token_hex(8), str(source), str(target))


def _freeze(source: MovePlace, begun: Move) -> None:
    """Freeze the source. Retry if open transactions that hold tables are in the way."""
    for tries_left in reversed(range(FREEZE_ATTEMPTS)):
        try:
            with source.memory(write=True) as tx:
                freeze(tx, begun)
            return
        except StoreBusyError:
            if not tries_left:
                raise


def _begin(target: MovePlace, begun: Move) -> None:
    """Create the memory to fill. If the target is refused, the source is unchanged."""
    with target.filling() as tx:
        target.begin(tx)
        upsert(tx, meta, ("name",), {"name": MOVED_FROM, "value": msgspec.json.encode(begun).decode()})


def _fill(source: MovePlace, target: MovePlace, tell: Tell) -> None:
    with source.memory() as tx:
        totals = {table.name: _count(tx, table) for table in DATA}
    for table in DATA:
        while _copy_chunk(source, target, table, totals[table.name], tell):
            pass
    for table in DATA:
        _compare(source, target, table, totals[table.name], tell)
    _finish(source, target)


def _copy_chunk(source: MovePlace, target: MovePlace, table: Table, total: int, tell: Tell) -> bool:
    """Copy one chunk of rows. Return False if no row is left."""
    with target.filling() as into:
        done = _read_progress(into, table)
        with source.memory() as tx:
            rows = tx.execute(_after(table, done.key).limit(CHUNK_ROWS)).all()
        if not rows:
            return False
        target.insert(into, table, rows)
        if table is messages:
            _index_words(into, rows)
        done.key, done.rows = _key(table, rows[-1]), done.rows + len(rows)
        _write_progress(into, table, done)
    tell("copied", table.name, done.rows, total)
    return True


def _index_words(into: Tx, rows: Sequence[Any]) -> None:
    for (workspace_id, session_id), own in groupby(rows, key=lambda row: (row.workspace_id, row.session_id)):
        given = [(row.id, row.peer_id, row.content) for row in own]
        text_index(into).add(into, workspace_id, session_id, given)


def _compare(source: MovePlace, target: MovePlace, table: Table, total: int, tell: Tell) -> None:
    """Compare all rows of both sides. After an interruption it starts over, since rows may have changed since."""
    key, rows = None, 0
    while True:
        query = _after(table, key).limit(CHUNK_ROWS)
        with source.memory() as tx:
            wanted = tx.execute(query).all()
        with target.filling() as into:
            found = into.execute(query).all()
        for one, other in zip_longest(wanted, found):
            if one is None or other is None or tuple(one) != tuple(other):
                raise _differs(source, target, table, one, other)
        if not wanted:
            return
        key, rows = _key(table, wanted[-1]), rows + len(wanted)
        tell("compared", table.name, rows, total)


def _differs(source: MovePlace, target: MovePlace, table: Table, one: Any, other: Any) -> TransferError:
    key, other_key = (None if row is None else _key(table, row) for row in (one, other))
    how = f"is not the same in {source} and {target}"
    if key != other_key:
        is_lost = other_key is None or (key is not None and key < other_key)
        how = f"is missing in {target if is_lost else source}"
        key = key if is_lost else other_key
    names = ", ".join(f"{column.name} {value}" for column, value in zip(table.primary_key, key or (), strict=True))
    return TransferError(
        f"a row of {table.name} ({names}) {how}: it was changed during the move",
        hint="Use --undo, then begin again; the source has every row, and nobody serves the target",
    )


def _finish(source: MovePlace, target: MovePlace) -> None:
    """Copy the rows of `meta`, the tombstone key and the id counters, and check the text index."""
    own = meta.c.name.not_in(NOT_CARRIED), ~_is_progress()
    with source.memory() as tx:
        said = {row.name: row.value for row in tx.execute(select(meta).where(*own))}
        last, key = source.last_ids(tx), source.read_key(tx)
    with target.filling() as into:
        for name, value in said.items():
            upsert(into, meta, ("name",), {"name": name, "value": value})
        if {row.name: row.value for row in into.execute(select(meta).where(*own))} != said:
            raise TransferError(f"the properties of {source} and {target} differ", hint="Use --undo")
        target.keep_ids(into, last)
        if key is not None:
            target.keep_key(into, key)
        if text_index(into).mend(into):
            raise TransferError(f"the text index in {target} is incomplete", hint="Use --undo, then begin again")


def _is_progress() -> ColumnElement[bool]:
    return meta.c.name.startswith(PROGRESS, autoescape=True)


def _after(table: Table, key: Sequence[Any] | None) -> Select[Any]:
    """Select the rows after a key, in key order."""
    columns = list(table.primary_key)
    query = select(table).order_by(*columns)
    if key is None:
        return query
    given = [literal(value, column.type) for value, column in zip(key, columns, strict=True)]
    return query.where(tuple_(*columns) > tuple_(*given) if len(columns) > 1 else columns[0] > given[0])


def _key(table: Table, row: Any) -> list[Any]:
    return [getattr(row, column.name) for column in table.primary_key]


def _count(tx: Tx, table: Table) -> int:
    return int(tx.execute(select(func.count()).select_from(table)).scalar_one())


def _read_progress(tx: Tx, table: Table) -> MoveProgress:
    value = tx.execute(select(meta.c.value).where(meta.c.name == f"{PROGRESS}{table.name}")).scalar()
    return MoveProgress() if value is None else msgspec.json.decode(value, type=MoveProgress)


def _write_progress(tx: Tx, table: Table, done: MoveProgress) -> None:
    value = msgspec.json.encode(done).decode()
    upsert(tx, meta, ("name",), {"name": f"{PROGRESS}{table.name}", "value": value})
