"""The start of every command: loading the chosen profile, and handling signals."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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

MAX_NAMED = 3
"""Number of unknown settings named in the note at start-up."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def load_app(ctx: typer.Context) -> App:
    """Load the chosen profile with its settings. Unknown settings are named on standard error."""
    app = App.load(ctx.obj)
    if app.foreign:
        note(f"hermes: {app.home.config_file}: {printable(name_foreign(app.foreign, MAX_NAMED))}")
    return app


def find_home(ctx: typer.Context) -> Home:
    """Return the profile's home only, for commands that must work with broken settings."""
    return Home.find_existing(os.environ, ctx.obj)


def start_home_log(app: App) -> None:
    """Start writing to the home's log, as its settings say."""
    get = app.settings.get
    start_log(app.home.log_file, level=get(LOG_LEVEL), form=get(LOG_FORMAT), secrets=secrets_in(app.settings))


TO_END = ("SIGINT", "SIGTERM")
"""Signals that end a server cleanly."""


@contextmanager
def on_signals(names: Iterable[str], act: Callable[[int], object]) -> Iterator[Callable[[], None]]:
    """Call `act` on the event loop, with the signal's number, for each of these signals while the block runs. Yields a
    function that ends that early."""
    loop = asyncio.get_running_loop()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            try:
                loop.remove_signal_handler(number)  # from then on Ctrl-C ends the program
            except NotImplementedError:
                signal.signal(number, handler)

    for number in numbers:
        try:
            loop.add_signal_handler(number, act, number)  # also wakes an idle loop
        except NotImplementedError:  # Windows
            signal.signal(number, lambda number, _: loop.call_soon_threadsafe(act, number))
    try:
        yield restore
    finally:
        restore()
