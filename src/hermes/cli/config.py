"""`hermes config`: show and change settings."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hermes.cli.output import note, print_json, printable, say
from hermes.cli.start import AsJson, find_home
from hermes.cli.table import print_table
from hermes.config_file import load_env, read_entries, write_setting
from hermes.configuration import MAX_LISTED_KEYS, configure, name_foreign, read_configuration
from hermes.errors import UsageError
from hermes.memory.registry import provider_names
from hermes.settings import PROVIDER, TABLE, find_setting
from hermes.settings.kinds import Secret, in_words

app = typer.Typer(help="Show and change settings.", no_args_is_help=True, rich_markup_mode=None)

PIPED_COLUMNS = 3
"""Columns of the list in a pipe: the others would make lines of 200 characters."""
SettingName = Annotated[str, typer.Argument(metavar="SETTING", help="A setting's name, such as store.lock_timeout.")]


@app.command("list")
def list_settings(ctx: typer.Context, json: AsJson = False) -> None:
    """List every setting: its value, where the value comes from, and the allowed values."""
    home = find_home(ctx)
    found = read_configuration(home)
    for problem in found.problems:  # a broken setting must not prevent the list that helps to fix it
        note(f"hermes: {printable(problem.message)}")
    if found.foreign:
        note(f"hermes: {home.config_file}: {printable(name_foreign(found.foreign, MAX_LISTED_KEYS))}")
    shown = {setting.key: setting.shown(found.settings.get(setting)) for setting in TABLE}
    if json:
        print_json(shown)
        return
    columns = ["setting", "value", "from", "takes", "what it does"]
    rows = [
        (setting.key, in_words(shown[setting.key]), found.settings.origin(setting), setting.allowed, setting.help)
        for setting in TABLE
    ]
    width = len(columns) if sys.stdout.isatty() else PIPED_COLUMNS
    print_table(columns[:width], [row[:width] for row in rows])


@app.command("get")
def get_setting(ctx: typer.Context, name: SettingName, json: AsJson = False) -> None:
    """Print the current value of a setting."""
    setting = find_setting(name)
    home = find_home(ctx)
    entries = [entry for entry in read_entries(home.config_file) if entry.key in setting.keys]
    settings = configure(entries, load_env(home), [setting]).checked()
    value = settings.get(setting)
    if isinstance(setting.kind, Secret) and value:
        raise UsageError(f"{setting.key} is set, and is a secret, which is never printed", hint="")
    shown = setting.shown(value)
    if json:
        print_json(shown)
    else:
        say(in_words(shown))


@app.command("set")
def set_setting(
    ctx: typer.Context,
    name: SettingName,
    value: Annotated[str, typer.Argument(help="The new value; a list as `a, b`, a map as JSON.")],
) -> None:
    """Change a setting in config.yaml; the rest of the file stays unchanged."""
    setting, home = find_setting(name), find_home(ctx)
    parsed = setting.parse(value, "the command line")
    write_setting(home.config_file, setting, parsed)
    say(f"{setting.key} = {in_words(setting.shown(parsed))}  ({home.config_file})")
    if setting is PROVIDER and parsed not in (known := provider_names(home.plugins)):
        note(f"No memory provider '{printable(str(parsed))}' is installed yet. Known: {', '.join(known)}")


@app.command("path")
def print_path(ctx: typer.Context) -> None:
    """Print the path of config.yaml."""
    say(str(find_home(ctx).config_file))
