"""Opening a data folder: the file is made or brought up to date, once, whoever comes first."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import inspect

from hermes.errors import StoreNewerError, StoreReadOnlyError
from hermes.memory_server.db.engine import Database, Tx
from hermes.memory_server.db.tables import MESSAGE_INDEX, MESSAGE_TEXTS, metadata
from hermes.sqlite.database import Synchronous

FILE = "memory.db"
HEAD = "0001"
"""The newest migration; a test holds it against the folder."""
MIGRATIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)


def open_for_work(folder: Path) -> Database:
    """As `open_database`, for background work: what a power cut undoes waits again, so none needs to reach the disk."""
    return open_database(folder, synchronous="NORMAL")


def open_database(folder: Path, *, lock_timeout: float = 30.0, synchronous: Synchronous = "FULL") -> Database:
    """The folder's database, at the newest schema, ready to use."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreReadOnlyError(f"{folder} cannot be made a folder: {error.strerror}") from error
    path = folder / FILE
    return Database(path, lock_timeout=lock_timeout, synchronous=synchronous, prepare=lambda tx: _upgrade(tx, path))


def version_of(tx: Tx) -> str | None:
    """The migration that the file is at; None for an empty one."""
    if not inspect(tx).has_table("alembic_version"):
        return None
    row = tx.exec_driver_sql("SELECT version_num FROM alembic_version").first()
    return None if row is None else str(row[0])


def _create(tx: Tx) -> None:
    """What all migrations make of an empty file; a test holds the two against each other."""
    metadata.create_all(tx)
    tx.exec_driver_sql(MESSAGE_TEXTS)
    tx.exec_driver_sql(MESSAGE_INDEX)
    tx.exec_driver_sql(VERSION_TABLE)
    tx.exec_driver_sql("INSERT INTO alembic_version (version_num) VALUES (?)", (HEAD,))


def _upgrade(tx: Tx, path: Path) -> None:
    version = version_of(tx)
    if version == HEAD:
        return
    if version is None and not inspect(tx).get_table_names():
        _create(tx)
        return
    # Alembic costs a tenth of a second and some memory: only a file of another version pays.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = tx
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StoreNewerError(f"{path} was written by a newer version: {error}") from error
