"""What a session's kept system prompt was made of: when that changes, the prompt is made anew."""

from __future__ import annotations

from hermes.db.engine import Tx

SCHEMA = """
CREATE TABLE hermes_prompts (
    session_id TEXT PRIMARY KEY,
    made_of TEXT NOT NULL
) WITHOUT ROWID
"""


def prompt_made_of(tx: Tx, session_id: str) -> str | None:
    """What the kept prompt was made of; None when another program made it, or a version that did not say."""
    row = tx.execute("SELECT made_of FROM hermes_prompts WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else str(row["made_of"])


def set_prompt_made_of(tx: Tx, session_id: str, made_of: str) -> None:
    """Keep what the prompt was made of."""
    tx.execute(
        "INSERT INTO hermes_prompts VALUES (?, ?) ON CONFLICT (session_id) DO UPDATE SET made_of = excluded.made_of",
        (session_id, made_of),
    )
