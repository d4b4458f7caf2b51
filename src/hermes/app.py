"""The composition root: puts home, settings, clock and store together. Only surfaces use it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.clock import Clock, SystemClock
from hermes.config_file import load_env, read_entries
from hermes.configuration import ForeignSetting, configure
from hermes.home import Home
from hermes.settings import LOCK_TIMEOUT, Settings
from hermes.store.store import Store


class App(Struct, frozen=True):
    """What every command starts from."""

    home: Home
    env: Mapping[str, str]
    settings: Settings
    clock: Clock
    foreign: Sequence[ForeignSetting] = ()
    """Keys of config.yaml that are not ours."""

    @classmethod
    def load(cls, profile: str | None = None) -> App:
        """Find the home and read its settings. Nothing is written. Raises NotFoundError for a profile that is not
        there."""
        home = Home.find_existing(os.environ, profile)
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
