"""The offline floor: with no model configured, answers come from memory alone, and say so."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from hermes.fence import strip_fences
from hermes.llm.events import Completed, ModelEvent, Reply, TextPiece
from hermes.llm.model import ModelRequest
from hermes.types import ECHO

Recollect: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
SAVED = "Saved"
HERE_ALONE = "Kept in this conversation alone"
NOT_KEPT = "Heard, and not kept"
"""What becomes of what a person says: in a session, in an incognito turn, and where there is no session."""
ASKING = re.compile(
    r"(?:(?:what|what's|who|who's|whose|when|where|which|why|how|do|does|did|is|are|was|were|can|could"
    r"|wer|wem|wen|wann|wie|wo|woher|wohin|warum|wieso|weshalb|wessen|welche[mnrs]?|wo(?:gegen|mit|für|von|r?an|rin)"
    r"|qui|quoi|quand|où|comment|pourquoi|combien|quels?|quelles?|est-ce"
    r"|qué|quién(?:es)?|cuándo|d[oó]nde|cómo|como se|cuál(?:es)?|cuánt[oa]s?|por qué)\b"
    r"(?!\s+(?:ich|je)\b|\s+j['’])"
    r"|remind me (?:what|who|whose|when|where|which|why|how)\b)(?!.*[.!…]$)"
    r"|¿|tell me\b",
    re.IGNORECASE | re.DOTALL,
)


class OfflineFloor(Struct, frozen=True):
    """A `Model` that thinks nothing up: it says what becomes of what it is told and quotes what it finds, always in the
    same words."""

    recollect: Recollect
    fate: str = SAVED
    name: str = "offline"
    context_length: int = 1_000_000

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        asked = next((m["content"] for m in reversed(request.messages) if m["role"] == "user"), "")
        text = await self._answer(strip_fences(str(asked)).strip())
        yield TextPiece(text)
        yield Completed(Reply(text=text, finish_reason=ECHO, model=self.name))

    async def close(self) -> None:
        """There is nothing to let go."""

    async def _answer(self, asked: str) -> str:
        if not is_asking(asked):
            return f"{self.fate}: {_brief(asked)}"
        found = await self.recollect(asked)
        if not found:
            return "I remember nothing about that."
        return "From memory: " + " · ".join(f"“{_brief(text)}”" for text in found)


async def recollect_nothing(_: str) -> list[str]:
    """For a floor that may look nowhere."""
    return []


def is_asking(text: str) -> bool:
    """Whether a text wants an answer: a question mark at its end, or a question word first and no full stop last."""
    flat = text.strip()
    return flat.endswith(("?", "？", "؟", "?!", "?”", '?"')) or ASKING.match(flat) is not None


def _brief(text: str, width: int = 300) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"
