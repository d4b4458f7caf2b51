"""What every command starts with: which profile was asked for, and a way into asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from hermes.app import App
from hermes.cli.output import note, printable
from hermes.configuration import name_foreign
from hermes.db.engine import Tx
from hermes.home import Home
from hermes.logs import start_log
from hermes.settings import LOG_FORMAT, LOG_LEVEL, secrets_in
from hermes.store.store import Store

T = TypeVar("T")
NAMED = 3
"""How many settings that are not ours a start names."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def load_app(ctx: typer.Context) -> App:
    """The profile that was asked for, with its settings. What is not ours in its file is named on standard error."""
    app = App.load(ctx.obj)
    if app.foreign:
        note(f"hermes: {app.home.config_file}: {printable(name_foreign(app.foreign, NAMED))}")
    return app


def find_home(ctx: typer.Context) -> Home:
    """The profile's home alone, for commands that must work when its settings are broken."""
    return Home.find_existing(os.environ, ctx.obj)


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


def read_store(app: App, look: Callable[[Store, Tx], T]) -> T:
    """What `look` finds in the store, as it is at one moment."""
    return with_store(app, lambda store: store.read(lambda tx: look(store, tx)))


def show_store(app: App, show: Callable[[Store, Tx], T]) -> T:
    """As `read_store`, for what prints or writes as it reads."""
    return with_store(app, lambda store: store.read_once(lambda tx: show(store, tx)))


def write_store(app: App, change: Callable[[Store, Tx], T]) -> T:
    """Change the store in one transaction; what `change` returns."""
    return with_store(app, lambda store: store.write(lambda tx: change(store, tx)))
