"""One profile's configuration as a command works on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import typer
from msgspec import Struct
from msgspec.structs import replace

from hermes.config_file import load_env, read_entries, write_setting
from hermes.errors import NotFoundError, SettingsError
from hermes.home import PROFILES, Home
from hermes.honcho.changes import set_keys
from hermes.honcho.config_file import Edit, Places, edit_document
from hermes.honcho.configuration import Configuration, load
from hermes.honcho.keys import ENV_HOST, TABLE, Key
from hermes.honcho.server import Machine
from hermes.memory.provider import Desk
from hermes.settings import PROVIDER
from hermes.settings.kinds import in_words
from hermes.settings.layers import Layer, environment
from hermes.types import Json

DEFAULT = "default"


class Workbench(Struct, frozen=True):
    """The profile, and where commands ask and print."""

    machine: Machine
    desk: Desk

    @property
    def profile(self) -> str:
        return self.machine.home.profile or DEFAULT

    @property
    def places(self) -> Places:
        home, env = self.machine.home, self.machine.env
        return Places.find(home.path, home.profile, env, env.get(ENV_HOST, ""))

    def load(self) -> Configuration:
        """What is in force, with what is wrong."""
        return load(self.places, self.machine.env, is_chosen=self.machine.is_chosen)

    def choose(self) -> None:
        """The person wants Honcho: where it was only the default it is set now, and follows its configuration."""
        if not self.machine.is_chosen:
            write_setting(self.machine.home.config_file, PROVIDER, PROVIDER.default)

    def save(self, edit: Edit) -> None:
        """Change the file and say where it is."""
        self.desk.dialog.say(f"Saved in {edit_document(self.places, edit)}.")

    def save_keys(self, values: dict[str, Json]) -> None:
        """Set keys for this profile, and show what is in force now."""
        self.save(set_keys(values))
        self.show_keys([row for row in TABLE if row.key in values])

    def show_keys(self, rows: list[Key[Json]], *, as_json: bool = False) -> None:
        """Keys with their values and where these come from."""
        config = self.load()
        if as_json:
            self.desk.print_json({row.key: row.shown(config.get(row)) for row in rows})
            return
        self.desk.print_lines([(row.key, f"{shown(config, row)}  ({origin(config, row)})") for row in rows])

    def of_profile(self, name: str) -> Workbench:
        """The same for another profile of this installation."""
        shared = self.machine.home.shared
        found = Home(shared) if name == DEFAULT else Home(shared / PROFILES / name, name)
        if not found.path.is_dir():
            known = ", ".join(bench.profile for bench in self.profiles())
            raise NotFoundError(f"there is no profile '{name}'", hint=f"Known: {known}")
        return self._at(found)

    def profiles(self) -> Iterator[Workbench]:
        """Every profile, the default one first."""
        shared = self.machine.home.shared
        yield self._at(Home(shared))
        for folder in sorted(path for path in (shared / PROFILES).glob("*") if path.is_dir()):
            yield self._at(Home(folder, folder.name))

    def _at(self, home: Home) -> Workbench:
        """Another profile has an `.env` of its own; a variable that names the host block is meant for this one."""
        if home.path == self.machine.home.path:
            return self
        env = {name: value for name, value in load_env(home).items() if name != ENV_HOST}
        return replace(self, machine=Machine(home, env, is_chosen=_names_provider(home, env)))


def _names_provider(home: Home, env: Mapping[str, str]) -> bool:
    """Whether a person chose a memory provider in a profile. A broken file is told where it is used."""
    try:
        given = {entry.key: entry for entry in read_entries(home.config_file)}
    except SettingsError:
        return False
    layers = (Layer("file", given), environment([PROVIDER], env))
    return any(layer.find(PROVIDER) is not None for layer in layers)


def shown(config: Configuration, row: Key[Json]) -> str:
    """A key's value in one line, without secrets; what is not set is a dash."""
    value = config.get(row)
    empty = value is None or value == "" or value == {}
    return "–" if empty else in_words(row.shown(value))


def origin(config: Configuration, row: Key[Json]) -> str:
    """Where a value comes from, in a word or two."""
    found = config.settings.origin(row)
    return f"variable {row.env}" if found == "environment" else found


def here() -> Path | None:
    """Where the terminal stands; None in a folder that is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def find_bench(ctx: typer.Context) -> Workbench:
    """The bench of the command that runs."""
    bench = ctx.find_object(Workbench)
    assert bench is not None, "the group sets it"
    return bench
