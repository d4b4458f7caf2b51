"""What this server offers beyond the official API; `/health` names it, so that clients know what to ask for."""

from __future__ import annotations

EXTENSIONS: tuple[str, ...] = (
    "idempotency",
    "delete_peer",
    "delete_messages",
    "edit_conclusion",
    "provenance",
    "merge_peers",
    "export",
    "import",
    "search_scores",
    "narrow_answers",
    "both_views",
)
"""A name for each; a name keeps its meaning for good."""
