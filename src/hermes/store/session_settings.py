"""Automatic titles: which sessions still need a title, and which are settled.

The model that a person switched a session to. A session without a row uses the configured model.

Cached system prompts: what a session's prompt was built from, so that a change rebuilds it, and the AGENTS.md that
the session began with, which stays in its prompt word for word.
"""

from __future__ import annotations

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.types import Session

AUTO_TITLES_SCHEMA = """
CREATE TABLE hermes_auto_titles (
    session_id TEXT PRIMARY KEY,
    is_due INTEGER NOT NULL,
    since REAL NOT NULL,
    tries INTEGER NOT NULL,
    made_upto INTEGER
) WITHOUT ROWID
"""
"""`made_upto` is the last message that the title summarizes; NULL if a person set the title."""


def is_title_due(tx: Tx, session_id: str) -> bool:
    row = tx.execute("SELECT is_due FROM hermes_auto_titles WHERE session_id = ?", (session_id,)).fetchone()
    return row is not None and bool(row["is_due"])


def mark_title_due(tx: Tx, session: Session, *, now: float) -> None:
    """Queue a session for a title. Sessions that have a title are settled at once; settled sessions stay settled."""
    tx.execute(
        "INSERT INTO hermes_auto_titles VALUES (?, ?, ?, 0, NULL) ON CONFLICT DO NOTHING",
        (session.id, session.title is None, now),
    )


def settle_title(tx: Tx, session_id: str, made_upto: int | None = None) -> None:
    """Mark a session as settled: its title was made from messages up to `made_upto`, or a person set or removed it."""
    tx.execute(
        "INSERT INTO hermes_auto_titles VALUES (?, 0, 0, 0, ?) "
        "ON CONFLICT (session_id) DO UPDATE SET is_due = 0, made_upto = excluded.made_upto",
        (session_id, made_upto),
    )


def unmake_title(tx: Tx, session_id: str, first_id: int, *, now: float) -> bool:
    """Return True, and queue a new title, if the title was made from messages since `first_id`, which were
    retracted."""
    made = "session_id = ? AND is_due = 0 AND made_upto >= ?"
    return bool(
        tx.execute(
            f"UPDATE hermes_auto_titles SET is_due = 1, since = ?, tries = 0, made_upto = NULL WHERE {made}",
            (now, session_id, first_id),
        ).rowcount
    )


def count_title_try(tx: Tx, session_id: str) -> int:
    """Count a failed attempt to make a title and return the number of failed attempts."""
    counted = "UPDATE hermes_auto_titles SET tries = tries + 1 WHERE session_id = ? RETURNING tries"
    row = tx.execute(counted, (session_id,)).fetchone()
    return 0 if row is None else int(row["tries"])


def untitled_sessions(tx: Tx, *, left_before: float, limit: int) -> list[str]:
    """Return sessions that need a title: idle since before `left_before` or failed before. Those with the fewest
    failures come first, then the newest."""
    rows = tx.execute(
        "SELECT session_id FROM hermes_auto_titles WHERE is_due AND (since < ? OR tries > 0) "
        "ORDER BY tries, since DESC LIMIT ?",
        (left_before, limit),
    )
    return [str(row["session_id"]) for row in rows]


CHOSEN_MODELS_SCHEMA = """
CREATE TABLE hermes_chosen_models (
    session_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    context_length INTEGER
) WITHOUT ROWID
"""


class ChosenModel(Struct, frozen=True):
    """A model, by its name at the endpoint. The choice is ignored once another endpoint is configured."""

    name: str
    endpoint: str
    context_length: int | None = None
    """Context length in tokens, if the endpoint reports it."""


def chosen_model(tx: Tx, session_id: str) -> ChosenModel | None:
    """Return the model that the session was switched to, or None for the configured one."""
    row = tx.execute(
        "SELECT name, endpoint, context_length FROM hermes_chosen_models WHERE session_id = ?", (session_id,)
    ).fetchone()
    return None if row is None else ChosenModel(*row)


def set_chosen_model(tx: Tx, session_id: str, chosen: ChosenModel | None) -> None:
    """Switch the session for every process, from its next turn on. None returns to the configured model."""
    tx.execute("DELETE FROM hermes_chosen_models WHERE session_id = ?", (session_id,))
    if chosen is not None:
        tx.execute(
            "INSERT INTO hermes_chosen_models VALUES (?, ?, ?, ?)",
            (session_id, chosen.name, chosen.endpoint, chosen.context_length),
        )


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
