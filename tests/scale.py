"""How much of a heavy suite runs: a seeded sample, or with HERMES_STRESS=1 the full counts."""

from __future__ import annotations

import os


def scale(sample: int, full: int) -> int:
    """`full` under `make stress`, else `sample`."""
    return full if os.environ.get("HERMES_STRESS") == "1" else sample
