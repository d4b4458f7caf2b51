"""A store in an empty home, with its log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.logs import start_log
from hermes.store.store import Store
from tests.compression.checks import Line, read_lines

ReadLog = Callable[[], list[Line]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "state.db", clock=SystemClock(), lock_timeout=10.0) as opened:
        yield opened


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    """The log of this process, written for the duration of a test."""
    path = tmp_path / "logs" / "agent.log"
    start_log(path)
    return path


@pytest.fixture
def read_log(log_file: Path) -> ReadLog:
    return lambda: read_lines(log_file.read_text(encoding="utf-8"))
