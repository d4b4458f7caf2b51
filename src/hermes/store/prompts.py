"""Cached system prompts: what a session's prompt was built from, so that a change rebuilds it, and the AGENTS.md that
the session began with, which stays in its prompt word for word."""

from __future__ import annotations

from msgspec import Struct

from hermes.db.engine import Tx

PROMPTS_SCHEMA = """
CREATE TABLE hermes_prompts (
    session_id TEXT PRIMARY KEY,
    made_of TEXT NOT NULL
) WITHOUT ROWID
"""

PROJECT_FILES = """
CREATE TABLE hermes_project_files (
    session_id TEXT PRIMARY KEY,
    path TEXT NOT NULL,
    text TEXT NOT NULL
) WITHOUT ROWID
"""


def prompt_made_of(tx: Tx, session_id: str) -> str | None:
    """Return the fingerprint of what the stored prompt was built from; None if another program or an older version
    built it."""
    row = tx.execute("SELECT made_of FROM hermes_prompts WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else str(row["made_of"])


def set_prompt_made_of(tx: Tx, session_id: str, made_of: str) -> None:
    tx.execute(
        "INSERT INTO hermes_prompts VALUES (?, ?) ON CONFLICT (session_id) DO UPDATE SET made_of = excluded.made_of",
        (session_id, made_of),
    )


class KeptProjectFile(Struct, frozen=True):
    """Path and text of a project's AGENTS.md."""

    path: str
    text: str


def project_file_of(tx: Tx, session_id: str) -> KeptProjectFile | None:
    """Return the project file that the session began with, or None."""
    row = tx.execute("SELECT path, text FROM hermes_project_files WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else KeptProjectFile(row["path"], row["text"])


def keep_project_file(tx: Tx, session_id: str, kept: KeptProjectFile) -> None:
    tx.execute("INSERT INTO hermes_project_files VALUES (?, ?, ?)", (session_id, kept.path, kept.text))
