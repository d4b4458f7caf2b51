"""What completion offers from a home: sessions and profiles."""

from __future__ import annotations

import asyncio
import os

from hermes.cli.output import one_line, printable
from hermes.clock import SystemClock
from hermes.errors import HermesError
from hermes.home import Home
from hermes.store.sessions import Listed
from hermes.store.store import Store

LISTED = 200
"""How many sessions are looked at, the ones that were active last."""
LOCK_TIMEOUT = 0.2
"""Seconds; whoever presses Tab waits for no other process."""
LONGEST = 60


def sessions(profile: str | None, current: str) -> list[tuple[str, str]]:
    """Each session by its id, and by its title where that is being typed."""
    try:
        home = Home.find(os.environ, profile)
        found = asyncio.run(_recent(home)) if home.state_file.exists() else []
    except HermesError:
        return []
    ids = [(one.session.id, printable(one_line(one.session.title or one.preview, LONGEST))) for one in found]
    titled = [(one.session.title, one.session.id) for one in found if one.session.title and current]
    return [*ids, *((title, key) for title, key in titled if title.isprintable())]


async def _recent(home: Home) -> list[Listed]:
    async with await Store.open(home.state_file, clock=SystemClock(), lock_timeout=LOCK_TIMEOUT) as store:
        return await store.read(lambda tx: store.sessions.recent(tx, limit=LISTED))


def profiles() -> list[tuple[str, str]]:
    try:
        return [(home.name, "") for home in Home.find(os.environ).all()]
    except (HermesError, OSError):
        return []
