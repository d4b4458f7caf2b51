"""Only one module distinguishes databases; tables and statements also work on PostgreSQL."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from hermes.memory_server import engine
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import metadata

ROOM = Path(engine.__file__).parent.parent
POSTGRES: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
SQLITE: Dialect = sqlite.dialect()
SQLITE_WORDS = re.compile(
    r"\bMATCH\b|PRAGMA|INSERT OR|AUTOINCREMENT"
    r"|(?i:sqlite|fts5|json_each|json_extract|rowid|group_concat|total_changes|exec_driver_sql|dbapi)"
)
PARTIAL = {
    "memberships_active": "CREATE UNIQUE INDEX memberships_active ON memberships (session_id, peer_id) "
    "WHERE left_seq IS NULL",
    "memberships_observing": "CREATE INDEX memberships_observing ON memberships (session_id) "
    "WHERE left_seq IS NULL AND observe_others",
    "conclusions_live": "CREATE INDEX conclusions_live ON conclusions (collection_id, id) WHERE deleted_at IS NULL",
    "conclusions_frequent": "CREATE INDEX conclusions_frequent ON conclusions (collection_id, times_derived, id) "
    "WHERE deleted_at IS NULL",
    "conclusions_by_workspace": "CREATE INDEX conclusions_by_workspace ON conclusions (workspace_id, id) "
    "WHERE deleted_at IS NULL",
    "conclusions_drawn": "CREATE INDEX conclusions_drawn ON conclusions (collection_id) WHERE source_ids IS NOT NULL",
    "conclusions_standing": "CREATE INDEX conclusions_standing ON conclusions (collection_id, standing, id) "
    "WHERE standing IS NOT NULL",
    "conclusions_superseded": "CREATE INDEX conclusions_superseded ON conclusions (superseded_by) "
    "WHERE superseded_by IS NOT NULL",
    "conclusions_retired": "CREATE INDEX conclusions_retired ON conclusions (workspace_id, id) "
    "WHERE retired_at IS NOT NULL",
    "jobs_open_by_kind": "CREATE INDEX jobs_open_by_kind ON jobs (kind, id) WHERE state IN ('pending', 'running')",
    "jobs_open_by_unit": "CREATE INDEX jobs_open_by_unit ON jobs (unit, id) WHERE state IN ('pending', 'running')",
    "answers_of_clones": "CREATE INDEX answers_of_clones ON answers (workspace_id, answer) WHERE route = 'clone'",
    "jobs_finished": "CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL",
}
INDEXES = {str(index.name): index for table in metadata.sorted_tables for index in table.indexes}
LOCKS = {"workspaces.LOCK", "sessions.LOCK", "conclusions.LOCK_PAIR"}
"""Statements before a write that depends on a read: they lock the rows that were read."""


def in_postgres(element: CreateIndex | CreateTable) -> str:
    return " ".join(str(element.compile(dialect=POSTGRES)).split())


@pytest.mark.parametrize(
    "path", sorted(p for p in ROOM.rglob("*.py") if "db" not in p.relative_to(ROOM).parts), ids=str
)
def test_nothing_outside_its_room_knows_which_database_it_is(path: Path) -> None:
    assert SQLITE_WORDS.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", [*PARTIAL])
def test_partial_index_is_partial_on_postgres(name: str) -> None:
    assert in_postgres(CreateIndex(INDEXES[name])) == PARTIAL[name]


def test_every_partial_index_is_one_on_both_databases() -> None:
    partial = [
        {name for name, index in INDEXES.items() if " WHERE " in str(CreateIndex(index).compile(dialect=dialect))}
        for dialect in (SQLITE, POSTGRES)
    ]
    assert partial == [{*PARTIAL}, {*PARTIAL}]


def test_whole_numbers_have_64_bits_on_postgres() -> None:
    kinds = {column.type.compile(POSTGRES) for table in metadata.sorted_tables for column in table.c}
    assert kinds == {"BIGINT", "TEXT", "BOOLEAN", "BYTEA"}


def test_times_are_64_bits_in_the_words_of_postgres() -> None:
    made = in_postgres(CreateTable(metadata.tables["messages"]))
    assert "created_at BIGINT NOT NULL" in made
    assert "id BIGSERIAL NOT NULL" in made


def prepared() -> dict[str, PreparedStatement]:
    """Return every prepared statement of the engine."""
    modules = [importlib.import_module(f"{engine.__name__}.{m.name}") for m in pkgutil.iter_modules(engine.__path__)]
    found = {
        f"{module.__name__.rpartition('.')[2]}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, PreparedStatement)
    }
    assert len(found) > 30
    return found


@pytest.mark.parametrize("name", sorted(prepared()))
def test_statement_of_the_engine_compiles_for_postgres(name: str) -> None:
    assert prepared()[name].text_for(POSTGRES)


def test_what_is_read_to_be_written_is_locked() -> None:
    locking = {name for name, statement in prepared().items() if "FOR NO KEY UPDATE" in statement.text_for(POSTGRES)}
    assert locking >= LOCKS


def test_job_is_claimed_past_those_that_another_worker_is_claiming() -> None:
    assert "FOR UPDATE SKIP LOCKED" in prepared()["jobs.CLAIM"].text_for(POSTGRES)
