"""The host that a plugin receives: home and clock, durable entries and values, locks, and reports of trouble.

A plugin outside of conversations: commands create one to query its configuration and to show it who uses chats.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from hermes.clock import Clock
from hermes.db.engine import Tx
from hermes.db.queue_items import find
from hermes.errors import HermesError, ProviderError
from hermes.memory.outbox import Destination, Outbox
from hermes.memory.plugin_thread import MAX_ERROR_CHARS, DaemonPool
from hermes.memory.provider import Acquaintance, MemoryPlugin
from hermes.memory.registry import find_provider
from hermes.memory.values import Conversation, DeadLetter, Delivered, Speaker
from hermes.store.memory_rows import all_places, find_place, get_value, set_value
from hermes.store.people import everyone, named
from hermes.store.store import Store
from hermes.types import Json

T = TypeVar("T")
CONFIGURATION_TIMEOUT_SECONDS = 10.0
"""Time limit for a provider's answers about its configuration."""


class CommandHost(Struct, frozen=True):
    """A `hermes.memory.provider.Host` for commands. It has no outbox and no loop: methods that need one are
    refused."""

    home: Path
    profile: str | None
    env: Mapping[str, str]
    clock: Clock
    tell: Callable[[str], object]
    """Receives a line about a problem."""
    is_chosen: bool = True
    owner_name: str = ""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()
        _refuse(name)

    async def put(self, session_id: str, key: str, data: Json, speaker: Speaker | None = None) -> str:  # noqa: ARG002
        _refuse("an entry")

    async def outcome(self, ticket: str, until: float) -> Delivered | DeadLetter | None:  # noqa: ARG002
        _refuse("an outcome")

    def trouble(self, about: str, line: str | None) -> None:  # noqa: ARG002
        if line is not None:
            self.tell(line)

    async def ask_model(self, instructions: str, text: str, until: float) -> str:  # noqa: ARG002
        _refuse("a model")

    def locked(self, path: Path, until: float) -> AbstractAsyncContextManager[None]:  # noqa: ARG002
        _refuse("a lock")

    async def kept(self, key: str) -> Json:
        _refuse(key)

    async def keep(self, key: str, value: Json) -> None:  # noqa: ARG002
        _refuse(key)

    async def conversations(self) -> Sequence[Conversation]:
        _refuse("what was said")

    async def people(self) -> Sequence[Acquaintance]:
        _refuse("who talks")


def _refuse(what: str) -> NoReturn:
    raise ProviderError(f"{what} is for conversations, and this is a command", hint="")


def make_plugin(name: str, plugins: Path, host: CommandHost) -> MemoryPlugin:
    """Create the provider's plugin. Raises ProviderError if it does not exist or cannot be created."""
    make = find_provider(name, plugins)
    return guarded(name, "making it", lambda: make(host))


class Overview(Struct, frozen=True):
    """The state of a provider's configuration."""

    is_configured: bool
    remarks: Sequence[str]


def look_over(name: str, plugins: Path, host: CommandHost, people: Sequence[Acquaintance]) -> Overview:
    """Check a provider's configuration. Raises ProviderError if it fails or does not answer in time."""

    def look() -> Overview:
        plugin = make_plugin(name, plugins, host)
        configured = guarded(name, "is_available", plugin.is_available)
        return Overview(configured, list(guarded(name, "remarks", lambda: plugin.remarks(people))))

    try:
        return DaemonPool(1, f"look over {name}").submit(look).result(CONFIGURATION_TIMEOUT_SECONDS)
    except TimeoutError as error:
        raise ProviderError(
            f"memory provider {name} did not answer within {CONFIGURATION_TIMEOUT_SECONDS:g} s"
        ) from error


def guarded(name: str, hook: str, run: Callable[[], T], *passing: type[BaseException]) -> T:
    """Return the result of a hook. Its errors become ProviderError, except HermesErrors and those in `passing`."""
    kept: tuple[type[BaseException], ...] = (HermesError, *passing)
    try:
        return run()
    except kept:
        raise
    except Exception as error:  # a plugin may raise anything
        raise ProviderError(f"memory provider {name}: {hook} failed: {type(error).__name__}: {error}") from error


def invited(allowed: Iterable[str]) -> list[Acquaintance]:
    """Return the people whom the settings allow; without a store, no others are known."""
    return [Acquaintance(platform, user_id) for platform, user_id in named(allowed)]


def acquaintances(tx: Tx, allowed: Iterable[str]) -> list[Acquaintance]:
    """Return everyone who is known or allowed, as providers see them."""
    return [
        Acquaintance(one.platform, one.user_id, one.name, one.is_owner, one.marked_at is not None)
        for one in everyone(tx, allowed)
    ]


