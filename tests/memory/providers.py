"""Providers for tests: one that records every hook, and one of whose hooks misbehaves as configured."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from hermes.memory.active import Deadlines
from hermes.memory.provider import (
    Address,
    Conversation,
    Delivered,
    Ending,
    Entry,
    EntryKind,
    Host,
    MemoryPlugin,
    MemorySession,
    Notebook,
    Outcome,
    Part,
    Question,
    Recalled,
    Speaker,
    ToolUse,
)
from hermes.memory.values import DEFAULT_WANTS
from hermes.types import Message, ToolSpec

OWNER = Speaker(is_owner=True)
CONVERSATION = Conversation("s1", "cli", "everything", OWNER)
PATIENT = Deadlines(first_turn=60, turn=60, tool=60, compress=60, close=60, prepare=60, delivered=60, deliver=60)
"""Longer than a busy machine delays a healthy hook."""
LOOKUP = ToolSpec("lookup", "Look something up.", {"type": "object", "properties": {"what": {"type": "string"}}})
BLOCK = "The block of the provider."


class RecordedSession(MemorySession):
    """A session that works, and reports each call to its plugin."""

    def __init__(self, plugin: Recorder, conversation: Conversation) -> None:
        self._plugin = plugin
        self._conversation = conversation
        self.prompt_block = plugin.block
        self.tools = plugin.tools

    async def prepare(self, question: Question | None) -> None:
        return await self._plugin.run("prepare", None, None if question is None else question.text)  # type: ignore[no-any-return]

    async def recall(self, question: Question) -> Recalled:
        found = Recalled((Part("all", f"recalled for {question.text}", self._plugin.host.clock.now(), 4),))
        return await self._plugin.run("recall", found, question.text)  # type: ignore[no-any-return]

    async def call_tool(self, use: ToolUse, speaker: Speaker) -> str:
        if use.name != "lookup":
            raise KeyError(use.name)
        answer = f"{use.name} found {use.arguments.get('what')}"
        return await self._plugin.run("call_tool", answer, use.name, use.arguments)  # type: ignore[no-any-return]

    async def before_compress(self, leaving: Sequence[Message], until: float) -> None:
        return await self._plugin.run("before_compress", None, tuple(leaving))  # type: ignore[no-any-return]

    async def retitled(self, title: str) -> None:
        return await self._plugin.run("retitled", None, title)  # type: ignore[no-any-return]

    async def close(self, why: Ending, until: float) -> None:
        return await self._plugin.run("close", None, why)  # type: ignore[no-any-return]


class Recorder(MemoryPlugin):
    """A plugin that works, and records its calls: (hook, arguments...). It is its own factory."""

    name = "recorder"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.entries: list[Entry] = []
        self.block = BLOCK
        self.tools: Sequence[ToolSpec] = [LOOKUP]
        self.wants: Collection[EntryKind] = {*DEFAULT_WANTS, "delegation"}
        self.pace: Any = "async"

    def __call__(self, host: Host) -> Recorder:
        self.host = host
        return self

    def hooks(self) -> list[str]:
        """Return the names of the called hooks, in order."""
        return [call[0] for call in self.calls]

    def called(self, hook: str) -> list[tuple[Any, ...]]:
        """Return the arguments of all calls of a hook."""
        return [call[1:] for call in self.calls if call[0] == hook]

    def told(self, *kinds: str) -> list[str]:
        """Return the texts of delivered entries, in order."""
        return [entry.text for entry in self.entries if entry.kind in (kinds or ("said", "reply"))]

    async def run(self, hook: str, answer: Any, *args: Any) -> Any:
        """Run one asynchronous hook."""
        self.calls.append((hook, *args))
        return answer

    def is_available(self) -> bool:
        self.calls.append(("is_available",))
        return True

    def address(self, place: Conversation | Notebook) -> Address:
        lane = place.session_id if isinstance(place, Conversation) else "notes"
        return Address(lane, {"to": lane}, frozenset(self.wants), self.pace)

    def open(self, conversation: Conversation, address: Address) -> MemorySession:
        self.calls.append(("open", conversation))
        return RecordedSession(self, conversation)

    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        self.entries += entries
        done: list[Outcome] = [Delivered()] * len(entries)
        return await self.run("deliver", done, *((entry.kind, entry.text) for entry in entries))  # type: ignore[no-any-return]

    async def shutdown(self, until: float) -> None:
        return await self.run("shutdown", None)  # type: ignore[no-any-return]


Behaviour = Callable[[], Awaitable[Any]]


class Troubled(Recorder):
    """A plugin that runs `trouble` in one hook while `troubled` is set, and otherwise works."""

    name = "troubled"

    def __init__(self, hook: str, trouble: Behaviour) -> None:
        super().__init__()
        self.troubled = True
        self._hook = hook
        self._trouble = trouble

    async def run(self, hook: str, answer: Any, *args: Any) -> Any:
        found = await super().run(hook, answer, *args)
        return await self._trouble() if self.troubled and hook == self._hook else found


async def raise_error() -> None:
    raise RuntimeError("the disk\nof the provider\nis on fire")


async def exit_process() -> None:
    raise SystemExit(3)


async def interrupt() -> None:
    raise KeyboardInterrupt


async def hang() -> None:
    await asyncio.Event().wait()


RELEASE_HANGS = threading.Event()
"""Ends a hook that ignores cancellation. A test sets it once it has seen that the hook is reported as late."""
MAX_HANG_SECONDS = 100.0


async def block_thread() -> None:
    RELEASE_HANGS.wait(MAX_HANG_SECONDS)


async def swallow_cancel() -> None:
    until = time.monotonic() + MAX_HANG_SECONDS
    while not RELEASE_HANGS.is_set() and time.monotonic() < until:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue


async def hang_in_pool() -> None:
    await asyncio.to_thread(RELEASE_HANGS.wait, MAX_HANG_SECONDS)


async def leave_broken_task() -> None:
    async def later() -> None:
        raise SystemExit(4)

    await asyncio.gather(asyncio.create_task(later()))


class Unprintable(Exception):
    """An error whose text raises."""

    def __str__(self) -> str:
        raise ValueError("no words")


async def raise_unprintable() -> None:
    raise Unprintable


async def cancel_itself() -> None:
    raise asyncio.CancelledError


HANGING: dict[str, Behaviour] = {run.__name__: run for run in (hang, block_thread, swallow_cancel, hang_in_pool)}
TROUBLES: dict[str, Behaviour] = {
    run.__name__: run
    for run in (raise_error, exit_process, interrupt, raise_unprintable, cancel_itself, leave_broken_task)
} | HANGING
