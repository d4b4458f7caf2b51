"""Writes docs/reference.md from the code: every command, setting and error. `make docs` runs it; a test compares."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from hermes import errors
from hermes.cli.main import COMMANDS, build_app
from hermes.settings import TABLE
from hermes.settings.kinds import in_words

TARGET = Path(__file__).parent.parent / "docs" / "reference.md"


def render() -> str:
    """Return the whole page."""
    parts = [
        "# Reference",
        "You want to know what a command takes: type it with `--help`. "
        "You want something and do not know the command: [index.md](index.md) says what to type.",
        "Made from the code by `make docs`; change the code, not this page.",
        "## Commands",
        "`hermes -p NAME …` uses the home of a profile, `hermes --version` prints the version. "
        "Every command explains itself with `--help`.",
        *describe_commands(typer.main.get_command(build_app(COMMANDS)), "hermes"),
        "## Settings",
        "In `config.yaml` of the home (`hermes config path`); a dot is a level of nesting, or part of a key "
        "(`store.lock_timeout: 5`), but each setting stands there once. A variable fills in what the "
        "file leaves open, unless it is said to win. Variables can also stand in `.env` of the home. A list is a "
        "YAML list or a text with commas. Keys that are not here belong to other programs: they are named at the start "
        "and kept.",
        "\n".join(_settings()),
        "## Errors",
        "One line on standard error that says what, where and what to do next; nothing is half done.",
        "\n".join(_errors()),
    ]
    return "\n\n".join(parts) + "\n"


def describe_commands(command: Any, path: str) -> Iterator[str]:
    """Yield every command below `command`, and itself where it does something by itself, with its options."""
    children = getattr(command, "commands", {})
    if not children or command.invoke_without_command:
        yield _describe(command, path)
    for name in children:
        yield from describe_commands(children[name], f"{path} {name}")


def _describe(command: Any, path: str) -> str:
    usage = " ".join([path, *_usage(command)])
    lines = [f"### `{path}`", inspect.cleandoc(command.help or ""), f"```\n{usage}\n```"]
    options = [_option(parameter) for parameter in command.params if parameter.param_type_name == "option"]
    return "\n\n".join(lines + (["\n".join(options)] if options else []))


def _usage(command: Any) -> Iterator[str]:
    if any(parameter.param_type_name == "option" for parameter in command.params):
        yield "[OPTIONS]"
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = (parameter.metavar or parameter.name).upper()
            yield name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in parameter.opts)
    return f"- {names}: {parameter.help}"


def _settings() -> Iterator[str]:
    yield "| setting | default | takes | variable | what it does |"
    yield "|---|---|---|---|---|"
    for setting in TABLE:
        default = in_words(setting.shown(setting.default))
        default = f"`{default}`" if default else ""
        variable = f"`{setting.env}`" if setting.env else ""
        if setting.env_wins:
            variable += " wins"
        also = "".join(f", also `{key}`" for key in setting.also)
        yield f"| `{setting.key}`{also} | {default} | {setting.allowed} | {variable} | {setting.help} |"


def _errors() -> Iterator[str]:
    yield "| error | exit code | when | what to do |"
    yield "|---|---|---|---|"
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, errors.HermesError):
            yield f"| {name} | {kind.exit_code} | {inspect.getdoc(kind)} | {kind.default_hint} |"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