WORK_POLL_SECONDS = 0.05
"""How often the outcome of an entry, and a lock held by another process, are checked."""
KEPT_KIND = "kept"
MAX_VALUE_CHARS = 64_000
"""Limits an entry of the plugin's own, and a value to keep."""


class PluginHost(Struct, frozen=True):
    """The `hermes.memory.provider.Host` of a running agent. Its methods run in the plugin's thread."""

    home: Path
    profile: str | None
    env: Mapping[str, str]
    is_chosen: bool
    store: Store
    outbox: Outbox
    report_trouble: Callable[[str, str | None], object]
    run_beside: Callable[[Coroutine[Any, Any, None], str], None]
    wake_delivery: Callable[[], object]
    begin_asking: Callable[[str, str], Future[str]] | None = None
    """Calls the configured model on the host's loop; None without a model."""
    owner_name: str = ""

    @property
    def clock(self) -> Clock:
        return self.store.clock

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.run_beside(work, name)

    async def put(self, session_id: str, key: str, data: Json, speaker: Speaker | None = None) -> str:
        if len(repr(data)) > MAX_VALUE_CHARS:
            raise ProviderError(f"an entry for memory has more than {MAX_VALUE_CHARS} characters", hint="Shorten it")

        def commit(tx: Tx) -> str:
            known = find_place(tx, self.outbox.provider, session_id)
            if known is None or not self.store.sessions.exists(tx, session_id):
                raise ProviderError(f"memory knows no conversation {session_id}", hint="")
            if self.store.incognito.is_on(tx, session_id):
                raise ProviderError("the conversation is incognito: nothing of it is kept", hint="")
            destination = Destination(session_id, Conversation.from_json(known.about))
            ticket = self.outbox.put(tx, destination, "own", key, "", data, speaker, now=self.clock.now())
            if ticket is None:
                raise ProviderError("the provider's address does not want entries of its own", hint="")
            return ticket

        ticket = await self.store.write(commit)
        self.wake_delivery()
        return ticket

    async def outcome(self, ticket: str, until: float) -> Delivered | DeadLetter | None:
        while True:
            item = await self.store.read(lambda tx: find(tx, self.outbox.queue, ticket))
            if item is not None and item.state == "done":
                return Delivered(item.reason)
            if item is not None and item.state == "dead":
                return DeadLetter(item.reason or "")
            if self.clock.now() >= until:
                return None
            await self.clock.sleep(WORK_POLL_SECONDS)

    def trouble(self, about: str, line: str | None) -> None:
        self.report_trouble(about, None if line is None else " ".join(line.split())[:MAX_ERROR_CHARS])

    async def ask_model(self, instructions: str, text: str, until: float) -> str:
        if self.begin_asking is None:
            raise ProviderError("no model is configured", hint="")
        try:
            async with asyncio.timeout(max(0.0, until - self.clock.now())):
                return await asyncio.wrap_future(self.begin_asking(instructions, text))
        except TimeoutError:
            raise ProviderError("the model took too long", hint="") from None

    @asynccontextmanager
    async def locked(self, path: Path, until: float) -> AsyncIterator[None]:
        from filelock import FileLock, Timeout

        lock = FileLock(f"{path}.lock", thread_local=False, mode=0o600)
        while True:
            try:
                lock.acquire(timeout=0)
                break
            except Timeout:
                if self.clock.now() >= until:
                    raise TimeoutError(f"another process holds {path}.lock") from None
            await self.clock.sleep(WORK_POLL_SECONDS)
        try:
            yield
        finally:
            lock.release()

    async def kept(self, key: str) -> Json:
        return await self.store.read(lambda tx: get_value(tx, self.outbox.provider, KEPT_KIND, key))

    async def keep(self, key: str, value: Json) -> None:
        if len(key) + len(repr(value)) > MAX_VALUE_CHARS:
            raise ProviderError(f"a value to keep has more than {MAX_VALUE_CHARS} characters", hint="")
        await self.store.write(lambda tx: set_value(tx, self.outbox.provider, KEPT_KIND, key, value))

    async def conversations(self) -> Sequence[Conversation]:
        rows = await self.store.read(lambda tx: all_places(tx, self.outbox.provider))
        return [Conversation.from_json(row.about, row.bound) for row in rows if "session_id" in row.about]

    async def people(self) -> Sequence[Acquaintance]:
        return await self.store.read(lambda tx: acquaintances(tx, ()))
