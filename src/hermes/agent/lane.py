"""A session's lane: whoever holds it may speak in the session, one turn after another, over all processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Self

from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.errors import SessionBusyError
from hermes.store.store import Store
from hermes.store.tenure import Claim, Tenure, kept, take

SESSIONS = "session"
"""Whose lanes are sessions. The gateway holds a lane of its inbox around this one: no name of theirs may meet."""

WAITING = "Waiting for another turn of this conversation, in another place."
UNSAID = "Stopped while waiting: this was not said, and is no part of the conversation."


@dataclass(frozen=True, slots=True)
class LaneTerms:
    """Seconds: `ttl` without a sign of life frees a lane; who wants one asks every `poll`, for `patience` at most, and
    the person hears of it after `silence`."""

    ttl: float = 30.0
    poll: float = 0.1
    patience: float = 120.0
    silence: float = 3.0


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane that is held. `check` inside a transaction proves that it still is."""

    session_id: str
    tenure: Tenure

    def check(self, tx: Tx) -> None:
        """Raise StaleError when another process has taken over."""
        self.tenure.check(tx)


class LaneDoor:
    """The way into a session's lane, as a block: what was taken in it is let go at its end."""

    def __init__(self, store: Store, session_id: str, owner: str, terms: LaneTerms) -> None:
        self._store = store
        self._session_id = session_id
        self._terms = terms
        self._claim = _claim(store, session_id, owner, terms)
        self._held = AsyncExitStack()
        self.lane: Lane | None = None
        """What is held; None before `wait` has ended, and when the person stopped it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    async def wait(self, stop: asyncio.Event) -> AsyncGenerator[None, None]:
        """Wait for whoever has the lane, until it is ours or `stop` is set; a step comes when that takes a while, once.

        Raises SessionBusyError when it takes too long.
        """
        begun, told = self._store.clock.now(), False
        while (tenure := await take(self._store, self._claim)) is None:
            if stop.is_set():
                return
            waited = self._store.clock.now() - begun
            if waited >= self._terms.patience:
                raise SessionBusyError(f"session {self._session_id} is being talked to by another process")
            if waited >= self._terms.silence and not told:
                told = True
                yield
            await self._store.clock.sleep(self._terms.poll)
        held = await self._held.enter_async_context(kept(self._store, self._claim, tenure))
        self.lane = Lane(self._session_id, held)


@asynccontextmanager
async def hold_lane(store: Store, session_id: str, owner: str, terms: LaneTerms) -> AsyncIterator[Lane]:
    """Hold the lane of a session; wait for whoever has it, and raise SessionBusyError when that takes too long."""
    async with LaneDoor(store, session_id, owner, terms) as door:
        async for _ in door.wait(asyncio.Event()):
            pass
        assert door.lane is not None, "nobody stops it"
        yield door.lane


def _claim(store: Store, session_id: str, owner: str, terms: LaneTerms) -> Claim:
    def hold(tx: Tx) -> Lease | None:
        return queue.hold_lane(tx, SESSIONS, session_id, owner, ttl=terms.ttl, now=store.clock.now())

    def release(tx: Tx, lease: Lease) -> None:
        queue.release_lane(tx, SESSIONS, session_id, lease)

    return Claim(f"the lane of session {session_id}", hold, release, terms.ttl)
