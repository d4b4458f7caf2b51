"""Which model a session was switched to. Without a row the configured one answers."""

from __future__ import annotations

from msgspec import Struct

from hermes.db.engine import Tx

SCHEMA = """
CREATE TABLE hermes_chosen_models (
    session_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    context_length INTEGER
) WITHOUT ROWID
"""


class ChosenModel(Struct, frozen=True):
    """A model by the name that its endpoint has for it. It counts only while that endpoint is the configured one."""

    name: str
    endpoint: str
    context_length: int | None = None
    """Tokens, where the endpoint told."""


def chosen_model(tx: Tx, session_id: str) -> ChosenModel | None:
    """What the session was switched to; None for the configured model."""
    row = tx.execute(
        "SELECT name, endpoint, context_length FROM hermes_chosen_models WHERE session_id = ?", (session_id,)
    ).fetchone()
    return None if row is None else ChosenModel(*row)


def set_chosen_model(tx: Tx, session_id: str, chosen: ChosenModel | None) -> None:
    """Switch the session, in every process from its next turn on; None goes back to the configured model."""
    tx.execute("DELETE FROM hermes_chosen_models WHERE session_id = ?", (session_id,))
    if chosen is not None:
        tx.execute(
            "INSERT INTO hermes_chosen_models VALUES (?, ?, ?, ?)",
            (session_id, chosen.name, chosen.endpoint, chosen.context_length),
        )
