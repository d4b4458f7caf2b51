"""How much of a heavy suite runs: a seeded sample, or with HERMES_STRESS=1 the full counts."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FULL = os.environ.get("HERMES_STRESS") == "1"


def scale(sample: int, full: int) -> int:
    """`full` under `make stress`, else `sample`."""
    return full if FULL else sample


def load_profile() -> None:
    """Properties are tried with so many examples; a sample is the same one in every run. No example has a deadline:
    how fast it is depends on what else the machine does."""
    settings.register_profile(
        "hermes",
        max_examples=scale(30, 1_000),
        derandomize=not FULL,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("hermes")
