"""The composition root: puts home, settings, clock and store together. Only surfaces use it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.clock import Clock, SystemClock
from hermes.config_file import read_entries, read_env_file
from hermes.configuration import Foreign, configure
from hermes.home import Home
from hermes.settings import LOCK_TIMEOUT, Settings
from hermes.store.store import Store


def load_env(home: Home) -> dict[str, str]:
    """The environment, with `.env` of the home below it: a variable that is set already wins."""
    return {**read_env_file(home.env_file), **os.environ}


def load_shared_env(home: Home) -> dict[str, str]:
    """The same for what all profiles share, such as the memory server: `.env` of the default home is below it all."""
    return {**read_env_file(home.shared / home.env_file.name), **load_env(home)}


class App(Struct, frozen=True):
    """What every command starts from."""

    home: Home
    env: Mapping[str, str]
    settings: Settings
    clock: Clock
    foreign: Sequence[Foreign] = ()
    """Keys of config.yaml that are not ours."""

    @classmethod
    def load(cls, profile: str | None = None) -> App:
        """Find the home and read its settings. Nothing is written."""
        home = Home.find(os.environ, profile)
        env = load_env(home)
        found = configure(read_entries(home.config_file), env)
        return cls(home, env, found.checked(), SystemClock(), found.foreign)

    async def open_store(self) -> Store:
        """The profile's store, made if it is not there."""
        self.home.ensure()
        return await Store.open(
            self.home.state_file,
            clock=self.clock,
            lock_timeout=self.settings.get(LOCK_TIMEOUT),
            old_routes_file=self.home.old_routes_file,
        )
