"""Size of the heavy tests: a seeded sample, or the full counts with HERMES_STRESS=1."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FULL = os.environ.get("HERMES_STRESS") == "1"


def scale(sample: int, full: int) -> int:
    """Return `full` under `make stress`, else `sample`."""
    return full if FULL else sample


def load_profile() -> None:
    """Set the number of examples of a property; a sample is the same in every run. Examples have no deadline, since
    their speed depends on what else the machine does."""
    settings.register_profile(
        "hermes",
        max_examples=scale(30, 1_000),
        derandomize=not FULL,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("hermes")
