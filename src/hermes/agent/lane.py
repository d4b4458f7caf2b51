"""A session's lane: whoever holds it may speak in the session, one turn after another, over all processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, Self, TypeVar

from msgspec import Struct

from hermes.db import lanes
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.errors import SessionBusyError
from hermes.store.held_lease import HeldLease, WantedLease, kept, take
from hermes.store.session_leases import SESSIONS
from hermes.store.store import Store

T = TypeVar("T")
WAITING = "Waiting for another turn of this conversation, in another place."
UNSAID = "Stopped while waiting: this was not said, and is no part of the conversation."


class LaneTerms(Struct, frozen=True):
    """Times in seconds. A lane is free again `ttl` after its holder's last sign of life. Whoever waits for it asks
    every `poll`, gives up after `patience`, and tells the person after `silence` that it waits."""

    ttl: float = 30.0
    poll: float = 0.1
    patience: float = 120.0
    silence: float = 3.0


class Lane(Struct, frozen=True):
    """A lane that is held. `check` inside a transaction proves that it still is."""

    session_id: str
    held: HeldLease

    def check(self, tx: Tx) -> None:
        """Raise StaleError when another process has taken over."""
        self.held.check(tx)

    async def write_last(self, store: Store, run: Callable[[Tx], T]) -> T:
        """Run `run` and let the lane go in one transaction. Raises StaleError when another process has taken over."""

        def write(tx: Tx) -> T:
            self.check(tx)
            written = run(tx)
            lanes.release_lane(tx, SESSIONS, self.session_id, self.held.lease)
            return written

        written = await store.write(write)
        self.held.is_over = True
        return written


class Entered(Struct, Generic[T], frozen=True):
    """A lane that was taken, and what the first step in it gave."""

    lane: Lane
    begun: T


class LaneDoor(Generic[T]):
    """An `async with` block that waits for a session's lane, and lets it go at the end of the block.

    `begin` runs in the transaction that takes the lane. When it raises, the lane is not taken.
    """

    def __init__(self, store: Store, session_id: str, owner: str, terms: LaneTerms, begin: Callable[[Tx], T]) -> None:
        self._store = store
        self._session_id = session_id
        self._terms = terms
        self._begun: list[T] = []
        self._wanted = _wanted_lane(store, session_id, owner, terms, lambda tx: self._begun.append(begin(tx)))
        self._held = AsyncExitStack()
        self.entered: Entered[T] | None = None
        """None before `wait` has ended, and when the person stopped it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    async def wait(self, stop: asyncio.Event) -> AsyncGenerator[None, None]:
        """Wait until the lane is ours (`entered` is set) or `stop` is set.

        Yields once, after `silence` seconds, so that the caller can tell the person that it waits. Raises
        SessionBusyError when it takes longer than `patience`.
        """
        since, told = self._store.clock.now(), False
        while (held := await take(self._store, self._wanted)) is None:
            if stop.is_set():
                return
            waited = self._store.clock.now() - since
            if waited >= self._terms.patience:
                raise SessionBusyError(f"session {self._session_id} is being talked to by another process")
            if waited >= self._terms.silence and not told:
                told = True
                yield
            await self._store.clock.sleep(self._terms.poll)
        await self._held.enter_async_context(kept(self._store, self._wanted, held))
        self.entered = Entered(Lane(self._session_id, held), self._begun[-1])


@asynccontextmanager
async def hold_lane(store: Store, session_id: str, owner: str, terms: LaneTerms) -> AsyncIterator[Lane]:
    """Hold the lane of a session; wait for whoever has it, and raise SessionBusyError when that takes too long."""
    async with LaneDoor(store, session_id, owner, terms, _do_nothing) as door:
        async for _ in door.wait(asyncio.Event()):
            pass
        assert door.entered is not None, "nobody stops it"
        yield door.entered.lane


def _do_nothing(_: Tx) -> None:
    pass


def _wanted_lane(
    store: Store, session_id: str, owner: str, terms: LaneTerms, begin: Callable[[Tx], None]
) -> WantedLease:
    def hold(tx: Tx) -> Lease | None:
        lease = lanes.hold_lane(tx, SESSIONS, session_id, owner, ttl=terms.ttl, now=store.clock.now())
        if lease is not None:
            begin(tx)
        return lease

    def release(tx: Tx, lease: Lease) -> None:
        lanes.release_lane(tx, SESSIONS, session_id, lease)

    return WantedLease(f"the lane of session {session_id}", hold, release, terms.ttl)
