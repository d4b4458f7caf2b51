"""What the tests of the audit look at: findings, files, backups."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from hermes.types import Json
from tests.conftest import Ran


def findings(ran: Ran) -> list[Json]:
    """What a doctor has to say against conversations."""
    return [finding for finding in json.loads(ran.out)["findings"] if finding["level"] == "fail"]


def bytes_of(home: Path) -> dict[str, bytes]:
    """The store's files and what is in them."""
    return {path.name: path.read_bytes() for path in home.glob("state.db*")}


def backups(home: Path) -> list[Path]:
    """The backups that repairs have made, oldest first."""
    return sorted(home.glob("state.db.backup-*"))


def check_sound(path: Path) -> None:
    """SQLite finds nothing wrong with a file."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
