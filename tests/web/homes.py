"""Homes with sessions of the owner, guests and groups, written before the page is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.db.queue import enqueue
from hermes.memory.outbox import queue_name
from hermes.store.store import Store
from hermes.types import Draft, Json, Session

SECRET = "xylophone"
NOW = 1_795_000_000.0
HIDDEN = {
    "guest": Session("guest", "telegram", NOW, "17", "agent:main:telegram:dm:17", "17", "dm"),
    "group": Session("group", "telegram", NOW, None, "agent:main:telegram:group:-9", "-9", "group"),
    "caller": Session("caller", "api", NOW, "bob", "agent:main:api:api:bob", "bob", "api"),
}
OWN = Session("own", "cli", NOW)


def write(act: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a new thread, because Playwright runs a loop in the tests' thread."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, act).result()


async def fill(home: Path, *sessions: Session) -> None:
    """Store sessions in a home, in each of which somebody mentions the secret."""
    home.mkdir(parents=True, exist_ok=True)
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=5.0) as store:
        for session in sessions:
            await store.write(lambda tx, one=session: store.sessions.create(tx, one))  # type: ignore[misc]
            said = Draft("user", f"The {SECRET} of {session.id} is out of tune.")
            [message, _] = await store.append(session.id, said, Draft("assistant", "I see."))
            payload = {"kind": "said", "message": message.id, "speaker": None}
            await store.write(partial(wait_for_ever, session=session.id, payload=payload))


def wait_for_ever(tx: Tx, session: str, payload: Json) -> None:
    """Queue entries for a memory that never accepts them."""
    enqueue(tx, queue_name("elsewhere"), session, f"said:{session}", payload, now=NOW, session_id=session)


async def change(home: Path, act: Callable[[Tx], object]) -> None:
    """Change the store of a home in one transaction."""
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=5.0) as store:
        await store.write(act)


def put_aside(tx: Tx, reason: str = "refused on purpose") -> None:
    """Turn all waiting entries into dead letters."""
    tx.execute("UPDATE hermes_queue SET state = 'dead', attempts = 3, reason = ? WHERE state = 'waiting'", (reason,))
