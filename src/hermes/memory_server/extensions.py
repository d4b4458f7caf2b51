"""What this server can do beyond the Honcho API, by name. `/health` tells it, so that clients need not guess."""

from __future__ import annotations

EXTENSIONS = (
    "idempotency",
    "delete_peer",
    "delete_messages",
    "edit_conclusion",
    "provenance",
    "export",
    "import",
)
