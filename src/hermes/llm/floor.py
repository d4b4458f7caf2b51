"""The offline floor: with no model configured, answers come from memory alone, and say so."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias

from hermes.llm.events import Completed, ModelEvent, Reply, TextDelta
from hermes.llm.model import ModelRequest

Recollect: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
ASKING = (
    "what",
    "who",
    "when",
    "where",
    "which",
    "why",
    "how",
    "do ",
    "does ",
    "did ",
    "is ",
    "are ",
    "was ",
    "were ",
    "can ",
    "tell me",
)


class OfflineFloor:
    """A `Model` that thinks nothing up: it saves what it is told and quotes what it finds, always in the same words."""

    name = "offline"
    context_length = 1_000_000

    def __init__(self, recollect: Recollect) -> None:
        self._recollect = recollect

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        asked = next((m["content"] for m in reversed(request.messages) if m["role"] == "user"), "")
        text = await self._answer(str(asked).strip())
        yield TextDelta(text)
        yield Completed(Reply(text=text, finish_reason="stop", model=self.name))

    async def close(self) -> None:
        """There is nothing to let go."""

    async def _answer(self, asked: str) -> str:
        if not is_asking(asked):
            return f"Saved: {_brief(asked)}"
        found = await self._recollect(asked)
        if not found:
            return "I remember nothing about that."
        return "From memory: " + " · ".join(f"“{_brief(text)}”" for text in found)


def is_asking(text: str) -> bool:
    """Whether a text wants an answer: it ends with a question mark or begins with a question word."""
    return text.rstrip().endswith(("?", "？")) or text.lower().startswith(ASKING)


def _brief(text: str, width: int = 300) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"
