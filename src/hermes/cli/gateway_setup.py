"""`hermes gateway setup`: configure a Telegram, Discord or Slack bot; tokens are tested before they are saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from hermes.app import App
from hermes.cli.dialog import TerminalDialog, can_ask
from hermes.cli.output import printable
from hermes.cli.start import load_app
from hermes.config_file import read_entries, write_setting
from hermes.errors import HermesError, UsageError
from hermes.gateway.platforms.packages import how_to_install
from hermes.gateway.platforms.set_up import SET_UPS, CheckedToken, RefusedTokenError, SetUp
from hermes.settings import Setting

MEANINGS = {"telegram": "a bot, one token", "discord": "a bot, one token", "slack": "an app, two tokens"}


def set_up_platform(
    ctx: typer.Context,
    platform: Annotated[str | None, typer.Argument(help="telegram, discord or slack; asked for if omitted.")] = None,
) -> None:
    """Set up Telegram, Discord or Slack: explains where to get the tokens, tests them, and lists missing
    permissions."""
    app, dialog = load_app(ctx), TerminalDialog()
    if platform is not None and platform not in SET_UPS:
        raise UsageError(f"there is no chat platform '{platform}'", hint=f"Known: {', '.join(SET_UPS)}")
    if not can_ask():
        keys = " and ".join(
            f"`hermes config set {setting.key}`" for setting, _ in SET_UPS[platform or "discord"].tokens
        )
        raise UsageError("setup needs a terminal for its questions", hint=f"Without one: {keys}")
    name = platform or dialog.choose("Which platform?", MEANINGS, next(iter(MEANINGS)))
    chosen = SET_UPS[name]
    dialog.say(chosen.steps)
    tokens = _ask_tokens(app, dialog, chosen)
    for (setting, _), token in zip(chosen.tokens, tokens, strict=True):
        if token != app.settings.get(setting):
            write_setting(app.home.config_file, setting, token)
        if app.env.get(setting.env or "") not in (None, token):
            dialog.say(f"{setting.env} is set in the environment and overrides it.")
    dialog.say(f"{name} is set ({app.home.config_file}).")
    for profile in _profiles_with(app, chosen.tokens[0][0], tokens[0]):
        dialog.say(f"The profile {profile} uses the same bot: both gateways would answer. Create one bot per profile.")
    if find_spec(chosen.module) is None:
        dialog.say(f"Its package is not installed yet: `{how_to_install(chosen.requirements)}`")
    dialog.say("Next: run `hermes gateway run` (restart the gateway if it runs already), then write to the bot.")


def _ask_tokens(app: App, dialog: TerminalDialog, chosen: SetUp) -> list[str]:
    """Prompt until the platform accepts the tokens. If it cannot be reached they are returned untested."""
    while True:
        tokens = [dialog.ask(label, app.settings.get(setting), secret=True) for setting, label in chosen.tokens]
        try:
            if all(tokens):
                _report(dialog, chosen.check(str(app.settings.get(chosen.base_url)).rstrip("/"), tokens))
                return tokens
            dialog.say("  A token is required; Ctrl-C cancels.")
        except RefusedTokenError as error:
            dialog.say(f"  The token was refused ({printable(str(error))}). Copy it again; Ctrl-C cancels.")
        except (OSError, ValueError) as error:
            dialog.say(f"  It could not be tested ({printable(_hide(str(error), tokens))}); it is saved anyway.")
            return tokens


def _profiles_with(app: App, setting: Setting[Any], token: str) -> Iterator[str]:
    """Yield the other profiles whose config.yaml has the same token."""
    for home in app.home.all():
        with suppress(HermesError):  # an invalid file of another profile is reported there
            if home.path != app.home.path and (setting.key, token) in {
                (given.key, str(given.value)) for given in read_entries(home.config_file)
            }:
                yield home.name


def _report(dialog: TerminalDialog, checked: CheckedToken) -> None:
    dialog.say(f"It is {printable(checked.bot)}.")
    for line in checked.missing:
        dialog.say(f"  Missing: {printable(line)}")
    if checked.next_step:
        dialog.say(printable(checked.next_step))


def _hide(line: str, tokens: list[str]) -> str:
    """Return a line without the tokens, since a URL in it may contain one."""
    for token in tokens:
        line = line.replace(token, "(hidden)")
    return line
