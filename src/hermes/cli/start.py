"""What every command starts with: which profile was asked for, and a way into asyncio."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from hermes.app import App
from hermes.app import read_store as read_store
from hermes.app import show_store as show_store
from hermes.app import with_store as with_store
from hermes.app import write_store as write_store
from hermes.cli.output import note, printable
from hermes.configuration import name_foreign
from hermes.home import Home
from hermes.logs import start_log
from hermes.settings import LOG_FORMAT, LOG_LEVEL, secrets_in

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
