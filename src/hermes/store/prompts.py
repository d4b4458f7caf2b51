"""What a session's kept system prompt was made of: when that changes, the prompt is made anew. The AGENTS.md that a
session began with is kept word for word: its prompt holds it for as long as there is one."""

from __future__ import annotations

from msgspec import Struct

from hermes.db.engine import Tx

SCHEMA = """
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
    """What the kept prompt was made of; None when another program made it, or a version that did not say."""
    row = tx.execute("SELECT made_of FROM hermes_prompts WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else str(row["made_of"])


def set_prompt_made_of(tx: Tx, session_id: str, made_of: str) -> None:
    tx.execute(
        "INSERT INTO hermes_prompts VALUES (?, ?) ON CONFLICT (session_id) DO UPDATE SET made_of = excluded.made_of",
        (session_id, made_of),
    )


class KeptProjectFile(Struct, frozen=True):
    """Where the file stood, and what it said."""

    path: str
    text: str


def project_file_of(tx: Tx, session_id: str) -> KeptProjectFile | None:
    """What the session began with; None for most."""
    row = tx.execute("SELECT path, text FROM hermes_project_files WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else KeptProjectFile(row["path"], row["text"])


def keep_project_file(tx: Tx, session_id: str, kept: KeptProjectFile) -> None:
    tx.execute("INSERT INTO hermes_project_files VALUES (?, ?, ?)", (session_id, kept.path, kept.text))
