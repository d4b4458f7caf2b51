"""The command line as plain data: what each command takes, for shell completion without importing the commands.

`make docs` writes it to `command_tree.json`, so completion does not have to build the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from hermes.cli.main import first_sentence
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
