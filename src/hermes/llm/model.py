"""What the rest of the house knows of a model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from hermes.llm.events import ModelEvent
from hermes.types import Json, ToolSpec


class ModelRequest(Struct, frozen=True):
    """One call: messages in wire shape, and the tools on offer. `max_tokens` None is left to the endpoint; `tokens` is
    about how many the call has, where that was counted already."""

    messages: Sequence[dict[str, Json]]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    tokens: int | None = None
    response_format: Json = None
    """The form of the reply, as OpenAI takes it; few endpoints do."""
    may_resend: Callable[[], Awaitable[bool]] | None = None
    """Called before a request whose form was refused is sent again in another one: False forbids it."""


def tool_to_wire(tool: ToolSpec) -> dict[str, Json]:
    """The shape that OpenAI-compatible endpoints take."""
    described = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": described}


class Model(Protocol):
    """Something that answers."""

    @property
    def name(self) -> str:
        """What the endpoint calls it."""

    @property
    def context_length(self) -> int:
        """Tokens that request and reply may have together."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """The reply as it comes; the last event is Completed or ModelFailed. Raises nothing the endpoint caused.

        Wrap it in `contextlib.aclosing` to hang up at once when leaving early.
        """

    async def close(self) -> None:
        """Let go of connections. A later `stream` opens new ones."""
