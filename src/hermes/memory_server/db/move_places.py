"""The two ends of a move: a folder and a PostgreSQL database. A source is read. A target is filled under another name,
which nobody serves, and renamed when it is complete."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Table, delete, select

from hermes.errors import StoreBusyError, StoreError, TransferError
from hermes.memory_server.db.address import DatabaseAddress
from hermes.memory_server.db.catching_up import catch_up, has_caught_up
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.schema import FILE, MOVING_FILE, open_database, open_postgres, prepare_memory
from hermes.memory_server.db.sqlite import FILE as KEY_FILE
from hermes.memory_server.db.sqlite import create_file_engine
from hermes.memory_server.db.statements import PreparedStatement, inserting, upsert
from hermes.memory_server.db.tables import meta, metadata
from hermes.sqlite.connection import translated

CATCH_UP_BATCH_ROWS = 1000
"""Messages of an earlier version that one transaction upgrades."""
LOCK_SECONDS = 30
RELEASE_SECONDS = 5.0
"""How long PostgreSQL may take to notice that a migration was killed, and to release its lock."""
MAX_CONNECTIONS = 4
KEY_ROWS = ("tombstone_inner", "tombstone_outer")
"""Rows of `meta` that hold the tombstone key in PostgreSQL."""
INNER, OUTER, BLOCK_BYTES = 0x36, 0x5C, 64
"""Constants of HMAC with SHA-256."""
PROGRESS = "move:"
"""Prefix of the rows of `meta` that record the progress of a move."""
DEFERRED_DDL = f"{PROGRESS}again"
"""Row of `meta` with the statements that create indexes and references once all rows are copied."""
INDEXES = """
SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) FROM pg_index AS i
JOIN pg_class AS c ON c.oid = i.indexrelid WHERE c.relnamespace = '{0}'::regnamespace
AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = i.indexrelid)
"""
REFERENCES = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = '{0}'::regnamespace AND contype = 'f'
"""


class MovePlace(Protocol):
    """One end of a move. Its string form is for people and contains no password."""

    def locked(self) -> AbstractContextManager[None]:
        """Lock this end, so that only one migration works on it."""

    def exists(self) -> bool:
        """Return True if it holds a complete memory, which servers may use."""

    def is_begun(self) -> bool:
        """Return True if it holds a partly filled memory."""

    def upgrade(self) -> None:
        """Upgrade the memory to the newest schema before it is read."""

    def memory(self, *, write: bool = False) -> AbstractContextManager[Tx]:
        """Open a transaction in the memory; it commits at the end of the block."""

    def filling(self) -> AbstractContextManager[Tx]:
        """Open a transaction in the memory that is being filled; it commits at the end of the block."""

    def begin(self, tx: Tx) -> None:
        """Create an empty memory, in a transaction of `filling`."""

    def insert(self, tx: Tx, table: Table, rows: Sequence[Any]) -> None:
        """Insert rows that do not exist yet."""

    def last_ids(self, tx: Tx) -> dict[str, int]:
        """Return the last id that each table has assigned."""

    def keep_ids(self, tx: Tx, last: dict[str, int]) -> None:
        """Ensure that none of the ids assigned at the source is assigned again."""

    def read_key(self, tx: Tx) -> bytes | None:
        """Return the tombstone key; None if there never was one."""

    def keep_key(self, tx: Tx, key: bytes) -> None:
        """Store the tombstone key."""

    def publish(self) -> None:
        """Make the filled memory the memory of this place."""

    def discard(self) -> None:
        """Remove the partly filled memory."""

    def close(self) -> None:
        """Close the connections."""


