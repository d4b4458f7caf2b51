"""Where a conversation is written as it goes on, and read back for the next request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import asdict

from hermes.agent.context import build_context
from hermes.types import Draft, Json, LiveView, Message, ToolSpec


class PreparedRequest(Struct, frozen=True):
    """The messages of a request, what a person should know of how they came to be, and about how many tokens it is,
    where that was counted."""

    messages: list[dict[str, Json]]
    notice: str | None = None
    tokens: int | None = None


class Transcript(Protocol):
    """What the loop between model and tools reads and writes."""

    async def request(self, tools: Sequence[ToolSpec]) -> PreparedRequest:
        """The next request, made to fit the model's window."""

    async def conclude(self, reply: Draft) -> Message:
        """Record the reply that ends a turn."""

    async def shrink(self) -> bool:
        """The model found the request too long. True when the next one is shorter."""

    async def add(self, *drafts: Draft) -> list[Message]:
        """Record what was said. When this returns it cannot get lost."""


class ScratchTranscript:
    """A temporary agent's transcript: it is gone when the agent is."""

    def __init__(self, system_prompt: str, messages: Sequence[Draft], now: float, recalled: str = "") -> None:
        self._system_prompt = system_prompt
        self._recalled = recalled
        self._now = now
        self._messages: list[Message] = []
        self._put(messages)

    async def request(self, tools: Sequence[ToolSpec]) -> PreparedRequest:  # noqa: ARG002 - a short task always fits
        view = LiveView("", 0, (), None, tuple(self._messages))
        return PreparedRequest(build_context(self._system_prompt, view, self._recalled))

    async def shrink(self) -> bool:
        return False

    async def conclude(self, reply: Draft) -> Message:
        return self._put([reply])[0]

    async def add(self, *drafts: Draft) -> list[Message]:
        return self._put(drafts)

    def _put(self, drafts: Sequence[Draft]) -> list[Message]:
        first = len(self._messages) + 1
        added = [
            Message(id=number, session_id="", timestamp=self._now, **asdict(draft))
            for number, draft in enumerate(drafts, start=first)
        ]
        self._messages += added
        return added
