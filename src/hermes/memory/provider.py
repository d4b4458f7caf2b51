"""The one thing the host knows of a memory provider. Every hook but the first few has a default.

Hooks run on an event loop in a thread of the provider's own, each within a deadline; a late one is cancelled. What the
provider is told (`sync_turn`, `queue_prefetch`, `on_memory_write`, `on_delegation`) comes in order, one thing at a
time; while it awaits, a question (`prefetch`, `tool_schemas`) may come in between. A hook may raise: it is then
reported once, with the provider's name, and the turn goes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from hermes.types import Json, Message, ToolSpec


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """What a provider is started with. The gateway's identifiers arrive as the platform gave them."""

    home: Path
    profile: str | None
    session_id: str
    platform: str
    title: str | None = None
    gateway_session_key: str | None = None
    user_id: str | None = None
    user_id_alt: str | None = None
    chat_type: str | None = None


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """One turn, as it is stored: what people said (each message with its author), and the reply, if there was one."""

    session_id: str
    said: tuple[Message, ...]
    reply: Message | None

    @property
    def text(self) -> str:
        """What was said, in one piece."""
        return "\n".join(message.content or "" for message in self.said)


class MemoryProvider(ABC):
    """Long-term memory behind a seam. Name a subclass in the entry-point group `hermes.memory_providers`."""

    name: ClassVar[str]
    """How `memory.provider` calls it."""

    @abstractmethod
    async def is_available(self) -> bool:
        """Whether it is configured well enough to start. Must not use the network."""

    @abstractmethod
    async def initialize(self, context: ProviderContext) -> None:
        """Get ready for one session. Called once, before any other hook but `is_available`."""

    async def system_prompt_block(self) -> str:
        """A static text for the system prompt; asked once per session, so that prompts stay byte-stable."""
        return ""

    async def prefetch(self, query: str) -> str:
        """What is worth recalling for `query`, as plain text; "" for nothing."""
        return ""

    async def queue_prefetch(self, query: str) -> None:
        """Prepare the next `prefetch` in the background."""

    async def sync_turn(self, turn: FinishedTurn) -> None:
        """Take note of a finished turn."""

    async def tool_schemas(self) -> Sequence[ToolSpec]:
        """Tools the model may call."""
        return ()

    async def handle_tool_call(self, name: str, arguments: Mapping[str, Json]) -> str:
        """Run one of `tool_schemas`. The text goes to the model; raise when it failed."""
        raise NotImplementedError(f"{self.name} has no tool {name}")

    async def on_turn_start(self, session_id: str, text: str) -> None:
        """A turn begins."""

    async def on_session_end(self, session_id: str) -> None:
        """The person left or began anew."""

    async def on_session_switch(self, context: ProviderContext) -> None:
        """The same agent goes on with another session."""

    async def on_pre_compress(self, messages: Sequence[Message]) -> None:
        """These messages are about to leave the window."""

    async def on_memory_write(self, target: str, action: Literal["add", "replace", "remove"], text: str) -> None:
        """A built-in note changed."""

    async def on_delegation(self, task: str, result: str) -> None:
        """A sub-agent finished a task."""

    def cache_busting_signature(self) -> dict[str, Json] | None:
        """Values, as `provider.key`, that a running agent has frozen; when they change it is made anew."""
        return None

    async def status(self) -> Mapping[str, Json]:
        """What `status` shows."""
        return {}

    def backup_paths(self) -> Sequence[Path]:
        """Files that a backup should hold."""
        return ()

    async def shutdown(self) -> None:
        """Finish what is under way. Called once, last."""


class NullProvider(MemoryProvider):
    """No provider: every hook keeps its default."""

    name = "none"

    async def is_available(self) -> bool:
        return True

    async def initialize(self, context: ProviderContext) -> None:
        pass
