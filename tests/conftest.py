"""Every test gets a home of its own; nothing touches the person's."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from hermes.cli.main import run
from hermes.clock import SystemClock
from hermes.store.store import Store

# Hundreds of tests start a process: without compiled code each would compile all of ours first.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command line printed and ended with."""

    code: int
    out: str
    err: str


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home that HERMES_HOME points to."""
    path = tmp_path / "home"
    monkeypatch.setenv("HERMES_HOME", str(path))
    for name in ("HERMES_LOCK_TIMEOUT", "HERMES_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def hermes(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command line in this process: `hermes("sessions", "list")`."""

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest_asyncio.fixture
async def store(home: Path) -> AsyncIterator[Store]:
    """An open, empty store in the home."""
    home.mkdir(parents=True)
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as opened:
        yield opened
