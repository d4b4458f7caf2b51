"""Every test of Honcho has a user's folder of its own: nothing reads the person's files or variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.honcho.configuring import Machine

VARIABLES = ("HONCHO_API_KEY", "HONCHO_BASE_URL", "HONCHO_ENVIRONMENT", "HERMES_HONCHO_HOST")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A user's folder, which HOME points to."""
    made = Machine(tmp_path / "ann")
    made.folder.mkdir()
    monkeypatch.setenv("HOME", str(made.folder))
    monkeypatch.setenv("LOGNAME", "ann")
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return made