class FolderPlace:
    """A folder with a SQLite file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._file, self._moving = self._folder / FILE, self._folder / MOVING_FILE
        self._opened: dict[Path, Connection] = {}

    def __str__(self) -> str:
        return f"the folder {self._folder}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(f"{self._moving}.lock", timeout=0):
                yield
        except Timeout as error:
            raise StoreBusyError(f"another `hermes memory migrate` is running on {self}", hint="Wait for it") from error

    def exists(self) -> bool:
        return self._file.exists()

    def is_begun(self) -> bool:
        if not self._moving.exists():
            return False
        with self.filling() as tx:
            return tx.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'meta'").first() is not None

    def upgrade(self) -> None:
        asyncio.run(_upgrade(open_database(self._folder)))

    @contextmanager
    def memory(self, *, write: bool = False) -> Iterator[Tx]:
        with self._transaction(self._file, write=write) as tx:
            yield tx

    @contextmanager
    def filling(self) -> Iterator[Tx]:
        with self._transaction(self._moving, write=True) as tx:
            yield tx

    def begin(self, tx: Tx) -> None:
        prepare_memory(tx, str(self))

    def insert(self, tx: Tx, table: Table, rows: Sequence[Any]) -> None:
        PreparedStatement(inserting(table)).run_many(tx, [row._mapping for row in rows])

    def last_ids(self, tx: Tx) -> dict[str, int]:
        rows = tx.exec_driver_sql("SELECT name, seq FROM sqlite_sequence").all()
        return {row.name: row.seq for row in rows}

    def keep_ids(self, tx: Tx, last: dict[str, int]) -> None:
        newest = self.last_ids(tx)
        for table in metadata.tables.values():
            given = max(newest.get(table.name, 0), last.get(table.name, 0))
            if given and table.dialect_options["sqlite"]["autoincrement"]:
                tx.exec_driver_sql("DELETE FROM sqlite_sequence WHERE name = ?", (table.name,))
                tx.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table.name, given))

    def read_key(self, tx: Tx) -> bytes | None:  # noqa: ARG002
        path = self._folder / KEY_FILE
        return path.read_bytes() if path.exists() else None

    def keep_key(self, tx: Tx, key: bytes) -> None:  # noqa: ARG002
        made = self._folder / f"{KEY_FILE}.new"
        made.unlink(missing_ok=True)
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        made.replace(self._folder / KEY_FILE)

    def publish(self) -> None:
        self.close()
        with sqlite3.connect(self._moving) as connection:  # closing the last connection removes the write-ahead log
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        try:
            os.link(self._moving, self._file)
        except FileExistsError:
            raise TransferError(
                f"a {FILE} was created in {self} during the move", hint="Move it away and run this again"
            ) from None
        self._moving.unlink()

    def discard(self) -> None:
        self.close()
        for end in ("", "-wal", "-shm", "-journal"):
            self._moving.with_name(f"{self._moving.name}{end}").unlink(missing_ok=True)

    def close(self) -> None:
        for connection in self._opened.values():
            connection.close()
        self._opened.clear()

    @contextmanager
    def _transaction(self, path: Path, *, write: bool) -> Iterator[Tx]:
        if (tx := self._opened.get(path)) is None:
            if path == self._moving:
                path.touch(0o600)
            tx = self._opened[path] = create_file_engine(path).connect()
            tx.exec_driver_sql(f"PRAGMA busy_timeout = {LOCK_SECONDS * 1000}")
            if path == self._moving:
                tx.exec_driver_sql("PRAGMA journal_mode = WAL")
        with translated(path):
            tx.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield tx
                tx.exec_driver_sql("COMMIT")
            except BaseException:
                tx.connection.rollback()
                raise


async def _upgrade(opened: Database) -> None:
    """Finish the upgrade of an earlier version, as far as the text index needs it."""
    while not await opened.read(has_caught_up):
        await opened.write(lambda tx: catch_up(tx, CATCH_UP_BATCH_ROWS))
    await opened.close()


class PostgresPlace:
    """A PostgreSQL database. Its memory is the schema `hermes_memory`; another schema is filled and then renamed."""

    def __init__(self, address: DatabaseAddress) -> None:
        from psycopg import Cursor

        from hermes.memory_server.db import postgres, postgres_faults, postgres_schema

        self._faults, self._schema = postgres_faults, postgres_schema
        self.address = address
        self._plain_cursor: Callable[[Tx], Cursor[Any]] = lambda tx: Cursor(postgres.driver_of(tx))
        """Returns a cursor that accepts several statements at once."""
        self._schemas = (postgres.SCHEMA, postgres_schema.MOVING)
        self._engine = postgres.create_postgres_engine(address, MAX_CONNECTIONS)

    def __str__(self) -> str:
        return f"the {self.address}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold an advisory lock on one connection. If the server restarts, the lock is lost and the migration fails."""
        with self._translated(), self._engine.connect() as connection:
            query = f"SELECT pg_try_advisory_lock({self._schema.MOVE_LOCK})"
            until = time.monotonic() + RELEASE_SECONDS
            while not connection.exec_driver_sql(query).scalar_one():
                if time.monotonic() < until:
                    time.sleep(RELEASE_SECONDS / 50)
                    continue
                raise StoreBusyError(f"another `hermes memory migrate` is running on {self}", hint="Wait for it")
            try:
                yield
            finally:
                connection.invalidate()

    def exists(self) -> bool:
        return self._count_tables(self._schemas[0]) > 0

    def is_begun(self) -> bool:
        return self._count_tables(self._schemas[1]) > 0

    def upgrade(self) -> None:
        asyncio.run(_upgrade(open_postgres(self.address)))

    @contextmanager
    def memory(self, *, write: bool = False) -> Iterator[Tx]:
        with self._transaction(self._schemas[0], write=write) as tx:
            yield tx

    @contextmanager
    def filling(self) -> Iterator[Tx]:
        with self._transaction(self._schemas[1], write=True) as tx:
            yield tx

    def begin(self, tx: Tx) -> None:
        """Create the memory without its indexes and foreign keys, which are faster to create at the end."""
        self._schema.check_server(tx, str(self))
        tx.exec_driver_sql(f"CREATE SCHEMA {self._schemas[1]}")
        prepare_memory(tx, str(self))
        again: list[str] = []
        for name, definition in self._list(tx, INDEXES):
            tx.exec_driver_sql(f"DROP INDEX {name}")
            again.append(definition)
        for table, name, definition in self._list(tx, REFERENCES):
            tx.exec_driver_sql(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
            again.append(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition} NOT VALID")
        upsert(tx, meta, ("name",), {"name": DEFERRED_DDL, "value": json.dumps(again)})

    def insert(self, tx: Tx, table: Table, rows: Sequence[Any]) -> None:
        names = ", ".join(column.name for column in table.columns)
        with self._plain_cursor(tx).copy(f"COPY {table.name} ({names}) FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def last_ids(self, tx: Tx) -> dict[str, int]:
        query = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = current_schema()"
        found = tx.exec_driver_sql(query).all()
        return {name.removesuffix("_id_seq"): last for name, last in found if last is not None}

    def keep_ids(self, tx: Tx, last: dict[str, int]) -> None:
        sequences = tx.exec_driver_sql("SELECT sequencename FROM pg_sequences WHERE schemaname = current_schema()")
        for sequence in sequences.scalars().all():
            name = sequence.removesuffix("_id_seq")
            newest = tx.exec_driver_sql(f"SELECT max(id) FROM {name}").scalar() or 0
            if given := max(newest, last.get(name, 0)):
                tx.exec_driver_sql(f"SELECT setval('{sequence}', {given})")

    def read_key(self, tx: Tx) -> bytes | None:
        inner = tx.execute(select(meta.c.value).where(meta.c.name == KEY_ROWS[0])).scalar_one()
        return bytes(byte ^ INNER for byte in bytes.fromhex(inner))

    def keep_key(self, tx: Tx, key: bytes) -> None:
        block = key.ljust(BLOCK_BYTES, b"\0")
        for name, pad in zip(KEY_ROWS, (INNER, OUTER), strict=True):
            upsert(tx, meta, ("name",), {"name": name, "value": bytes(byte ^ pad for byte in block).hex()})

    def publish(self) -> None:
        memory, filled = self._schemas
        with self.filling() as tx:
            self._schema.check_server(tx, str(self))
            if self.exists():
                raise TransferError(
                    f"a memory was created in {self} during the move", hint=f"Drop its schema {memory}, run this again"
                )
            again = tx.execute(select(meta.c.value).where(meta.c.name == DEFERRED_DDL)).scalar_one()
            for statement in json.loads(again):
                self._plain_cursor(tx).execute(statement.encode())
            tx.execute(delete(meta).where(meta.c.name == DEFERRED_DDL))
            tx.exec_driver_sql(f"DROP SCHEMA IF EXISTS {memory}")
            tx.exec_driver_sql(f"ALTER SCHEMA {filled} RENAME TO {memory}")
        self._check_references()

    def discard(self) -> None:
        with self._transaction("public", write=True) as tx:
            tx.exec_driver_sql(f"DROP SCHEMA IF EXISTS {self._schemas[1]} CASCADE")

    def close(self) -> None:
        self._engine.dispose()

    def _check_references(self) -> None:
        """Validate the foreign keys. One that rows of the file violate stays unvalidated."""
        with self.memory() as tx:
            references = self._list(tx, REFERENCES.format(self._schemas[0]))
        for table, name, _ in references:
            try:
                with self.memory(write=True) as tx:
                    tx.exec_driver_sql(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")
            except StoreError:
                continue

    def _list(self, tx: Tx, query: str) -> list[Any]:
        return list(tx.exec_driver_sql(query.format(self._schemas[1])).all())

    def _count_tables(self, schema: str) -> int:
        query = f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'"
        with self._transaction("public") as tx:
            return int(tx.exec_driver_sql(query).scalar_one())

    @contextmanager
    def _transaction(self, schema: str, *, write: bool = False) -> Iterator[Tx]:
        mode = "READ COMMITTED READ WRITE" if write else "REPEATABLE READ READ ONLY"
        with self._translated(), self._engine.connect() as tx:
            begin = f"BEGIN ISOLATION LEVEL {mode}; SET LOCAL search_path = {schema}"
            self._plain_cursor(tx).execute(f"{begin}; SET LOCAL lock_timeout = '{LOCK_SECONDS}s'".encode())
            try:
                yield tx
                self._plain_cursor(tx).execute("COMMIT")
            except BaseException:
                tx.invalidate()
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._faults.DATABASE_ERRORS as error:
            raise self._faults.translate(error, str(self.address)) from None  # the driver's text may quote the address
