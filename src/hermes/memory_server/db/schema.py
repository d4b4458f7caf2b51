"""Opening a data folder: the file is made or brought up to date, once, whoever comes first. It says how its rows are
written and which embedder made its vectors."""

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
"""What `move_places` fills and then renames."""
HEAD = "0019"
"""The newest migration; a test holds it against the folder."""
INSTALL_POSTGRES = "Run `pip install 'hermes-memory-host[postgres]'`"
FORMAT = "1"
"""What columns hold beyond their types: vectors as half floats, times as microseconds, metadata as JSON text."""
MIGRATIONS = Path(__file__).parent / "migrations"
VERSION = "SELECT version_num FROM alembic_version"
VERSION_TABLE = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)


def open_for_work(folder: Path, space: Space = SHIPPED) -> SqliteFile:
    """As `open_database`, for background work. It does not wait for the disk: after a power cut a job may run again."""
    return open_database(folder, space, synchronous="NORMAL")


def open_database(
    folder: Path,
    space: Space = SHIPPED,
    *,
    synchronous: Synchronous = "FULL",
    read_seconds: float | None = None,
) -> SqliteFile:
    """The folder's database, at the newest schema, ready to use. Refused when its vectors are of another space.

    A read that takes longer than `read_seconds` is stopped.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreReadOnlyError(f"{folder} cannot be made a folder: {error.strerror}") from error
    path = folder / FILE
    if not path.exists() and (folder / MOVING_FILE).exists():
        raise StoreMovedError(f"{folder} is being filled by `hermes memory migrate`", hint="Run that to its end first")

    def prepare(tx: Tx) -> None:
        prepare_memory(tx, str(path), space)

    return SqliteFile(path, synchronous=synchronous, read_seconds=read_seconds, prepare=prepare)


def open_postgres(
    address: DatabaseAddress, space: Space = SHIPPED, *, read_seconds: float | None = None
) -> PostgresDatabase:
    """As `open_database`, of a PostgreSQL database. Refused when it is another program's."""
    try:
        from hermes.memory_server.db.postgres import PostgresDatabase
        from hermes.memory_server.db.postgres_schema import add_missing_indexes, claim_schema, find_missing_indexes
    except ImportError as error:
        raise UsageError(f"PostgreSQL needs the package psycopg ({error})", hint=INSTALL_POSTGRES) from error

    missing: list[str] = []

    def prepare(tx: Tx) -> bool:
        claim_schema(tx, str(address))
        if prepare_memory(tx, str(address), space, by="+1"):
            return True
        missing[:] = find_missing_indexes(tx)
        return False

    database = PostgresDatabase(address, read_seconds=read_seconds, prepare=prepare)
    if missing:
        add_missing_indexes(address)
    return database


def prepare_memory(tx: Tx, where: str, space: Space = SHIPPED, *, by: str = "head") -> bool:
    """Make a memory, or bring it to the newest schema, or `by` some migrations nearer to it. Returns True if there is
    more to do. Refused when its vectors are of another space."""
    if _upgrade(tx, where, space, by):
        return True
    _check_meta(tx, space, where)
    if text_index(tx).mend(tx):
        log.warning("memory server: the index of words in %s was not whole and was made again", where)
    return False


def _create_tables(tx: Tx, space: Space) -> None:
    """What all migrations make of an empty database; a test holds the two against each other."""
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
    # Alembic costs a tenth of a second and some memory: only a file of another version pays.
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
    """Refuse a folder that we would misread: vectors of two embedders cannot be compared."""
    said = {row.name: row.value for row in tx.execute(select(meta.c.name, meta.c.value))}
    if said.get("format") != FORMAT:
        raise StoreNewerError(f"{where} is written in format {said.get('format')}, and we read format {FORMAT}")
    stored = Space(said["embedder"], int(said["dimension"]))
    if stored != space:
        raise StoreEmbedderError(f"{where} holds vectors of {stored}, and the embedder in use is {space}")
