"""Sentences of plain text, and which of them say something about who speaks. No model is needed."""

from __future__ import annotations

import re

END = re.compile(r"(?<=[.!?。！？])\s+|\n+|(?<=[。！？])")
FIRST_PERSON = re.compile(r"\b(i|i'm|i've|i'd|i'll|my|mine|me|we|our|us)\b", re.IGNORECASE)
MAX_CHARS = 400
MIN_CHARS = 8


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without empty ones."""
    return [part.strip() for part in END.split(text) if part and part.strip()]


def is_statement(sentence: str) -> bool:
    """Does it state something about the speaker, rather than ask or chat?"""
    if sentence.endswith(("?", "？")) or not MIN_CHARS <= len(sentence) <= MAX_CHARS:
        return False
    return bool(FIRST_PERSON.search(sentence))


def telling(sentence: str) -> int:
    """How much a sentence says, roughly: names, numbers and words, questions less."""
    words = re.findall(r"\w+", sentence)
    weight = sum(2 if word[:1].isupper() or word.isdigit() else 1 for word in words[:40])
    return weight - (8 if sentence.endswith("?") else 0)
