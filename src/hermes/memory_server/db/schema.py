"""Opening a database: it is created or upgraded once, by the first process that opens it. Its `meta` table records the
format of its rows and the embedder of its vectors."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import insert, inspect, select

from hermes.errors import StoreEmbedderError, StoreMovedError, StoreNewerError, StoreReadOnlyError, UsageError
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.dialects import create_functions, text_index
from hermes.memory_server.db.sqlite import SqliteFile
from hermes.memory_server.db.tables import meta, metadata
from hermes.memory_server.embedder import SHIPPED, Space
from hermes.sqlite.database import Synchronous

if TYPE_CHECKING:
    from hermes.memory_server.db.address import DatabaseAddress
    from hermes.memory_server.db.postgres import PostgresDatabase

log = logging.getLogger(__name__)
FILE = "memory.db"
MOVING_FILE = "memory.db.moving"
"""File that `move_places` fills and then renames."""
HEAD = "0019"
"""The newest migration. A test compares it with the migrations folder."""
INSTALL_POSTGRES = "Run `pip install 'hermes-memory-host[postgres]'`"
FORMAT = "1"
"""Version of the column encodings: vectors as half floats, times as microseconds, metadata as JSON text."""
MIGRATIONS = Path(__file__).parent / "migrations"
VERSION = "SELECT version_num FROM alembic_version"
VERSION_TABLE = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)


def open_for_work(folder: Path, space: Space = SHIPPED) -> SqliteFile:
    """Open a folder for background work. Commits do not wait for the disk: after a power failure a job may run
    again."""
    return open_database(folder, space, synchronous="NORMAL")


def open_database(
    folder: Path,
    space: Space = SHIPPED,
    *,
    synchronous: Synchronous = "FULL",
    read_seconds: float | None = None,
) -> SqliteFile:
    """Open the folder's database, upgraded to the newest schema. Raise StoreEmbedderError if its vectors have another
    space.

    A read that takes longer than `read_seconds` is stopped.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreReadOnlyError(f"cannot create the folder {folder}: {error.strerror}") from error
    path = folder / FILE
    if not path.exists() and (folder / MOVING_FILE).exists():
        raise StoreMovedError(
            f"{folder} is being filled by `hermes memory migrate`", hint="Finish that migration first"
        )

    def prepare(tx: Tx) -> None:
        prepare_memory(tx, str(path), space)

    return SqliteFile(path, synchronous=synchronous, read_seconds=read_seconds, prepare=prepare)


def open_postgres(
    address: DatabaseAddress, space: Space = SHIPPED, *, read_seconds: float | None = None
) -> PostgresDatabase:
    """Open a PostgreSQL database, upgraded to the newest schema. Refuse a database of another program."""
    try:
        from hermes.memory_server.db.postgres import COMMITS, FORGET_WRITERS, PostgresDatabase
        from hermes.memory_server.db.postgres_schema import add_missing_indexes, claim_schema, find_missing_indexes
    except ImportError as error:
        raise UsageError(f"PostgreSQL needs the package psycopg ({error})", hint=INSTALL_POSTGRES) from error

    missing: list[str] = []

    def prepare(tx: Tx) -> bool:
        claim_schema(tx, str(address))
        if prepare_memory(tx, str(address), space, by="+1"):
            return True
        tx.exec_driver_sql(COMMITS)
        tx.exec_driver_sql(FORGET_WRITERS)
        missing[:] = find_missing_indexes(tx)
        return False

    database = PostgresDatabase(address, read_seconds=read_seconds, prepare=prepare)
    if missing:
        add_missing_indexes(address)
    return database


def prepare_memory(tx: Tx, where: str, space: Space = SHIPPED, *, by: str = "head") -> bool:
    """Create a memory, or upgrade it to the newest schema or by the migrations in `by`. Return True if migrations
    remain. Raise StoreEmbedderError if its vectors have another space."""
    if _upgrade(tx, where, space, by):
        return True
    _check_meta(tx, space, where)
    if text_index(tx).mend(tx):
        log.warning("memory server: the text index in %s was incomplete and was rebuilt", where)
    return False


def _create_tables(tx: Tx, space: Space) -> None:
    """Create what all migrations together make of an empty database; a test compares the two."""
    metadata.create_all(tx)
    create_functions(tx)
    text_index(tx).create(tx)
    said = {"format": FORMAT, "embedder": space.embedder, "dimension": str(space.dimension)}
    tx.execute(insert(meta), [{"name": name, "value": value} for name, value in said.items()])
    tx.exec_driver_sql(VERSION_TABLE)
    tx.exec_driver_sql(f"INSERT INTO alembic_version (version_num) VALUES ('{HEAD}')")


def _upgrade(tx: Tx, where: str, space: Space, by: str) -> bool:
    tables = inspect(tx).get_table_names()
    if not tables:
        _create_tables(tx, space)
        return False
    if "alembic_version" in tables and tx.exec_driver_sql(VERSION).scalar() == HEAD:
        return False
    # Importing Alembic takes a tenth of a second and some memory: only files of another version need it.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = tx
    try:
        command.upgrade(config, by)
    except CommandError as error:
        raise StoreNewerError(f"{where} was written by a newer version: {error}") from error
    return bool(tx.exec_driver_sql(VERSION).scalar() != HEAD)


def _check_meta(tx: Tx, space: Space, where: str) -> None:
    """Refuse a format or a vector space that this version would misread."""
    said = {row.name: row.value for row in tx.execute(select(meta.c.name, meta.c.value))}
    if said.get("format") != FORMAT:
        raise StoreNewerError(f"{where} is written in format {said.get('format')}, and we read format {FORMAT}")
    stored = Space(said["embedder"], int(said["dimension"]))
    if stored != space:
        raise StoreEmbedderError(f"{where} holds vectors of {stored}, and the embedder in use is {space}")
