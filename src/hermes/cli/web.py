"""`hermes web`: the owner's web page, served on this machine until Ctrl-C, and a key for its JSON API."""

from __future__ import annotations

import asyncio
import webbrowser
from importlib import import_module
from typing import Annotated

import typer

from hermes.assembly import FLOOR_NOTICE, has_model
from hermes.cli.output import note, say
from hermes.cli.start import TO_END, find_home, load_app, on_signals, start_home_log, with_store
from hermes.config_file import load_shared_env
from hermes.embedded.connect import keeping
from hermes.embedded.rendezvous import find_place
from hermes.owner.status import take_default_notice
from hermes.owner.web_key import make_web_key, remove_web_key
from hermes.store.store import Store

commands = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@commands.callback()
def web(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """Talk, see what is remembered and why, and correct it, in a browser on this machine. The printed link works once;
    after it was used, the next one is printed."""
    if ctx.invoked_subcommand is not None:
        return
    app = load_app(ctx)
    serving = import_module("hermes.web.server")  # imported late: only this command needs a web server
    links = list[str]()

    def announce(link: str) -> None:
        say(link)
        if not links and not no_open:
            asyncio.get_running_loop().run_in_executor(None, webbrowser.open, link)
        links.append(link)

    async def work(store: Store) -> None:
        start_home_log(app)
        if (notice := await take_default_notice(app, store)) is not None:
            note(notice)
        if not has_model(app.settings):
            note(FLOOR_NOTICE)
        stopping = asyncio.Event()
        with keeping(find_place(app.home, load_shared_env(app.home))):
            with on_signals(TO_END, lambda _: stopping.set()):
                note("Anyone with this link can open the page, once. Ctrl-C ends it.")
                models = import_module("hermes.cli.memory_model").HomeMemoryModel()
                await serving.serve(app, store, models, port, announce, stopping)

    with_store(app, work)
    note("web: ended")


@commands.command()
def key(
    ctx: typer.Context,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the key.")] = False,
) -> None:
    """Create a key for the JSON API under /api, and print it once. The previous key stops working."""
    home = find_home(ctx)
    if remove:
        note("The key is removed." if remove_web_key(home) else "There was no key.")
        return
    say(make_web_key(home))
    note("Send it as `Authorization: Bearer KEY`; docs/web.md describes the API. The key is not shown again.")
