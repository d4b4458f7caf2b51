"""`hermes memory status`: the chosen provider, whether it works, and what it has not received yet.

`hermes memory setup`: choose and configure a memory provider.
"""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from hermes.app import App
from hermes.cli.memory import server_lines
from hermes.cli.memory_learning import offer_backfill
from hermes.cli.output import one_line, print_json, printable, say, show_time
from hermes.cli.plugin_console import TerminalConsole, open_plugin
from hermes.cli.start import AsJson, load_app, with_store
from hermes.config_file import write_setting
from hermes.db.queue import FAILED
from hermes.errors import ProviderError, UsageError
from hermes.memory.plugin_host import guarded
from hermes.memory.registry import NONE, provider_names
from hermes.owner.status import read_server, read_status
from hermes.redaction import hide_passwords
from hermes.settings import PROVIDER
from hermes.types import Json


def status(ctx: typer.Context, json: AsJson = False) -> int:
    """Show whether the memory provider and the memory server work, and what is still queued. Nothing is delivered or
    started."""
    found = load_app(ctx)
    logging.getLogger("hermes.memory").addHandler(logging.NullHandler())  # its warnings are part of the output below
    shown = with_store(found, lambda store: read_status(found, store))
    shown["server"] = server = read_server(found.home)
    if json:
        print_json(shown)
    else:
        _print(shown)
        for line in server_lines(server):
            say(hide_passwords(printable(line)))
    fails = shown["outbox"] is not None and shown["outbox"]["failing_since"] is not None
    return 0 if shown["problem"] is None and server["problem"] is None and not fails else 1


def _print(shown: dict[str, Json]) -> None:
    say(f"provider  {shown['provider']}{'' if shown['problem'] is None else ' (failing)'}")
    if shown["problem"]:
        say(f"problem   {hide_passwords(printable(shown['problem']))}")
    for label, value in shown["plugin"].items():
        say(hide_passwords(printable(f"{label:<9} {value}")))
    for line in shown["remarks"]:
        say(f"note      {hide_passwords(printable(line))}")
    if shown["tools"]:
        say(f"tools     {printable(shown['tools'])}")
    if shown["outbox"] is not None:
        say(f"outbox    {_line(shown['outbox'])}")
    for name, outbox in shown["others"].items():
        if outbox["waiting"] or outbox["put_aside"]:
            say(f"outbox of {name}, which is not chosen: {_line(outbox)}")


def _line(outbox: dict[str, Json]) -> str:
    parts = [f"{outbox['waiting']} waiting", f"{outbox['put_aside']} {FAILED}"]
    if outbox["waiting"]:
        parts.append(f"the oldest for {outbox['oldest_seconds']:.0f} s")
    if outbox["last_success"] is not None:
        parts.append(f"last delivered {show_time(outbox['last_success'])}")
    if outbox["failing_since"] is not None:
        parts.append(f"failing since {show_time(outbox['failing_since'])}: {printable(outbox['last_error'] or '')}")
    return ", ".join(parts)


ALONE = "the built-in notes alone"
MAX_SUMMARY_CHARS = 200
HELP = ("-h", "--help")
"""After a provider's name these belong to the provider, so this command parses them itself."""


def setup(
    ctx: typer.Context,
    provider: Annotated[str | None, typer.Argument(help="The provider; asked for if omitted.")] = None,
) -> None:
    """Choose a memory provider and set it up. Options after its name belong to the provider (`… setup NAME --help`)."""
    if provider in HELP:
        say(ctx.get_help())
        return
    app = load_app(ctx)
    console, known = TerminalConsole(app), provider_names(app.home.plugins)
    if provider is None:
        if not console.dialog.can_ask:
            raise UsageError("setup needs a terminal for its questions", hint=f"Or name a provider: {', '.join(known)}")
        options = {name: _describe(name, app) for name in sorted(known, key=lambda name: name == NONE)}
        now = app.settings.get(PROVIDER)
        provider = console.dialog.choose("Which memory provider?", options, now if now in options else NONE)
    if provider.startswith("-"):
        raise UsageError(f"{provider} must come after the provider's name", hint="`hermes memory setup NAME [OPTIONS]`")
    if provider not in known:
        raise UsageError(f"there is no memory provider '{provider}'", hint=f"Known: {', '.join(known)}")
    if provider != NONE:
        plugin, name = open_plugin(app, provider), provider
        guarded(name, "setup", lambda: plugin.setup(console, ctx.args), typer.TyperException, typer.Abort)
        if set(HELP) & set(ctx.args):
            return
    before = app.settings.get(PROVIDER)
    if before != provider or not app.settings.is_given(PROVIDER):
        write_setting(app.home.config_file, PROVIDER, provider)
    console.dialog.say(f"The memory provider is {provider} ({app.home.config_file}).")
    offer_backfill(load_app(ctx), console.dialog, before)


def _describe(name: str, app: App) -> str:
    """Return a provider's own short description."""
    if name == NONE:
        return ALONE
    try:
        return one_line(printable(str(open_plugin(app, name).summary)), MAX_SUMMARY_CHARS)
    except ProviderError:
        return "it cannot be loaded"
