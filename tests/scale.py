"""How much a heavy test does: a seeded sample, or the full counts."""

from __future__ import annotations

import os


def scale(sample: int, full: int) -> int:
    """`full` when HERMES_STRESS=1, else `sample`."""
    return full if os.environ.get("HERMES_STRESS") == "1" else sample
