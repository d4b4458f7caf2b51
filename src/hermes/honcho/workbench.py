"""The context of `hermes honcho` commands: a profile's configuration, and the terminal to ask and print on.

The profiles of this installation, and which of them share a memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import typer
from msgspec import Struct
from msgspec.structs import replace

from hermes.config_file import load_env, read_entries
from hermes.errors import HermesError, NotFoundError, SettingsError, UsageError
from hermes.home import Home
from hermes.honcho import keys
from hermes.honcho.config_file import Document, Edit, edit_document, read_document, set_keys
from hermes.honcho.configuration import HonchoConfiguration, resolve
from hermes.honcho.injection import DEFAULT_TOKENS
from hermes.honcho.keys import ENV_HOST, TABLE, Key
from hermes.honcho.server import HonchoServer, Machine, configured_server, find_server
from hermes.memory.provider import PluginConsole
from hermes.settings import PROVIDER
from hermes.settings.kinds import in_words
from hermes.settings.layers import Layer, environment
from hermes.types import Json


def machines(machine: Machine) -> Iterator[Machine]:
    """Yield the Machine of every profile, the default one first; `machine` itself for its own profile."""
    for home in machine.home.all():
        yield machine if home.path == machine.home.path else _at(home)


def find_sharing(machine: Machine, config: HonchoConfiguration) -> Iterator[tuple[str, bool]]:
    """Yield the other profiles that use, or once they choose Honcho would use, the same workspace of the same
    server; with False if a profile's configuration is invalid."""
    ours = _memory(machine, find_server(config), config.workspace)
    for home in machine.home.all():
        if home.path == machine.home.path:
            continue
        try:
            if ours in _memories(_at(home)):
                yield home.name, True
        except HermesError:
            yield home.name, False


def _memories(machine: Machine) -> list[tuple[str, ...]]:
    """Return the memory in use and the configured one of a profile. Raises SettingsError for an invalid
    configuration."""
    config = machine.load().checked()
    return [_memory(machine, find(config), config.workspace) for find in (find_server, configured_server)]


def _at(home: Home) -> Machine:
    """Return the Machine of another profile, with that profile's `.env`. The variable for the host block is dropped,
    since it means this profile."""
    env = {name: value for name, value in load_env(home).items() if name != ENV_HOST}
    return Machine(home, env, is_chosen=named_provider(home, env) is not None)


def named_provider(home: Home, env: Mapping[str, str]) -> str | None:
    """Return the memory provider that a person chose in a profile; None if nobody did, or the file is invalid."""
    try:
        given = {entry.key: entry for entry in read_entries(home.config_file)}
    except SettingsError:
        return None
    layers = (Layer("file", given), environment([PROVIDER], env))
    return next((str(found.value) for layer in layers if (found := layer.find(PROVIDER)) is not None), None)


def _memory(machine: Machine, server: HonchoServer, workspace: str) -> tuple[str, ...]:
    """Return what identifies a memory: the server's kind, its location, and the workspace."""
    where = str(machine.memory.folder) if server.kind == "embedded" else server.url
    return server.kind, where, workspace


