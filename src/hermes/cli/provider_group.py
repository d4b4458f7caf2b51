"""`hermes NAME …`: the commands of the chosen memory provider, and their completion. No provider is named in this
code.

The command line as plain data: what each command takes, for shell completion without importing the commands.

`make docs` writes it to `command_tree.json`, so completion does not have to build the command line.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import typer
import typer.main

from hermes.app import App
from hermes.cli.main import first_sentence
from hermes.cli.plugin_console import TerminalConsole, open_plugin
from hermes.errors import HermesError, UsageError
from hermes.home import Home
from hermes.memory.plugin_host import guarded
from hermes.memory.registry import NONE, provider_names
from hermes.settings import PROVIDER
from hermes.settings.kinds import Boolean, Choice
from hermes.settings.setting import Setting, Table
from hermes.types import Json

FILE = Path(__file__).with_name("command_tree.json")

Wanted = Literal["session", "profile", "setting", "value", "file"]
"""Kinds of values that completion looks up outside the tree. `value` means the values of the preceding setting."""
BY_NAME: dict[str, Wanted] = {
    "SESSION": "session",
    "SESSION...": "session",
    "--session": "session",
    "--profile": "profile",
    "SETTING": "setting",
    "VALUE": "value",
}
"""The kind of value a parameter takes, by the name shown in its help."""


def describe_tree(command: Any, settings: Table = ()) -> dict[str, Json]:
    """Describe a Typer command and everything below it."""
    tree: dict[str, Json] = {"help": first_sentence(command.help or ""), "options": {}}
    arguments = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            arguments.append({"wants": _wants(parameter), "many": parameter.nargs == -1})
        elif not parameter.hidden:
            takes = not (parameter.is_flag or parameter.count)
            wants = _wants(parameter) if takes else None
            for name in parameter.opts:
                tree["options"][name] = {"help": parameter.help or "", "takes": takes, "wants": wants}
    if arguments:
        tree["arguments"] = arguments
    if children := getattr(command, "commands", None):
        tree["commands"] = {name: describe_tree(child) for name, child in children.items() if not child.hidden}
    if settings:
        tree["settings"] = {setting.key: {"help": setting.help, "values": _values(setting)} for setting in settings}
    return tree


def _wants(parameter: Any) -> Json:
    """Return a `Wanted` kind, a list of choices, or None."""
    names = [*parameter.opts, parameter.metavar or "", str(parameter.name).upper()]
    found = next((BY_NAME[name] for name in names if name in BY_NAME), None)
    if found is not None:
        return found
    if choices := getattr(parameter.type, "choices", None):
        return [str(getattr(choice, "value", choice)) for choice in choices]
    return "file" if parameter.type.name in ("path", "file", "directory") else None


def _values(setting: Setting[Any]) -> list[str]:
    if isinstance(setting.kind, Choice):
        return list(setting.kind.words)
    return ["true", "false"] if isinstance(setting.kind, Boolean) else []


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
    group = guarded(name, "commands", lambda: plugin.commands(TerminalConsole(app)))
    return group if isinstance(group, typer.Typer) else None
