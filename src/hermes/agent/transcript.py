"""Transcripts: they record a conversation and build the next request from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import asdict

from hermes.agent.context import build_context
from hermes.types import Draft, Json, LiveView, Message, ToolSpec


class PreparedRequest(Struct, frozen=True):
    """The messages of a request, a notice for the person about them, and their estimated tokens if counted."""

    messages: list[dict[str, Json]]
    notice: str | None = None
    tokens: int | None = None


class Transcript(Protocol):
    """The interface that the loop of model and tools uses."""

    async def request(self, tools: Sequence[ToolSpec]) -> PreparedRequest:
        """Return the next request, fitted to the model's window."""

    async def conclude(self, reply: Draft) -> Message:
        """Record the reply that ends a turn."""

    async def shrink(self) -> bool:
        """Shorten the conversation after the model refused a request as too long. Return True if it is shorter now."""

    async def add(self, *drafts: Draft) -> list[Message]:
        """Record messages. They are durable when this returns."""


class ScratchTranscript:
    """The transcript of a temporary agent, kept in memory only."""

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
