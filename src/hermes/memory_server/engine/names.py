"""Names that clients choose for workspaces, peers, sessions and scopes."""

from __future__ import annotations

from hermes.memory_server import limits
from hermes.memory_server.faults import Invalid


def check_name(name: str) -> None:
    """Refuse a name that nothing can have."""
    good = 0 < len(name) <= limits.NAME_LENGTH and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    if not good:
        raise Invalid(f"'{name[:80]}' cannot be a name: use 1 to {limits.NAME_LENGTH} letters, digits, '_' and '-'")
