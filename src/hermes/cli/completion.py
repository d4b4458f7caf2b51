"""Completion by the shell: the script that `hermes completion` prints, and completions that come from a home (sessions
and profiles).
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from hermes.cli.output import one_line, printable
from hermes.clock import SystemClock
from hermes.errors import HermesError
from hermes.home import Home
from hermes.store.sessions import Listed
from hermes.store.store import Store

SHELLS = Path(__file__).with_name("shells")


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Which shell: bash, zsh or fish.")],
) -> None:
    """Print a shell script that completes commands, options, sessions, profiles and settings with Tab."""
    sys.stdout.write((SHELLS / f"hermes.{shell}").read_text(encoding="utf-8"))


LISTED_COUNT = 200
"""Number of sessions offered, the most recently active first."""
LOCK_TIMEOUT_SECONDS = 0.2
"""A key press does not wait longer than this for another process."""
MAX_TITLE_COLUMNS = 60


def sessions(profile: str | None, current: str) -> list[tuple[str, str]]:
    """Return sessions by id, and also by title once something is typed."""
    try:
        home = Home.find(os.environ, profile)
        found = asyncio.run(_recent(home)) if home.state_file.exists() else []
    except HermesError:
        return []
    ids = [(one.session.id, printable(one_line(one.session.title or one.preview, MAX_TITLE_COLUMNS))) for one in found]
    titled = [(one.session.title, one.session.id) for one in found if one.session.title and current]
    return [*ids, *((title, key) for title, key in titled if title.isprintable())]


async def _recent(home: Home) -> list[Listed]:
    async with await Store.open(home.state_file, clock=SystemClock(), lock_timeout=LOCK_TIMEOUT_SECONDS) as store:
        return await store.read(lambda tx: store.sessions.recent(tx, limit=LISTED_COUNT))


def profiles() -> list[tuple[str, str]]:
    try:
        return [(home.name, "") for home in Home.find(os.environ).all()]
    except (HermesError, OSError):
        return []
