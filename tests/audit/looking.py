"""Helpers of the audit's tests: findings, files, backups."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from hermes.types import Json
from tests.conftest import Ran


def findings(ran: Ran) -> list[Json]:
    """Return the doctor's findings about conversations."""
    return [finding for finding in json.loads(ran.out)["findings"] if finding["level"] == "fail"]


def bytes_of(home: Path) -> dict[str, bytes]:
    """Return the store's files with their content."""
    return {path.name: path.read_bytes() for path in home.glob("state.db*")}


def backups(home: Path) -> list[Path]:
    """Return the backups of repairs, oldest first."""
    return sorted(home.glob("state.db.backup-*"))


def check_sound(path: Path) -> None:
    """Check that SQLite finds a file sound."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
