"""Storage for test memories: a folder, or a PostgreSQL database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from sqlalchemy import create_engine, event

from hermes.memory_server.db.address import DatabaseAddress
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.postgres import PostgresDatabase
from hermes.memory_server.db.schema import FILE, open_database, open_postgres
from hermes.memory_server.db.sqlite import register_functions
from tests.postgres import Postgres

POSTGRES_MODULES = ("routes", "search", "jobs", "filters", "metrics")
"""Test modules that `make test` also runs on PostgreSQL. `make postgres` runs all that use a `Storage`."""
FOLDER_MODULES = ("model", "model_limits", "parts")
"""Test modules that need a folder, or settings in one."""
FILE_TESTS = frozenset(
    {
        "test_database_holds_no_token_or_code_as_text",
        "test_job_that_fails_midway_leaves_no_rows_and_is_kept_with_its_reason",
        "test_deleted_workspace_answers_to_no_name_while_its_removal_waits",
        "test_copy_of_a_session_is_found_by_its_words_and_its_meaning",
        "test_conclusions_are_found_by_what_they_were_drawn_from",
        "test_every_part_carries_what_was_sent_with_the_file",
        "test_replay_of_a_merge_whose_peer_was_deleted_is_no_merge",
    }
)
"""Tests that inspect the file."""


def is_on_both(module: str, test: str) -> bool:
    """Return True if a test also runs on PostgreSQL."""
    is_wanted = os.environ.get("HERMES_POSTGRES") == "1" or module.rpartition(".test_")[2] in POSTGRES_MODULES
    return is_wanted and test not in FILE_TESTS and module.rpartition(".test_")[2] not in FOLDER_MODULES


class Storage(Protocol):
    """Creates new memories of one kind."""

    def options(self) -> tuple[str, ...]:
        """Return the options of `hermes memory serve` for a new memory, besides a folder."""

    def open(self, folder: Path) -> Database:
        """Return a new open memory."""

    def remove(self, closed: Database) -> None:
        """Remove a memory that was opened here."""


class FolderStorage:
    """Memories in SQLite files."""

    def options(self) -> tuple[str, ...]:
        return ()

    def open(self, folder: Path) -> Database:
        return open_database(folder)

    def remove(self, closed: Database) -> None:
        """Leave it: the folder is removed with those of other tests."""


class PostgresStorage:
    """Memories in databases of one PostgreSQL server."""

    def __init__(self, server: Postgres) -> None:
        self._server = server

    def options(self) -> tuple[str, ...]:
        return ("--database", self._server.create())

    def open(self, folder: Path) -> Database:
        return open_postgres(DatabaseAddress.parse(self._server.create(), "test"))

    def remove(self, closed: Database) -> None:
        assert isinstance(closed, PostgresDatabase)
        self._server.drop(str(closed.address.url.database))


@contextmanager
def transaction(folder: Path) -> Iterator[Tx]:
    """Yield a transaction in the folder's file; it is never committed."""
    engine = create_engine(f"sqlite:///{folder / FILE}", isolation_level="AUTOCOMMIT")
    event.listen(engine, "connect", lambda raw, _record: register_functions(raw))
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        yield connection
    engine.dispose()
