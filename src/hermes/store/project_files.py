"""The AGENTS.md that a session began with, word for word: the session's prompt holds it for as long as there is one."""

from __future__ import annotations

from msgspec import Struct

from hermes.db.engine import Tx

SCHEMA = """
CREATE TABLE hermes_project_files (
    session_id TEXT PRIMARY KEY,
    path TEXT NOT NULL,
    text TEXT NOT NULL
) WITHOUT ROWID
"""


class KeptProjectFile(Struct, frozen=True):
    """Where the file stood, and what it said."""

    path: str
    text: str


def project_file_of(tx: Tx, session_id: str) -> KeptProjectFile | None:
    """What the session began with; None for most."""
    row = tx.execute("SELECT path, text FROM hermes_project_files WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else KeptProjectFile(row["path"], row["text"])


def keep_project_file(tx: Tx, session_id: str, kept: KeptProjectFile) -> None:
    """A session begins with this file."""
    tx.execute("INSERT INTO hermes_project_files VALUES (?, ?, ?)", (session_id, kept.path, kept.text))
