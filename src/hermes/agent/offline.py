"""The model for homes without a configured one. It answers from memory alone, with fixed sentences."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from hermes.fence import strip_fences
from hermes.llm.events import Completed, ModelEvent, Reply, TextPiece
from hermes.llm.model import ModelRequest
from hermes.types import ECHO, RecalledLine

if TYPE_CHECKING:
    from hermes.ranking.personal import Topic

SAVED = "Saved"
HERE_ALONE = "Kept in this conversation alone"
NOT_KEPT = "Heard, and not kept"
"""The fate of a message: in a session, in an incognito turn, and without a session."""


class Inquiry(Struct, frozen=True):
    """A question with its topic and the period that it asks about."""

    text: str
    topic: Topic | None = None
    since: float = 0.0
    until: float = float("inf")
    period: str = ""
    """The period in words."""


Recollect: TypeAlias = Callable[[Inquiry], Awaitable[Sequence[RecalledLine]]]


async def recollect_nothing(_: Inquiry) -> list[RecalledLine]:
    """Return no lines, for models that must not search."""
    return []


class OfflineModel(Struct, frozen=True):
    """A `Model` without a language model: it says whether a message is kept, and answers questions with quotes."""

    recollect: Recollect
    fate: str = SAVED
    now: Callable[[], float] = time.time
    recalled: tuple[RecalledLine, ...] = ()
    """The lines recalled for this turn."""
    is_whole: bool = True
    """True if the recall was complete."""
    asker: str = ""
    """The asking person's name in a group."""
    name: str = "offline"
    context_length: int = 1_000_000

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        asked = next((m["content"] for m in reversed(request.messages) if m["role"] == "user"), "")
        plain = strip_fences(str(asked)).strip().removeprefix(f"[{self.asker}] ")
        # Loaded by name: its patterns are compiled only where no model answers.
        text: str = await import_module("hermes.agent.offline_answers").reply(self, plain)
        yield TextPiece(text)
        yield Completed(Reply(text=text, finish_reason=ECHO, model=self.name))

    async def close(self) -> None:
        """Do nothing: an offline model has no connections."""