class Workbench(Struct, frozen=True):
    """A profile, and where commands ask and print."""

    machine: Machine
    console: PluginConsole

    @property
    def profile(self) -> str:
        return self.machine.home.name

    def load(self) -> HonchoConfiguration:
        """Read the configuration in force; errors are in `problems`."""
        return self.machine.load()

    def confirm(self, question: str, default: Literal["yes", "no"], refused: str) -> None:
        """Continue only after a yes. Raises UsageError after a no, and if nobody can be asked."""
        if not self.console.dialog.can_ask:
            raise UsageError("nobody can be asked here", hint="`--yes` goes on without asking")
        if self.console.dialog.choose(question, {"yes": "", "no": "leave it as it is"}, default) == "no":
            raise UsageError(refused, hint="")

    def trial(self, edit: Edit) -> HonchoConfiguration:
        """Return the configuration as it would be after an edit."""
        return _trial(self.machine, edit)

    def save(self, edit: Edit) -> None:
        """Apply an edit and print the file's path. Raises SettingsError if it would add a problem."""
        before = self.load()
        check_edit(self.machine, edit)
        self.console.dialog.say(f"Saved in {edit_document(self.machine.places, edit)}.")
        for line in _left_behind_notes(before, self.load()):
            self.console.dialog.say(f"Note: {line}")

    def save_keys(self, values: dict[str, Json]) -> None:
        """Set keys for this profile, and show their values in force."""
        self.save(set_keys(values))
        rows = [row for row in TABLE if row.key in values]
        for warning in filter(None, (row.counted_as(values[row.key]) for row in rows)):
            self.console.dialog.say(f"Note: {warning}")
        self.show_keys(rows)

    def show_keys(self, rows: list[Key[Json]], *, as_json: bool = False) -> None:
        """Print keys with their values and sources."""
        config = self.load()
        if as_json:
            self.console.print_json({row.key: value_of(config, row) for row in rows})
            return
        self.console.print_lines([(row.key, f"{shown(config, row)}  ({origin(config, row)})") for row in rows])

    def of_profile(self, name: str) -> Workbench:
        """Return the workbench of another profile. Raises NotFoundError."""
        found = next((bench for bench in self.profiles() if bench.profile == name), None)
        if found is None:
            known = ", ".join(bench.profile for bench in self.profiles())
            raise NotFoundError(f"there is no profile '{name}'", hint=f"Known: {known}")
        return found if found is self else replace(found, console=self.console.of_profile(name))

    def profiles(self) -> Iterator[Workbench]:
        """Yield every profile's workbench, the default one first, all with this profile's people; see `of_profile`."""
        for machine in machines(self.machine):
            yield self if machine is self.machine else replace(self, machine=machine)


def check_edit(machine: Machine, edit: Edit) -> None:
    """Raise SettingsError for an edit that would add a problem to the configuration."""
    known = {problem.message for problem in machine.load().problems}
    for problem in _trial(machine, edit).problems:
        if problem.message not in known:
            raise problem


def _trial(machine: Machine, edit: Edit) -> HonchoConfiguration:
    places = machine.places
    path = places.existing()
    now = read_document(path, places)
    block, root = dict(now.block), dict(now.root)
    edit(block, root)
    return resolve(Document(root, block, places.host), path, places.host, machine.env)


def _left_behind_notes(before: HonchoConfiguration, after: HonchoConfiguration) -> Iterator[str]:
    """Yield notes on data that stays behind after a renaming; none without a file, since nothing was sent yet."""
    if before.file is None:
        return
    if before.workspace != after.workspace:
        yield f"what is in the workspace {before.workspace} stays there"
    if before.identities.owner != after.identities.owner:
        yield f"what is known of {before.identities.owner} stays with that name; you are {after.identities.owner} now"
    if before.identities.ai != after.identities.ai:
        yield f"what {before.identities.ai} knows stays with that name; the agent is {after.identities.ai} now"


def shown(config: HonchoConfiguration, row: Key[Json]) -> str:
    """Return a key's value in force in one line, without secrets, or a dash."""
    value = value_of(config, row)
    return "–" if value is None or value == "" or value == {} else in_words(value)


def value_of(config: HonchoConfiguration, row: Key[Json]) -> Json:
    """Return a key's value in force, derived if unset, without secrets."""
    value = config.get(row)
    return _follows(config).get(row.key, value) if value is None or value == "" else row.shown(value)


def _follows(config: HonchoConfiguration) -> Mapping[str, Json]:
    who = config.identities
    return {
        keys.ENABLED.key: True,
        keys.WORKSPACE.key: config.workspace,
        keys.PEER_NAME.key: who.owner,
        keys.AI_PEER.key: who.ai,
        keys.CONTEXT_TOKENS.key: DEFAULT_TOKENS,
    }


def origin(config: HonchoConfiguration, row: Key[Json]) -> str:
    """Return the source of a value in a word or two."""
    found = config.settings.origin(row)
    return f"variable {row.env}" if found == "environment" else found


def current_directory() -> Path | None:
    """Return the current directory; None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def find_bench(ctx: typer.Context) -> Workbench:
    bench = ctx.find_object(Workbench)
    assert bench is not None, "the group sets it"
    return bench
