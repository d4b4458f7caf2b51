"""The host that a plugin receives: home and clock, durable entries and values, locks, and reports of trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from hermes.clock import Clock
from hermes.db.engine import Tx
from hermes.db.queue_items import find
from hermes.errors import ProviderError
from hermes.memory.command_host import acquaintances
from hermes.memory.outbox import Outbox, Spot
from hermes.memory.plugin_thread import MAX_ERROR_CHARS
from hermes.memory.provider import Acquaintance
from hermes.memory.values import Conversation, Delivered, Parked, Speaker
from hermes.store.memory_rows import all_places, find_place, get_value, set_value
from hermes.store.store import Store
from hermes.types import Json

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
            spot = Spot(session_id, Conversation.from_json(known.about))
            ticket = self.outbox.put(tx, spot, "own", key, "", data, speaker, now=self.clock.now())
            if ticket is None:
                raise ProviderError("the provider's address does not want entries of its own", hint="")
            return ticket

        ticket = await self.store.write(commit)
        self.wake_delivery()
        return ticket

    async def outcome(self, ticket: str, until: float) -> Delivered | Parked | None:
        while True:
            item = await self.store.read(lambda tx: find(tx, self.outbox.queue, ticket))
            if item is not None and item.state == "done":
                return Delivered(item.reason)
            if item is not None and item.state == "dead":
                return Parked(item.reason or "")
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
