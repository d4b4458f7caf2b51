"""The table of faults is complete."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hermes.db.faults import FAULTS, translate
from hermes.errors import StoreBusyError, StoreDamagedError, StoreError, StoreFullError

OURS = {"ERROR", "INTERNAL", "CONSTRAINT", "MISMATCH", "MISUSE", "RANGE", "TOOBIG", "SCHEMA"}
"""Our own mistakes: reported as a plain StoreError with SQLite's words."""

NEVER = {"ABORT", "INTERRUPT", "NOTFOUND", "EMPTY", "AUTH", "FORMAT", "NOTICE", "WARNING", "NOMEM"}
"""Need something we never do (interrupt, authorizer), are not returned by SQLite, or are MemoryError in Python."""


MAPPED = {"BUSY", "LOCKED", "PROTOCOL", "FULL", "IOERR", "NOLFS", "READONLY", "PERM", "CANTOPEN", "CORRUPT", "NOTADB"}
"""What a person can meet."""

PRIMARY_CODES = {*range(1, 27), sqlite3.SQLITE_NOTICE, sqlite3.SQLITE_WARNING}


def fault(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("what SQLite said")
    error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{name}")
    return error


def codes(names: set[str]) -> set[int]:
    return {getattr(sqlite3, f"SQLITE_{name}") for name in names}


def test_every_code_that_can_reach_a_person_is_mapped() -> None:
    assert codes(MAPPED | OURS | NEVER) == PRIMARY_CODES
    assert {code for code in FAULTS if code <= 0xFF} == codes(MAPPED)


@pytest.mark.parametrize("name", sorted(MAPPED | OURS | NEVER))
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
        ("CORRUPT_INDEX", StoreDamagedError),
    ],
)
def test_extended_code_finds_its_kind(name: str, kind: type[StoreError]) -> None:
    assert type(translate(fault(name), Path("state.db"))) is kind


def test_error_without_a_code_is_a_store_error() -> None:
    assert type(translate(sqlite3.ProgrammingError("Cannot operate"), Path("state.db"))) is StoreError
