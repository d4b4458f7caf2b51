"""Every test of Honcho has a user's folder of its own: nothing reads the person's files or variables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.honcho.plugin import HonchoPlugin
from tests.honcho.configuring import Machine
from tests.honcho.writing import make_writer

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


@pytest.fixture
async def writer(machine: Machine) -> AsyncIterator[Callable[..., HonchoPlugin]]:
    """Makes plugins that write to a server (`make_writer`) and closes them."""
    made: list[HonchoPlugin] = []

    def make(url: str, *given: Any, **configuration: Any) -> HonchoPlugin:
        made.append(make_writer(machine, url, *given, **configuration))
        return made[-1]

    yield make
    for plugin in made:
        await plugin.shutdown(0.0)
