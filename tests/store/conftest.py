"""A store in an empty folder, and a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes.store.store import Store
from tests.store.still_clock import StillClock


@pytest.fixture
def clock() -> StillClock:
    return StillClock(10_000.0)


@pytest.fixture
async def store(tmp_path: Path, clock: StillClock) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "state.db", clock=clock, lock_timeout=10) as opened:
        yield opened
