"""The memory of agents without one, and of incognito turns: it recalls nothing and records nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from hermes.db.engine import Tx
from hermes.memory.book import MemoryBook
from hermes.memory.caller import Recall
from hermes.memory.notes import Notes
from hermes.memory.plugin_thread import Deadline, HookResult, Missed
from hermes.memory.values import Ending, Notebook
from hermes.store.store import Store
from hermes.types import Json, Message, ToolSpec


class NoMemory:
    """A `hermes.memory.caller.Memory` whose methods do nothing."""

    name = "none"
    state: Literal["off", "ok", "failing"] = "off"

    def take_notices(self) -> list[str]:
        return []

    def open_book(self, store: Store, notes: Notes) -> MemoryBook:
        return MemoryBook(store, notes, None, Notebook(None))

    def said(self, tx: Tx, messages: Sequence[Message]) -> None:
        pass

    async def ask_only(self, turn: int) -> None:
        pass

    def replied(self, tx: Tx, message: Message) -> None:
        pass

    def begin(self) -> Deadline:
        return Deadline(0.0, 0.0)

    async def prompt_block(self, deadline: Deadline, *, with_tools: bool = True) -> str | None:  # noqa: ARG002 - the shape
        return ""

    async def tools(self, deadline: Deadline, taken: Collection[str] = ()) -> tuple[ToolSpec, ...]:  # noqa: ARG002
        return ()

    async def recall(self, messages: Sequence[Message], deadline: Deadline, *, is_read: bool = True) -> Recall:  # noqa: ARG002
        return Recall()

    async def call_tool(self, name: str, arguments: Mapping[str, Json], key: str) -> HookResult[str]:  # noqa: ARG002
        return Missed("there is no memory provider", skipped=True)

    async def turn_over(self) -> None:
        pass

    def after_turn(self, messages: Sequence[Message]) -> None:
        pass

    def note_written(self, target: str, action: str, text: str) -> None:
        pass

    async def delegated(self, task: str, result: str) -> None:
        pass

    async def before_compress(self, messages: Sequence[Message]) -> None:
        pass

    async def retitled(self, title: str) -> None:
        pass

    async def undoing(self) -> None:
        pass

    async def undone(self, lanes: Iterable[str]) -> None:
        pass

    async def settle(self) -> None:
        pass

    async def close(self, why: Ending = "exit") -> None:
        pass
