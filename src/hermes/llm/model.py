"""The interface of a model, as the other packages use it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from hermes.llm.events import ModelEvent
from hermes.types import Json, ToolSpec


class ModelRequest(Struct, frozen=True):
    """One call to a model: messages in wire format, and the tools it may call. `max_tokens` None means the endpoint's
    default. `tokens` is the estimated size of the request, if already counted."""

    messages: Sequence[dict[str, Json]]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    tokens: int | None = None
    response_format: Json = None
    """A response format in OpenAI's notation; few endpoints support it."""
    may_resend: Callable[[], Awaitable[bool]] | None = None
    """Called before a refused request is sent again in another form; a result of False prevents that."""


def tool_to_wire(tool: ToolSpec) -> dict[str, Json]:
    """Return the tool in the format of OpenAI-compatible endpoints."""
    described = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": described}


class Model(Protocol):
    """A model that can be called."""

    @property
    def name(self) -> str:
        """The model's name at the endpoint."""

    @property
    def context_length(self) -> int:
        """The maximum of request and reply together, in tokens."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply as it arrives; the last event is Completed or ModelFailed. Must not raise for endpoint
        failures.

        Wrap it in `contextlib.aclosing` to hang up at once when leaving early.
        """

    async def close(self) -> None:
        """Close connections. A later `stream` opens new ones."""
