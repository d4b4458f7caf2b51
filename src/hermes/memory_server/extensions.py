"""What this server offers beyond the official API; `/health` names it, so that clients know what to ask for."""

from __future__ import annotations

EXTENSIONS: tuple[str, ...] = ()
"""A name for each; a name keeps its meaning for good."""
