"""The model that a person switched a session to. A session without a row uses the configured model."""

from __future__ import annotations

from msgspec import Struct

from hermes.db.engine import Tx

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
