"""The model of a home where none is configured: it answers from memory alone, always in the same words."""

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
"""What becomes of what a person says: in a session, in an incognito turn, and where there is no session."""


class Inquiry(Struct, frozen=True):
    """A question, what it asks for, and the time that it asks about."""

    text: str
    topic: Topic | None = None
    since: float = 0.0
    until: float = float("inf")
    period: str = ""
    """That time in words."""


Recollect: TypeAlias = Callable[[Inquiry], Awaitable[Sequence[RecalledLine]]]


async def recollect_nothing(_: Inquiry) -> list[RecalledLine]:
    """For a model that may look nowhere."""
    return []


class OfflineModel(Struct, frozen=True):
    """A `Model` that thinks nothing up: it says what becomes of what it is told, and quotes what it finds."""

    recollect: Recollect
    fate: str = SAVED
    now: Callable[[], float] = time.time
    recalled: tuple[RecalledLine, ...] = ()
    """What memory brought for this turn."""
    is_whole: bool = True
    """Whether all of it was there in time."""
    asker: str = ""
    """How the person who asks is called where they ask."""
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
        """There is nothing to let go."""
