"""Homes that contain sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hermes.clock import SystemClock
from hermes.db import leases
from hermes.db.engine import Tx
from hermes.store.ids import snapshot_id
from hermes.store.inbox import LEASE
from hermes.store.store import Store
from hermes.types import Compression, Draft

T = TypeVar("T")


def fill(home: Path, *texts: str, title: str | None = None, session_id: str | None = None) -> str:
    """Store a session with `texts`, alternately by user and assistant; return its id."""

    async def work() -> str:
        home.mkdir(parents=True, exist_ok=True)
        async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
            session = await store.create_session("cli", title=title, session_id=session_id)
            for place, text in enumerate(texts):
                await store.append(session.id, Draft("assistant" if place % 2 else "user", text))
            return session.id

    return asyncio.run(work())


def write_into(home: Path, work: Callable[[Store, Tx], T]) -> T:
    """Write into the store of a home."""

    async def write() -> T:
        async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
            return await store.write(lambda tx: work(store, tx))

    home.mkdir(parents=True, exist_ok=True)
    return asyncio.run(write())


def compress(home: Path, session_id: str, *, epoch: int = 1) -> str:
    """Summarise all but the last message; returns the snapshot's id."""

    async def work() -> str:
        async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
            messages = await store.read(lambda tx: list(store.messages.history(tx, session_id)))
            name = snapshot_id(session_id, store.clock.now())
            row = Compression(
                session_id, epoch, messages[-2].id, messages[-1].id, (), "they spoke of stamps", name, 1.0
            )
            await store.write(lambda tx: store.compressions.commit(tx, row))
            return name

    return asyncio.run(work())


def hold_gateway(home: Path) -> None:
    """Have a gateway run in this home."""

    async def hold() -> None:
        async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
            now = store.clock.now()
            await store.write(lambda tx: leases.acquire(tx, LEASE, "someone", ttl=600, now=now))

    asyncio.run(hold())
