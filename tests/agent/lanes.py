"""Holding a session's lane, as a turn in another process does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hermes.db.engine import Tx
from hermes.store.held_lease import Lane, LaneDoor, LaneOptions
from hermes.store.store import Store


@asynccontextmanager
async def hold_lane(store: Store, session_id: str, owner: str, terms: LaneOptions) -> AsyncIterator[Lane]:
    """Hold the lane of a session. Waits for its holder; raises SessionBusyError after a timeout."""
    async with LaneDoor(store, session_id, owner, terms, _do_nothing) as door:
        async for _ in door.wait(asyncio.Event()):
            pass
        assert door.entered is not None, "nobody stops it"
        yield door.entered.lane


def _do_nothing(_: Tx, __: float) -> None:
    pass
