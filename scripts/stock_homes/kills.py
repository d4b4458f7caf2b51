"""Where the process of a home was killed, as its own files tell."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.stock_homes.recipes import Recipe

NEVER = "never"
IN_COMPRESSION = "in a compression"
LINE = re.compile(r"context compression (started|done)")


def where_killed(home: Path, recipe: Recipe) -> str:
    """The step, or on which side of a compression's end; NEVER where a kill was wanted and did not come."""
    note = home / "stock.killed"
    if recipe.kill is not None:
        return note.read_text(encoding="utf-8") if note.exists() else NEVER
    if recipe.delay is None:
        return "-"
    lines = LINE.findall((home / "logs" / "agent.log").read_text(encoding="utf-8", errors="replace"))
    if not lines:
        return NEVER
    return IN_COMPRESSION if "done" not in lines else "after a compression"
