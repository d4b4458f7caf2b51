"""The provider's session of one conversation: opened when it is first needed, asked within deadlines, closed once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from operator import methodcaller
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hermes.db.engine import Tx
from hermes.errors import StoreError
from hermes.memory.active import ActiveProvider
from hermes.memory.mirror import Mirrored
from hermes.memory.notes import Notes
from hermes.memory.offered import address_flaw
from hermes.memory.outbox import Spot
from hermes.memory.plugin_thread import Expected, HookResult, Missed, Returned
from hermes.memory.provider import MemoryPlugin, MemorySession
from hermes.memory.values import Address, Conversation, Ending, Question
from hermes.store.memory_rows import find_place, told_title

T = TypeVar("T")
NOTHING = type(None)


class OpenedMemory(Struct, frozen=True):
    """A session that is open, and what is the same for its life."""

    session: MemorySession
    address: Address
    block: str
    tools: Sequence[object]
    block_without_tools: str | None = None


class SessionCaller:
    """Calls the hooks of one conversation's session, one question at a time; preparing goes on beside them."""

    def __init__(self, provider: ActiveProvider, conversation: Conversation, notes: Notes) -> None:
        self._provider = provider
        self.conversation = conversation
        self._notes = notes
        self.opened: OpenedMemory | None = None
        self._opening: asyncio.Task[OpenedMemory | None] | None = None
        self.asked: tuple[int, ...] = ()
        """The messages of the turn that is under way, which has no reply yet."""
        self._given_up: float | None = None
        """The deadline of the turn that goes on without a session."""
        self._preparing: asyncio.Task[None] | None = None
        self._next: list[Question | None] = []

    @property
    def spot(self) -> Spot:
        """The conversation, with its address while the session is open."""
        address = None if self.opened is None else self.opened.address
        return Spot(self.conversation.session_id, self.conversation, address, self.asked)

    def hide_title(self, tx: Tx) -> None:
        """Leave out a title that was given incognito, before the provider hears of the conversation."""
        if self.opened is None and self.conversation.title is not None:
            title = told_title(tx, self.conversation.session_id, self.conversation.title)
            self.conversation = replace(self.conversation, title=title)

    async def open(self, until: float) -> OpenedMemory | None:
        """The session; None when it cannot be opened by then. It is then opened for the next turn."""
        if self.opened is not None or until == self._given_up:
            return self.opened
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open(until))
        done, _ = await asyncio.wait({self._opening}, timeout=max(0.0, until - _now()))
        if not done:
            self._provider.report_late_open(self.conversation.session_id)
        if self.opened is None:
            self._given_up = until
        return self.opened

    async def ask(
        self,
        hook: str,
        run: Callable[[MemorySession], Awaitable[T]],
        expect: Expected[T],
        until: float,
        *,
        line: str = "ask",
        flaw: Callable[[T], str] = lambda _: "",
    ) -> HookResult[T]:
        """Call a hook of the open session."""
        opened, whose = self.opened, self.conversation.session_id
        assert opened is not None, "only an open session is asked"
        return await self._provider.call(
            hook, lambda _: run(opened.session), expect, until, line=f"{line}:{whose}", whose=whose, flaw=flaw
        )

    def prepare(self, question: Question | None) -> None:
        """Have the session prepare its next recall. While it does, the newest question waits and others are let go."""
        self._next = [question]
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare())

    async def prepared(self) -> None:
        """Return when nothing is being prepared."""
        if self._preparing is not None:
            await asyncio.wait({self._preparing})

    async def close(self, why: Ending, until: float) -> None:
        """Let the session go. One that was never opened is not."""
        for task in (self._preparing, self._opening):
            if task is not None:
                task.cancel()
        if self.opened is not None:
            wall = self._provider.wall(until)
            await self.ask("close", lambda session: session.close(why, wall), NOTHING, until)
        self._provider.let_go(self.conversation.session_id)

    async def _open(self, until: float) -> OpenedMemory | None:
        session_id, provider = self.conversation.session_id, self._provider
        try:
            known = await provider.store.read(lambda tx: find_place(tx, provider.name, session_id))
        except StoreError as error:
            provider.report("open", Missed(f"open failed: {error.line()}"), session_id)
            return None
        if known is not None:
            directory = known.about.get("directory")
            here = self.conversation.directory if directory is None else Path(directory)
            self.conversation = replace(self.conversation, bound=known.bound, directory=here)
        conversation = self.conversation

        async def open_session(plugin: MemoryPlugin) -> OpenedMemory:
            address = plugin.address(conversation)
            session = plugin.open(conversation, address)
            return OpenedMemory(session, address, session.prompt_block, session.tools, session.block_without_tools)

        patience = max(until, _now() + provider.deadlines.tool)
        found = await provider.call(
            "open", open_session, OpenedMemory, patience, line=f"open:{session_id}", whose=session_id, flaw=_wrong_types
        )
        if not isinstance(found, Returned) or _wrong_types(found.value):
            return None
        self.opened = found.value
        self.prepare(None)
        provider.mirror_soon(Mirrored.of(self._notes, conversation), None)
        provider.background.begin(provider.address_place(self.spot, self.opened.address), "addressing a conversation")
        return self.opened

    async def _prepare(self) -> None:
        while self._next and self.opened is not None:
            question = self._next.pop()
            async with self._provider.preparing:
                until = _now() + self._provider.deadlines.prepare
                await self.ask("prepare", methodcaller("prepare", question), NOTHING, until, line="prepare")


def _wrong_types(opened: OpenedMemory) -> str:
    """What of an opened session is not what it should be: a plugin may give anything."""
    parts: dict[str, tuple[object, type]] = {
        "MemorySession": (opened.session, MemorySession),
        "Address": (opened.address, Address),
        "prompt_block": (opened.block, str),
        "tools": (opened.tools, Sequence),
        "block_without_tools": (opened.block_without_tools or "", str),
    }
    wrong = [
        f"{type(given).__name__} as {name}" for name, (given, kind) in parts.items() if not isinstance(given, kind)
    ]
    return wrong[0] if wrong else address_flaw(opened.address)


def _now() -> float:
    return asyncio.get_running_loop().time()
