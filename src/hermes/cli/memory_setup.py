"""`hermes memory setup`: choose and configure a memory provider."""

from __future__ import annotations

from typing import Annotated

import typer

from hermes.app import App
from hermes.cli.backfill import offer_backfill
from hermes.cli.desk import TerminalDesk, open_plugin
from hermes.cli.output import one_line, printable, say
from hermes.cli.start import load_app
from hermes.config_file import write_setting
from hermes.errors import ProviderError, UsageError
from hermes.memory.command_host import guarded
from hermes.memory.registry import NONE, provider_names
from hermes.settings import PROVIDER

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
    desk, known = TerminalDesk(app), provider_names(app.home.plugins)
    if provider is None:
        if not desk.dialog.can_ask:
            raise UsageError("setup needs a terminal for its questions", hint=f"Or name a provider: {', '.join(known)}")
        options = {name: _describe(name, app) for name in sorted(known, key=lambda name: name == NONE)}
        now = app.settings.get(PROVIDER)
        provider = desk.dialog.choose("Which memory provider?", options, now if now in options else NONE)
    if provider.startswith("-"):
        raise UsageError(f"{provider} must come after the provider's name", hint="`hermes memory setup NAME [OPTIONS]`")
    if provider not in known:
        raise UsageError(f"there is no memory provider '{provider}'", hint=f"Known: {', '.join(known)}")
    if provider != NONE:
        plugin, name = open_plugin(app, provider), provider
        guarded(name, "setup", lambda: plugin.setup(desk, ctx.args), typer.TyperException, typer.Abort)
        if set(HELP) & set(ctx.args):
            return
    before = app.settings.get(PROVIDER)
    if before != provider or not app.settings.is_given(PROVIDER):
        write_setting(app.home.config_file, PROVIDER, provider)
    desk.dialog.say(f"The memory provider is {provider} ({app.home.config_file}).")
    offer_backfill(load_app(ctx), desk.dialog, before)


def _describe(name: str, app: App) -> str:
    """Return a provider's own short description."""
    if name == NONE:
        return ALONE
    try:
        return one_line(printable(str(open_plugin(app, name).summary)), MAX_SUMMARY_CHARS)
    except ProviderError:
        return "it cannot be loaded"
