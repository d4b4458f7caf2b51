"""The composition root: combines home, settings, clock and store. Only front ends use it."""

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
    """The starting point of every command."""

    home: Home
    env: Mapping[str, str]
    settings: Settings
    clock: Clock
    foreign: Sequence[ForeignSetting] = ()
    """Keys of config.yaml that are not ours."""

    @classmethod
    def load(cls, profile: str | None = None) -> App:
        """Find the home and read its settings, without writing anything. Raises NotFoundError for an unknown
        profile."""
        home = Home.find_existing(os.environ, profile)
        env = load_env(home)
        found = configure(read_entries(home.config_file), env)
        return cls(home, env, found.checked(), SystemClock(), found.foreign)

    async def open_store(self) -> Store:
        """Open the profile's store, creating it if needed."""
        self.home.ensure()
        return await Store.open(
            self.home.state_file,
            clock=self.clock,
            lock_timeout=self.settings.get(LOCK_TIMEOUT),
            old_routes_file=self.home.old_routes_file,
        )


def with_store(app: App, work: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store, run `work`, and close the store in any case."""

    async def run() -> T:
        async with await app.open_store() as store:
            return await work(store)

    return asyncio.run(run())


def read_store(app: App, look: Callable[[Store, Tx], T]) -> T:
    """Return the result of `look` on one snapshot of the store."""
    return with_store(app, lambda store: store.read(lambda tx: look(store, tx)))


def show_store(app: App, show: Callable[[Store, Tx], T]) -> T:
    """Return the result of `show` on one snapshot. Unlike `read_store`, it runs exactly once, so it may print or
    write."""
    return with_store(app, lambda store: store.read_once(lambda tx: show(store, tx)))


def write_store(app: App, change: Callable[[Store, Tx], T]) -> T:
    """Change the store in one transaction and return the result of `change`."""
    return with_store(app, lambda store: store.write(lambda tx: change(store, tx)))
