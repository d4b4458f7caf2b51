"""The profiles of this installation, and which of them share a memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hermes.config_file import load_env, read_entries
from hermes.errors import HermesError, SettingsError
from hermes.home import Home
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.keys import ENV_HOST
from hermes.honcho.server import HonchoServer, Machine, configured_server, find_server
from hermes.settings import PROVIDER
from hermes.settings.layers import Layer, environment


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
