"""Statements that turn a file of the newest version back into one of an earlier version."""

from __future__ import annotations

BEFORE_TRUTH = (
    *(f"DROP TABLE {name}" for name in ("oauth_clients", "sign_ins", "grants", "grant_tokens")),
    "DROP TABLE claims",
    "DROP TABLE supersessions",
    "DROP TABLE tombstones",
    "DROP INDEX conclusions_superseded",
    "DROP INDEX conclusions_retired",
    *(
        f"ALTER TABLE conclusions DROP COLUMN {name}"
        for name in ("happened_at", "learnt_at", "valid_until", "superseded_by", "retired_at", "retired_why")
    ),
    "ALTER TABLE conclusions ADD COLUMN message_ids TEXT",
    "UPDATE conclusions SET message_ids = (SELECT json_group_array(message_id) FROM conclusion_messages "
    "WHERE conclusion_id = conclusions.id)",
)
"""Turn version 13 back into version 12."""
