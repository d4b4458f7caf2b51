"""The profiles of this installation as Honcho sees them, and which of them tell the same memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hermes.config_file import load_env, read_entries
from hermes.errors import SettingsError
from hermes.home import PROFILE_NAME, PROFILES, Home
from hermes.honcho.config_file import Places
from hermes.honcho.configuration import Configuration, load
from hermes.honcho.keys import ENV_HOST
from hermes.honcho.server import Machine, Server, find_server, meant_server
from hermes.settings import PROVIDER
from hermes.settings.layers import Layer, environment

DEFAULT = "default"


def machines(machine: Machine) -> Iterator[Machine]:
    """The machine as every profile sees it, the default one first; this one itself where it is its turn."""
    shared = machine.home.shared
    folders = [one for one in sorted((shared / PROFILES).glob("*")) if one.is_dir()]
    for home in (Home(shared), *(Home(one, one.name) for one in folders if PROFILE_NAME.fullmatch(one.name))):
        yield machine if home.path == machine.home.path else _at(home)


def find_sharing(machine: Machine, config: Configuration) -> Iterator[tuple[str, bool]]:
    """The other profiles that tell the same workspace of the same server, or will once Honcho is chosen there; False
    with one whose configuration is broken, of which nobody can tell."""
    ours = _memory(machine, find_server(config), config.workspace)
    for other in machines(machine):
        if other is machine:
            continue
        places = Places.find(other.home.path, other.home.profile, other.env, other.env.get(ENV_HOST, ""))
        theirs = load(places, other.env, is_chosen=other.is_chosen)
        if theirs.problems:
            yield other.home.profile or DEFAULT, False
        elif any(_memory(other, one(theirs), theirs.workspace) == ours for one in (find_server, meant_server)):
            yield other.home.profile or DEFAULT, True


def _at(home: Home) -> Machine:
    """Another profile has an `.env` of its own; a variable that names the host block is meant for this one."""
    env = {name: value for name, value in load_env(home).items() if name != ENV_HOST}
    return Machine(home, env, is_chosen=_names_provider(home, env))


def _names_provider(home: Home, env: Mapping[str, str]) -> bool:
    """Whether a person chose a memory provider in a profile. A broken file is told where it is used."""
    try:
        given = {entry.key: entry for entry in read_entries(home.config_file)}
    except SettingsError:
        return False
    layers = (Layer("file", given), environment([PROVIDER], env))
    return any(layer.find(PROVIDER) is not None for layer in layers)


def _memory(machine: Machine, server: Server, workspace: str) -> tuple[str, ...]:
    """What tells one memory from another."""
    where = str(machine.memory.folder) if server.kind == "embedded" else server.url
    return server.kind, where, workspace
