"""`hermes NAME …`: the commands of the chosen memory provider, and their completion. No provider is named in this
code."""

from __future__ import annotations

import os

import typer
import typer.main

from hermes.app import App
from hermes.cli.command_tree import describe_tree
from hermes.cli.desk import TerminalDesk, open_plugin
from hermes.errors import HermesError, UsageError
from hermes.home import Home
from hermes.memory.command_host import guarded
from hermes.memory.registry import NONE, provider_names
from hermes.settings import PROVIDER
from hermes.types import Json


def provider_group(name: str, profile: str | None) -> typer.Typer | None:
    """Return a provider's commands, or None if no provider has that name. Raises UsageError if it is not the chosen
    one."""
    app = App.load(profile)
    if name == NONE or name not in provider_names(app.home.plugins):
        return None
    chosen = app.settings.get(PROVIDER)
    if chosen != name:
        raise UsageError(
            f"{name.capitalize()} is not the active memory provider (memory.provider is {chosen})",
            hint=f"Run `hermes memory setup {name}`.",
        )
    if (group := _commands_of(app, name)) is None:
        raise UsageError(f"the memory provider {name} has no commands", hint="")
    return group


def chosen_group(profile: str | None) -> tuple[str, typer.Typer] | None:
    """Return the chosen provider's name and commands, or None if it has none."""
    app = App.load(profile)
    name = app.settings.get(PROVIDER)
    group = None if name == NONE else _commands_of(app, name)
    return None if group is None else (name, group)


def offered_names(profile: str | None) -> list[str]:
    """Return the names of all providers; empty if they cannot be read."""
    try:
        return [name for name in provider_names(Home.find(os.environ, profile).plugins) if name != NONE]
    except HermesError:
        return []


def offered_tree(name: str, profile: str | None) -> dict[str, Json] | None:
    """Return a provider's commands as data, or None if it is not chosen or has none."""
    try:
        group = provider_group(name, profile)
    except HermesError:
        return None
    return None if group is None else describe_tree(typer.main.get_command(group))


def _commands_of(app: App, name: str) -> typer.Typer | None:
    plugin = open_plugin(app, name)
    group = guarded(name, "commands", lambda: plugin.commands(TerminalDesk(app)))
    return group if isinstance(group, typer.Typer) else None
