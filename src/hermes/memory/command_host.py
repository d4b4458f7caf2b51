"""A plugin outside of conversations: commands create one to query its configuration and to show it who uses chats."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from hermes.clock import Clock
from hermes.db.engine import Tx
from hermes.errors import HermesError, ProviderError
from hermes.memory.provider import Acquaintance, MemoryPlugin
from hermes.memory.registry import find_provider
from hermes.memory.thread_pool import DaemonPool
from hermes.memory.values import Conversation, Delivered, Parked, Speaker
from hermes.store.people import everyone, named
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

    async def outcome(self, ticket: str, until: float) -> Delivered | Parked | None:  # noqa: ARG002
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
