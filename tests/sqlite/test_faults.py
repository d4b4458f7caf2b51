"""The table of faults: every SQLite result code has a decided error, the same for both databases."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from hermes.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreStoppedError,
)
from hermes.sqlite.connection import FAULTS, is_busy, translate
from tests.sqlite.databases import OPEN, Tx

KINDS: dict[str, type[StoreError]] = {
    "BUSY": StoreBusyError,
    "LOCKED": StoreBusyError,
    "PROTOCOL": StoreBusyError,
    "FULL": StoreFullError,
    "IOERR": StoreFullError,
    "INTERRUPT": StoreStoppedError,
    "NOLFS": StoreFullError,
    "READONLY": StoreReadOnlyError,
    "PERM": StoreReadOnlyError,
    "CANTOPEN": StoreReadOnlyError,
    "CORRUPT": StoreDamagedError,
    "NOTADB": StoreDamagedError,
}
"""Faults that a person can meet."""

OURS = {"ERROR", "INTERNAL", "CONSTRAINT", "MISMATCH", "MISUSE", "RANGE", "TOOBIG", "SCHEMA"}
"""Our own mistakes: reported as a plain StoreError with SQLite's message."""

NEVER = {"ABORT", "NOTFOUND", "EMPTY", "AUTH", "FORMAT", "NOTICE", "WARNING", "NOMEM"}
"""Codes that need a feature we do not use (an authorizer), that SQLite does not return, or that Python raises as
MemoryError."""

DECIDED = {*KINDS, *OURS, *NEVER}

NO_FAULT = re.compile(
    "OK|ROW|DONE"  # results that are no failure
    "|(CREATE|DROP|LIMIT|DBCONFIG)_.*|ALTER_TABLE|ANALYZE|ATTACH|DELETE|DENY|DETACH|FUNCTION|IGNORE|INSERT|PRAGMA|READ"
    "|RECURSIVE|REINDEX|SAVEPOINT|SELECT|TRANSACTION|UPDATE"  # what an authorizer is asked, limits, switches
)


def fault(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("what SQLite said")
    error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{name}")
    error.sqlite_errorname = f"SQLITE_{name}"
    return error


def primary_names() -> set[str]:
    """Return the names of all primary result codes that this Python knows."""
    names = {name.removeprefix("SQLITE_") for name in dir(sqlite3) if name.startswith("SQLITE_")}
    return {name for name in names if not NO_FAULT.fullmatch(name) and getattr(sqlite3, f"SQLITE_{name}") <= 0xFF}


def test_every_primary_code_that_sqlite_knows_is_decided() -> None:
    assert primary_names() == DECIDED
    assert len(DECIDED) == len(KINDS) + len(OURS) + len(NEVER), "none is decided twice"


def test_table_holds_exactly_the_faults_that_people_can_meet() -> None:
    assert {code for code in FAULTS if code <= 0xFF} == {getattr(sqlite3, f"SQLITE_{name}") for name in KINDS}


@pytest.mark.parametrize("database", [*OPEN])
async def test_both_databases_map_every_code_in_every_operation(tmp_path: Path, database: str) -> None:
    db = OPEN[database](tmp_path / "e.db", 1.0)
    for name in sorted(DECIDED):

        def fail(_tx: Tx, name: str = name) -> None:
            raise fault(name)

        for door in (db.write, db.look, db.read):
            with pytest.raises(StoreError) as caught:
                await door(fail)
            assert type(caught.value) is KINDS.get(name, StoreError), name
            assert str(db.path) in caught.value.line()
    await db.close()


@pytest.mark.parametrize("name", sorted(DECIDED))
def test_every_fault_reads_as_one_line_with_the_file_in_it(name: str) -> None:
    error = translate(fault(name), Path("/somewhere/state.db"))
    assert "/somewhere/state.db" in error.line()
    assert "\n" not in error.line()
    assert error.hint


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("BUSY_SNAPSHOT", StoreBusyError),
        ("BUSY_RECOVERY", StoreBusyError),
        ("IOERR_WRITE", StoreFullError),
        ("IOERR_FSYNC", StoreFullError),
        ("IOERR_READ", StoreDamagedError),
        ("IOERR_SHORT_READ", StoreDamagedError),
        ("IOERR_CORRUPTFS", StoreDamagedError),
        ("IOERR_DATA", StoreDamagedError),
        ("CORRUPT_INDEX", StoreDamagedError),
    ],
)
def test_extended_code_finds_its_kind(name: str, kind: type[StoreError]) -> None:
    assert type(translate(fault(name), Path("state.db"))) is kind


def test_only_a_lock_of_another_process_is_worth_another_try() -> None:
    assert {name for name in DECIDED if is_busy(fault(name))} == {"BUSY", "PROTOCOL"}
    assert is_busy(fault("BUSY_RECOVERY"))


def test_error_without_a_code_is_a_store_error() -> None:
    assert type(translate(sqlite3.ProgrammingError("Cannot operate"), Path("state.db"))) is StoreError
