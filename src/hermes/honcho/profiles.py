"""The profiles of this installation as Honcho sees them, and which of them tell the same memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hermes.config_file import load_env, read_entries
from hermes.errors import HermesError, SettingsError
from hermes.home import Home
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.keys import ENV_HOST
from hermes.honcho.server import HonchoServer, Machine, find_server, meant_server
from hermes.settings import PROVIDER
from hermes.settings.layers import Layer, environment


def machines(machine: Machine) -> Iterator[Machine]:
    """The machine as every profile sees it, the default one first; this one itself where it is its turn."""
    for home in machine.home.all():
        yield machine if home.path == machine.home.path else _at(home)


def find_sharing(machine: Machine, config: HonchoConfiguration) -> Iterator[tuple[str, bool]]:
    """The other profiles that tell the same workspace of the same server, or will once Honcho is chosen there; False
    with one whose configuration is broken, of which nobody can tell."""
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
    """The memory that a profile tells, and the one that it means. Raises SettingsError for a broken configuration."""
    config = machine.load().checked()
    return [_memory(machine, find(config), config.workspace) for find in (find_server, meant_server)]


def _at(home: Home) -> Machine:
    """Another profile has an `.env` of its own; a variable that names the host block is meant for this one."""
    env = {name: value for name, value in load_env(home).items() if name != ENV_HOST}
    return Machine(home, env, is_chosen=named_provider(home, env) is not None)


def named_provider(home: Home, env: Mapping[str, str]) -> str | None:
    """Return the memory provider that a person chose in a profile; None for none. A broken file is told where it is
    used."""
    try:
        given = {entry.key: entry for entry in read_entries(home.config_file)}
    except SettingsError:
        return None
    layers = (Layer("file", given), environment([PROVIDER], env))
    return next((str(found.value) for layer in layers if (found := layer.find(PROVIDER)) is not None), None)


def _memory(machine: Machine, server: HonchoServer, workspace: str) -> tuple[str, ...]:
    """What tells one memory from another."""
    where = str(machine.memory.folder) if server.kind == "embedded" else server.url
    return server.kind, where, workspace
