"""A plugin outside conversations: commands make one to ask it about its configuration, and tell it who talks on chat
platforms."""

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
PATIENCE = 10.0
"""Seconds that a provider has to say something about its configuration."""


class CommandHost(Struct, frozen=True):
    """See `hermes.memory.provider.Host`. There is no outbox and no loop here: what needs one is refused."""

    home: Path
    profile: str | None
    env: Mapping[str, str]
    clock: Clock
    tell: Callable[[str], object]
    """Takes a line about something that is wrong."""
    is_chosen: bool = True

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
    """The provider called `name`. Raises ProviderError when there is none, or it cannot be made."""
    make = find_provider(name, plugins)
    return guarded(name, "making it", lambda: make(host))


class Overview(Struct, frozen=True):
    """What a provider says of its configuration."""

    is_configured: bool
    remarks: Sequence[str]


def look_over(name: str, plugins: Path, host: CommandHost, people: Sequence[Acquaintance]) -> Overview:
    """Ask a provider about its configuration. Raises ProviderError when it cannot be asked, or does not come back."""

    def look() -> Overview:
        plugin = make_plugin(name, plugins, host)
        configured = guarded(name, "is_available", plugin.is_available)
        return Overview(configured, list(guarded(name, "remarks", lambda: plugin.remarks(people))))

    try:
        return DaemonPool(1, f"look over {name}").submit(look).result(PATIENCE)
    except TimeoutError as error:
        raise ProviderError(f"memory provider {name} has not come back for {PATIENCE:g} s") from error


def guarded(name: str, hook: str, run: Callable[[], T], *passing: type[BaseException]) -> T:
    """What a hook gives. Whatever it raises becomes a ProviderError, but for what is for people and for `passing`."""
    kept: tuple[type[BaseException], ...] = (HermesError, *passing)
    try:
        return run()
    except kept:
        raise
    except Exception as error:  # a plugin may raise anything
        raise ProviderError(f"memory provider {name}: {hook} failed: {type(error).__name__}: {error}") from error


def invited(allowed: Iterable[str]) -> list[Acquaintance]:
    """Those whom the settings alone let in: where there is no store yet, nobody else is known."""
    return [Acquaintance(platform, user_id) for platform, user_id in named(allowed)]


def acquaintances(tx: Tx, allowed: Iterable[str]) -> list[Acquaintance]:
    """Everyone who is known or may talk, as a provider knows them."""
    return [
        Acquaintance(one.platform, one.user_id, one.name, one.is_owner, one.marked_at is not None)
        for one in everyone(tx, allowed)
    ]
