"""Evidence for one message: what was said earlier that it is about, quoted letter for letter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from hermes.honcho.recall_reader import RecalledMessage

CANDIDATES = 50
"""Messages that are looked at for one question."""
MAX_QUOTE_CHARS = 420
"""Characters of one message that are quoted: a longer one is quoted by the sentences that fit the question."""
SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
WORD = re.compile(r"\w+")
STEM_CHARS = 5


class ScoredMessage(Struct, frozen=True):
    """A message that was found, how well it fits, and whether it is about the question at all."""

    message: RecalledMessage
    score: float = 0.0
    certainty: float = 1.0
    about: bool = True


class Quote(Struct, frozen=True):
    """Sentences of one message, as they stand in a prompt."""

    day: str
    at: str
    text: str
    score: float


def quote_all(found: Sequence[ScoredMessage], question: str, person: str | None) -> list[Quote]:
    """Quotes of the messages that are about the question, the best first."""
    wanted = _stems(question)
    asked = " ".join(question.lower().split())
    quotes: dict[str, Quote] = {}
    for one in found:
        message = one.message
        if not one.about or " ".join(message.content.lower().split()) == asked:
            continue
        sentences = [part.strip() for part in SENTENCE_END.split(message.content) if part.strip()]
        if message.peer_id == person and all(part.endswith(("?", "？")) for part in sentences):
            continue
        text = " ".join(_choose(sentences, wanted))
        quotes.setdefault(text, Quote(_day(message.created_at), message.created_at, f"{message.peer_id}: {text}", one.score))
    return list(quotes.values())


def _choose(sentences: Sequence[str], wanted: set[str]) -> list[str]:
    """All sentences of a short message; of a long one those that share most with the question, in their order."""
    if sum(map(len, sentences)) <= MAX_QUOTE_CHARS:
        return list(sentences)
    order = sorted(range(len(sentences)), key=lambda n: (-len(wanted & _stems(sentences[n])), n))
    chosen: list[int] = []
    room = MAX_QUOTE_CHARS
    for number in order:
        if chosen and len(sentences[number]) > room:
            continue
        chosen.append(number)
        room -= len(sentences[number]) + 1
        if room < 40:
            break
    return [sentences[number] for number in sorted(chosen)]


def _stems(text: str) -> set[str]:
    return {word[:STEM_CHARS] for word in WORD.findall(text.lower()) if len(word) > 3}


def _day(stamp: str) -> str:
    at = datetime.fromisoformat(stamp)
    return f"{at.day} {at:%B %Y}"


def write_quotes(quotes: Sequence[Quote], limit: int) -> tuple[str, int]:
    """The quotes that fit, the best first, written in order of time; and how many were left out."""
    kept: list[Quote] = []
    used = 0
    for quote in quotes:
        cost = len(quote.text) + 3 + (0 if any(one.day == quote.day for one in kept) else len(quote.day) + 2)
        if used + cost <= limit:
            kept.append(quote)
            used += cost
    lines: list[str] = []
    day = ""
    for quote in sorted(kept, key=lambda one: one.at):
        if quote.day != day:
            day = quote.day
            lines.append(f"{day}:")
        lines.append(f"- {quote.text}")
    return "\n".join(lines), len(quotes) - len(kept)
