"""The schema `hermes_memory` of a PostgreSQL database: checks before its use, and the SQL functions that queries
need."""

from __future__ import annotations

import logging
import secrets
import time
from pathlib import Path

from sqlalchemy import Text, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn, CreateIndex
from sqlalchemy.sql.compiler import DDLCompiler

from hermes.errors import StoreError, StoreMovedError
from hermes.memory_server.db.address import DatabaseAddress
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.postgres import SCHEMA, create_postgres_engine
from hermes.memory_server.db.postgres_faults import DATABASE_ERRORS, find_remedy, translate
from hermes.memory_server.db.tables import meta, metadata

log = logging.getLogger(__name__)
MOVING = f"{SCHEMA}_moving"
"""Schema that `move_places` fills and then renames."""
FUNCTIONS = Path(__file__).with_name("postgres_functions.sql")
SCHEMA_LOCK_KEY = 7_402_118_553
"""Advisory lock held while the schema is created or upgraded."""
LOCK_MILLISECONDS = 2_000
"""How long a statement of a migration waits for a table lock: all other statements queue behind it."""
SCHEMA_POLL_SECONDS = 0.5
VALID_INDEXES = (
    "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
    "WHERE relnamespace = current_schema()::regnamespace AND indisvalid"
)
MOVE_LOCK, INDEX_LOCK = SCHEMA_LOCK_KEY + 10, SCHEMA_LOCK_KEY + 11
"""Locks that one connection holds: while a memory is moved, and while missing indexes are created."""
HONCHO = ("active_queue_sessions", "peers", "workspaces")
"""Tables that occur together only in the database of Honcho's server."""
FIND_HONCHO = """
SELECT table_schema FROM information_schema.tables WHERE table_name IN ('{}') AND table_schema <> '{}'
GROUP BY table_schema HAVING count(DISTINCT table_name) = {}
""".format("', '".join(HONCHO), SCHEMA, len(HONCHO))
OLDEST_VERSION = 140000
EXTENSION, OLDEST_PGVECTOR = "vector", (0, 8)
INSTALL_PGVECTOR = (
    "Install pgvector 0.8 or newer where PostgreSQL runs (the package postgresql-17-pgvector, or the image "
    "pgvector/pgvector), and have an administrator run `CREATE EXTENSION vector` in this database"
)
UPDATE_PGVECTOR = "Install pgvector 0.8 or newer where PostgreSQL runs, and run `ALTER EXTENSION vector UPDATE`"
FOLDINGS = ("und-x-icu", "pg_unicode_fast", "pg_c_utf8", "C.utf8", "default")
"""Collations whose lower() works for every script, the best first; the last one depends on the database."""
BLOCK_BYTES, INNER, OUTER = 64, 0x36, 0x5C
"""Constants of HMAC with SHA-256."""


@compiles(CreateColumn, "postgresql")
def _create_column(creating: CreateColumn, compiler: DDLCompiler, **options: object) -> str:
    """Compare texts by bytes, as SQLite does, whatever the locale of the database."""
    made = str(compiler.visit_create_column(creating, **options))  # type: ignore[no-untyped-call]
    if isinstance(creating.element.type, Text):
        return made.replace(" TEXT", ' TEXT COLLATE "C"', 1)
    return made


def claim_schema(tx: Tx, where: str) -> None:
    """Create the schema if it is missing, and lock it until the transaction ends. Refuse Honcho's database, and one
    that `hermes memory migrate` is filling."""
    check_server(tx, where)
    if tx.exec_driver_sql(f"SELECT 1 FROM pg_namespace WHERE nspname = '{MOVING}'").first() is not None:
        raise StoreMovedError(f"{where} is being filled by `hermes memory migrate`", hint="Finish that migration first")
    tx.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")


