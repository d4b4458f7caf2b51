"""What every command starts with: which profile was asked for, and a way into asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from msgspec import Struct

from hermes.app import App
from hermes.cli.output import note, printable
from hermes.configuration import name_foreign
from hermes.home import Home
from hermes.logs import start_log
from hermes.settings import LOG_FORMAT, LOG_LEVEL, secrets_in
from hermes.store.store import Store

T = TypeVar("T")
NAMED = 3
"""How many settings that are not ours a start names."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class Invocation(Struct, frozen=True):
    """What was said before the command."""

    profile: str | None


def load_app(ctx: typer.Context) -> App:
    """The profile that was asked for, with its settings. What is not ours in its file is named on standard error."""
    app = App.load(_invocation(ctx).profile)
    if app.foreign:
        note(f"hermes: {app.home.config_file}: {printable(name_foreign(app.foreign, NAMED))}")
    return app


def find_home(ctx: typer.Context) -> Home:
    """The profile's home alone, for commands that must work when its settings are broken."""
    return Home.find_existing(os.environ, _invocation(ctx).profile)


def start_home_log(app: App) -> None:
    """From now on what happens is written to the home's log, as its settings say."""
    get = app.settings.get
    start_log(app.home.log_file, level=get(LOG_LEVEL), form=get(LOG_FORMAT), secrets=secrets_in(app.settings))


def with_store(app: App, work: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store, do `work`, and close it whatever happens."""

    async def run() -> T:
        async with await app.open_store() as store:
            return await work(store)

    return asyncio.run(run())


def _invocation(ctx: typer.Context) -> Invocation:
    found = ctx.find_object(Invocation)
    assert found is not None, "the root command sets it"
    return found
