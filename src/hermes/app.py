"""The composition root: puts home, settings, clock and store together. Only surfaces use it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from hermes.clock import Clock, SystemClock
from hermes.config_file import load_env, read_entries
from hermes.configuration import ForeignSetting, configure
from hermes.db.engine import Tx
from hermes.home import Home
from hermes.settings import LOCK_TIMEOUT, Settings
from hermes.store.store import Store

T = TypeVar("T")


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


def with_store(app: App, work: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store, do `work`, and close it whatever happens."""

    async def run() -> T:
        async with await app.open_store() as store:
            return await work(store)

    return asyncio.run(run())


def read_store(app: App, look: Callable[[Store, Tx], T]) -> T:
    """What `look` finds in the store, as it is at one moment."""
    return with_store(app, lambda store: store.read(lambda tx: look(store, tx)))


def show_store(app: App, show: Callable[[Store, Tx], T]) -> T:
    """As `read_store`, for what prints or writes as it reads."""
    return with_store(app, lambda store: store.read_once(lambda tx: show(store, tx)))


def write_store(app: App, change: Callable[[Store, Tx], T]) -> T:
    """Change the store in one transaction; what `change` returns."""
    return with_store(app, lambda store: store.write(lambda tx: change(store, tx)))
