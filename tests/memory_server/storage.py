"""Where a memory is kept in tests: a folder, or a database of PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from sqlalchemy import create_engine, event

from hermes.memory_server.db.address import DatabaseAddress
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.functions import register_functions
from hermes.memory_server.db.schema import FILE, open_database, open_postgres
from tests.postgres import Postgres

ON_BOTH = ("routes", "search", "jobs", "filters", "metrics")
"""The files of tests that `make test` runs on PostgreSQL too. `make postgres` runs all that use a `Storage`."""
FOLDER_MODULES = ("model", "model_limits", "parts")
"""Files of tests that are about a folder, or whose settings are in it."""
OF_FILES = frozenset(
    {
        "test_database_holds_no_token_or_code_as_text",
        "test_job_that_fails_in_the_middle_leaves_nothing_and_is_kept_with_its_reason",
        "test_deleted_workspace_answers_to_no_name_while_its_removal_waits",
        "test_copy_of_a_session_is_found_by_its_words_and_its_meaning",
        "test_conclusions_are_found_by_what_they_were_drawn_from",
        "test_every_part_carries_what_was_sent_with_the_file",
        "test_replay_of_a_merge_whose_peer_was_deleted_is_no_merge",
    }
)
"""Tests that look into the file."""


def is_on_both(module: str, test: str) -> bool:
    """Return whether a test runs on PostgreSQL too."""
    is_wanted = os.environ.get("HERMES_POSTGRES") == "1" or module.rpartition(".test_")[2] in ON_BOTH
    return is_wanted and test not in OF_FILES and module.rpartition(".test_")[2] not in FOLDER_MODULES


class Storage(Protocol):
    """Makes new memories of one kind."""

    def options(self) -> tuple[str, ...]:
        """Return what `hermes memory serve` is given for a new memory, beside a folder."""

    def open(self, folder: Path) -> Database:
        """Return a new open memory."""


class FolderStorage:
    """Memories in SQLite files."""

    def options(self) -> tuple[str, ...]:
        return ()

    def open(self, folder: Path) -> Database:
        return open_database(folder)


class PostgresStorage:
    """Memories in databases of one PostgreSQL."""

    def __init__(self, server: Postgres) -> None:
        self._server = server

    def options(self) -> tuple[str, ...]:
        return ("--database", self._server.create())

    def open(self, folder: Path) -> Database:
        return open_postgres(DatabaseAddress.parse(self._server.create(), "test"))


@contextmanager
def transaction(folder: Path) -> Iterator[Tx]:
    """A transaction in the folder's file; nothing of it is kept."""
    engine = create_engine(f"sqlite:///{folder / FILE}", isolation_level="AUTOCOMMIT")
    event.listen(engine, "connect", lambda raw, _record: register_functions(raw))
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        yield connection
    engine.dispose()
