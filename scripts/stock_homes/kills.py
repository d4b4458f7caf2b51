"""Determines where a home's process was killed, from its files."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.stock_homes.recipes import Recipe

NEVER = "never"
IN_COMPRESSION = "in a compression"
LINE = re.compile(r"context compression (started|done)")


def where_killed(home: Path, recipe: Recipe) -> str:
    """Return the step, or the side of a compression's end; NEVER if a requested kill did not happen."""
    note = home / "stock.killed"
    if recipe.kill is not None:
        return note.read_text(encoding="utf-8") if note.exists() else NEVER
    if recipe.delay is None:
        return "-"
    lines = LINE.findall((home / "logs" / "agent.log").read_text(encoding="utf-8", errors="replace"))
    if not lines:
        return NEVER
    return IN_COMPRESSION if "done" not in lines else "after a compression"
