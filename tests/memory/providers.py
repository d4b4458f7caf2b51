"""Providers for tests: one that records every hook, and one of whose hooks misbehaves as it is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from hermes.memory.caller import Deadlines
from hermes.memory.provider import FinishedTurn, MemoryProvider, ProviderContext
from hermes.types import Json, Message, ToolSpec

CONTEXT = ProviderContext(home=Path("home"), profile=None, session_id="s1", platform="cli")
SHORT = Deadlines(first_turn=0.3, turn=0.3, tool=0.3, compress=0.3, close=0.6)
PATIENT = Deadlines(first_turn=10, turn=10, tool=10, compress=10, close=10)
LOOKUP = ToolSpec("lookup", "Look something up.", {"type": "object", "properties": {"what": {"type": "string"}}})


class Recorder(MemoryProvider):
    """Answers every hook well and keeps what it was called with: (hook, arguments...)."""

    name = "recorder"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def hooks(self) -> list[str]:
        """The hooks that were called, in order."""
        return [call[0] for call in self.calls]

    def called(self, hook: str) -> list[tuple[Any, ...]]:
        """The arguments of every call of one hook."""
        return [call[1:] for call in self.calls if call[0] == hook]

    async def is_available(self) -> bool:
        self.calls.append(("is_available",))
        return True

    async def initialize(self, context: ProviderContext) -> None:
        self.calls.append(("initialize", context))

    async def system_prompt_block(self) -> str:
        self.calls.append(("system_prompt_block",))
        return "The block of the provider."

    async def prefetch(self, query: str) -> str:
        self.calls.append(("prefetch", query))
        return f"recalled for {query}"

    async def queue_prefetch(self, query: str) -> None:
        self.calls.append(("queue_prefetch", query))

    async def sync_turn(self, turn: FinishedTurn) -> None:
        self.calls.append(("sync_turn", turn))

    async def tool_schemas(self) -> Sequence[ToolSpec]:
        self.calls.append(("tool_schemas",))
        return [LOOKUP]

    async def handle_tool_call(self, name: str, arguments: Mapping[str, Json]) -> str:
        self.calls.append(("handle_tool_call", name, arguments))
        return f"{name} found {arguments.get('what')}"

    async def on_turn_start(self, session_id: str, text: str) -> None:
        self.calls.append(("on_turn_start", session_id, text))

    async def on_session_end(self, session_id: str) -> None:
        self.calls.append(("on_session_end", session_id))

    async def on_pre_compress(self, messages: Sequence[Message]) -> None:
        self.calls.append(("on_pre_compress", tuple(messages)))

    async def on_memory_write(self, target: str, action: Literal["add", "replace", "remove"], text: str) -> None:
        self.calls.append(("on_memory_write", target, action, text))

    async def on_delegation(self, task: str, result: str) -> None:
        self.calls.append(("on_delegation", task, result))

    async def shutdown(self) -> None:
        self.calls.append(("shutdown",))


Behaviour = Callable[[], Awaitable[Any]]


class Troubled(Recorder):
    """Does what `trouble` does in one hook as long as `troubled` is set, and is well otherwise."""

    def __init__(self, hook: str, trouble: Behaviour) -> None:
        super().__init__()
        self.troubled = True
        self._hook = hook
        self._trouble = trouble
        self._well = getattr(self, hook)
        setattr(self, hook, self._run)

    async def _run(self, *args: Any) -> Any:
        if self.troubled:
            self.calls.append((self._hook, *args))
            return await self._trouble()
        return await self._well(*args)


async def raise_error() -> None:
    raise RuntimeError("the disk\nof the provider\nis on fire")


async def exit_process() -> None:
    raise SystemExit(3)


async def interrupt() -> None:
    raise KeyboardInterrupt


async def hang() -> None:
    await asyncio.Event().wait()


async def block_thread() -> None:
    time.sleep(1.5)  # noqa: ASYNC251 - the very thing under test


async def swallow_cancel() -> None:
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        try:
            await asyncio.sleep(until - time.monotonic())
        except asyncio.CancelledError:
            continue


async def hang_in_pool() -> None:
    await asyncio.to_thread(time.sleep, 1.5)


async def leave_broken_task() -> None:
    async def later() -> None:
        raise SystemExit(4)

    await asyncio.gather(asyncio.create_task(later()))


class Unprintable(Exception):
    """An error whose own text raises."""

    def __str__(self) -> str:
        raise ValueError("no words")


async def raise_unprintable() -> None:
    raise Unprintable


async def cancel_itself() -> None:
    raise asyncio.CancelledError


TROUBLES: dict[str, Behaviour] = {
    run.__name__: run
    for run in (
        *(raise_error, exit_process, interrupt, raise_unprintable, cancel_itself, leave_broken_task),
        *(hang, block_thread, swallow_cancel, hang_in_pool),
    )
}