def check_server(tx: Tx, where: str) -> None:
    """Lock the schema until the transaction ends. Refuse an unsuitable server, and Honcho's database."""
    tx.exec_driver_sql("SET LOCAL lock_timeout = 0")  # the process that holds the lock may have much to do
    tx.exec_driver_sql(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK_KEY})")
    version = int(tx.exec_driver_sql("SHOW server_version_num").scalar_one())
    if version < OLDEST_VERSION:
        raise StoreError(f"{where} is PostgreSQL {version // 10000}", hint="Version 14 or newer is needed")
    encoding = tx.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise StoreError(f"{where} has the encoding {encoding}", hint="Create a database with ENCODING 'UTF8'")
    found = tx.exec_driver_sql(FIND_HONCHO).scalar()
    if found is not None:
        raise StoreError(
            f"{where} holds the tables of Honcho's own server (schema {found}: {', '.join(HONCHO)})",
            hint="Create a separate database for this server; nothing was changed",
        )
    _claim_pgvector(tx, where)
    tx.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_MILLISECONDS}")


def _claim_pgvector(tx: Tx, where: str) -> None:
    """Install pgvector in this database if it is missing. Raise StoreError if it is unavailable or too old."""
    installed = tx.exec_driver_sql(f"SELECT extversion FROM pg_extension WHERE extname = '{EXTENSION}'").scalar()
    if installed is None:
        try:
            tx.exec_driver_sql(f"CREATE EXTENSION {EXTENSION} WITH SCHEMA public")
        except DBAPIError as error:
            if find_remedy(error) != "none":
                raise
            raise StoreError(f"{where} has no pgvector: {error.orig}", hint=INSTALL_PGVECTOR) from None
    elif tuple(int(part) for part in str(installed).split(".")[:2]) < OLDEST_PGVECTOR:
        raise StoreError(f"{where} has pgvector {installed}", hint=UPDATE_PGVECTOR)


def find_missing_indexes(tx: Tx) -> list[str]:
    """Return the names of indexes that are missing or invalid."""
    valid = {*tx.exec_driver_sql(VALID_INDEXES).scalars()}
    return [str(index.name) for table in metadata.sorted_tables for index in table.indexes if index.name not in valid]


def add_missing_indexes(address: DatabaseAddress) -> None:
    """Create the indexes that migrations added, without blocking writes. One process creates them, others wait for
    it."""
    named = {str(index.name): index for table in metadata.sorted_tables for index in table.indexes}
    engine = create_postgres_engine(address, 1)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"SET search_path = {SCHEMA}")
            # Polled, because CONCURRENTLY would wait for a process that waits for a lock in the database.
            while not connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({INDEX_LOCK})").scalar_one():
                time.sleep(SCHEMA_POLL_SECONDS)
            for name in find_missing_indexes(connection):
                log.info("memory server: creating the index %s in the %s", name, address)
                connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
                made = str(CreateIndex(named[name]).compile(dialect=engine.dialect))
                connection.exec_driver_sql(made.replace("INDEX", "INDEX CONCURRENTLY", 1))
    except DATABASE_ERRORS as error:
        raise translate(error, str(address)) from None  # the driver's own text may quote the address
    finally:
        engine.dispose()


def create_postgres_functions(tx: Tx) -> None:
    """Create the SQL functions of a new schema, and the key that `keyed_hash` uses."""
    known = {*tx.exec_driver_sql("SELECT collname FROM pg_collation").scalars()}
    folding = next(f'"{name}"' for name in FOLDINGS if name in known)
    for statement in FUNCTIONS.read_text(encoding="utf-8").replace("{folding}", folding).split("--;\n"):
        tx.exec_driver_sql(statement)
    key = secrets.token_bytes(BLOCK_BYTES)
    halves = {"tombstone_inner": INNER, "tombstone_outer": OUTER}
    rows = [{"name": name, "value": bytes(byte ^ pad for byte in key).hex()} for name, pad in halves.items()]
    tx.execute(insert(meta), rows)
